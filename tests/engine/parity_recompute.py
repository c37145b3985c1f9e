"""Activations that are recomputed (train.recompute): the bits of a run that keeps them, with less memory."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from parity_layouts import REPLICAS, TWO_DEVICES
from parity_matrix import PROJECTORS_ONLY
from recorded_runs import read_lines

RECOMPUTE, KEEPING = "train.recompute=true", "train.recompute=false"
LESS = 0.8  # At most so much of what is held without; embeddings, heads and projectors keep what they did.
CASES = {
    "recompute-fp64": ["train.dtype=fp64", RECOMPUTE],
    "recompute-deferral": ["train.dtype=fp64", RECOMPUTE, "balancer.policy=deferral", "scheduler.schedule=split-1f1b"],
    "recompute-frozen-tied": ["train.dtype=fp64", RECOMPUTE, *PROJECTORS_ONLY, "modules.llm.config.tie_word_embeddings=true",
                              "scheduler.schedule=eager-1f1b"],
    "recompute-modality": ["train.dtype=fp64", RECOMPUTE, "modules.llm.attention=modality", "modules.vision.freeze=true"],
    "recompute-replicas-3-2": ["train.dtype=fp64", RECOMPUTE, *REPLICAS["3-2"], "balancer.policy=auto"],
    "recompute-two-devices": ["train.dtype=fp64", RECOMPUTE, *TWO_DEVICES, "scheduler.schedule=gpipe"],
    "recompute-late": ["train.dtype=fp64", RECOMPUTE, "debug.delayed_device_ms=0.4"],
    "recompute-bf16": ["train.dtype=bf16", RECOMPUTE],
}


def faults_of_memory(run, plain):
    """What devices held, beside a run of the same job that keeps everything."""
    held, whole = (max(line["activation_bytes"] for line in read_lines(of / "metrics.jsonl")) for of in (run, plain))
    return [] if held <= LESS * whole else [f"{held / 1e6:.2f} MB of activations were held, {whole / 1e6:.2f} MB without recomputing"]
