#!/usr/bin/env python3
"""The curves beside ours of curve.py: torch and transformers, not compiled, from the weights that lie in FOLDER.

    curve_torch.py FOLDER [--size curve] [--device cuda] [--steps 200]

bf16 has fp32 sums, masters and moments, as our program has; fp32 says how far rounding alone carries a curve.
"""

import argparse
import contextlib
import pathlib
import sys

import torch
from safetensors.torch import load_file

import curve_job
import llama_job
from llama_transformers import Autocast, Masters, make_model, train_step
from report import already, emit, key_of


class Whole(Autocast):
    """fp32 in all."""

    def __init__(self, model, device, lr):
        super().__init__(model, device, lr)
        self.context = contextlib.nullcontext


def load(model, path):
    """Takes over the weights; the head is the embedding's matrix, and not in the file."""
    named = {name.removeprefix("llm."): value for name, value in load_file(path).items()}
    missing, unexpected = model.load_state_dict(named, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        sys.exit(f"{path} has other weights than the model: {missing} are missing, {unexpected} are too many")


def losses_of(options, state_of):
    model = make_model(options.size, options.device, state_of.dtype)
    load(model, options.folder / "weights.safetensors")
    state, losses = state_of(model, options.device, curve_job.LEARNING_RATE), []
    for batches in curve_job.microbatches(options.size, options.steps):
        tensors = [dict(zip(("input_ids", "labels"), (torch.tensor(part, device=options.device) for part in batch))) for batch in batches]
        losses.append(train_step(model, state, tensors))
    return torch.stack(losses).tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--size", default="curve", choices=llama_job.SIZES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=curve_job.STEPS)
    options, done = parser.parse_args(), already()
    for dtype, state_of in (("bf16", Masters), ("fp32", Whole)):
        row = {"measure": f"curve-{options.size}", "system": "torch", "dtype": dtype}
        if key_of(row) not in done:
            emit({**row, "losses": losses_of(options, state_of), "versions": f"torch {torch.__version__}"})


if __name__ == "__main__":
    main()
