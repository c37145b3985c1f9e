#!/usr/bin/env python3
"""Losses of one model in bf16, step by step: trained by our program, then by torch (curve_torch.py) from the same file of weights.

    curve.py PROGRAM FOLDER [--size curve] [--device cuda] [--steps 200] [--limit S]

FOLDER is made anew; `--limit` ends our program. A JSON object for each curve; those that are measured already are passed over.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import curve_job
import llama_job
from llama_troupe import steps_of, train
from report import already, emit, key_of

HERE = pathlib.Path(__file__).resolve().parent


def curve_of(steps, count):
    """Losses of steps 1 to `count`; None where some are not there."""
    losses = {step["step"]: step["loss"] for step in steps}
    return [losses[step] for step in range(1, count + 1)] if all(step in losses for step in range(1, count + 1)) else None


def ours(options, job):
    row = {"measure": f"curve-{options.size}", "system": "troupe", "dtype": "bf16"}
    if key_of(row) in already():
        return True
    code, seconds = train([options.program, "train", str(job), "--fresh", f"cluster.device={options.device}"], options.limit)
    steps = steps_of(options.folder / "run")
    losses = curve_of(steps, options.steps)
    told = {"losses": losses} if losses else {"error": f"{len(steps)} steps, of {options.steps}, in {seconds} s; it ended with {code}"}
    emit({**row, **told})
    return losses is not None


def peers(options):
    command = [sys.executable, str(HERE / "curve_torch.py"), str(options.folder), "--size", options.size, "--device", options.device,
               "--steps", str(options.steps)]
    # Our program's libraries are not for torch, which has its own.
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    code = subprocess.run(command, env=environment).returncode
    if code != 0:
        emit({"measure": f"curve-{options.size}", "system": "torch", "dtype": "bf16",
              "error": f"curve_torch.py ended with {code}: it needs torch, transformers and safetensors (see the log)"})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--size", default="curve", choices=llama_job.SIZES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=curve_job.STEPS)
    parser.add_argument("--limit", type=float, default=60)
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    trained = ours(options, curve_job.write(options.folder, options.size, options.steps))
    peers(options)
    sys.exit(0 if trained else 1)


if __name__ == "__main__":
    main()
