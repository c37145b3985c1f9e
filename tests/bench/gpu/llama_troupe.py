#!/usr/bin/env python3
"""Trains the job of llama_job.py, or of mm_job.py, with our program, and tells what its run folder says.

    llama_troupe.py PROGRAM FOLDER --size 1b|2b|small [--model llama|mm] [--device cuda] [--steps 14] [--limit S]

FOLDER is made anew; `--limit` ends the program, whose steps so far count where they suffice.
"""

import argparse
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import time

import llama_job
import mm_job
from report import emit, spread

MODELS = {"llama": llama_job, "mm": mm_job}


def steps_of(run):
    """Lines of metrics.jsonl; none where training has not begun."""
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    steps = []
    for line in lines:
        with contextlib.suppress(ValueError):  # The last one may be cut.
            steps.append(json.loads(line))
    return steps


def measured(steps, count=llama_job.MEASURED_STEPS):
    """What the last `count` steps took; None where there are no more than these, so that some step has warmed up."""
    if len(steps) <= count:
        return None
    last = steps[-count:]
    row = {"tokens_per_step": last[-1]["tokens"], **spread("step_ms", [step["step_ms"] for step in last]),
           **spread("tokens_per_s", [step["tokens_per_s"] for step in last])}
    for key in ("tflops_per_device", "mfu", "compute_ms", "update_ms", "data_wait_ms", "wait_ms"):
        if key in last[-1]:
            row[f"{key}_median" if key.endswith("_ms") else key] = spread(key, [step.get(key, 0) for step in last])[key]
    return {**row, "activation_bytes": last[-1].get("activation_bytes"), "loss_first": steps[0]["loss"], "loss_last": last[-1]["loss"],
            "steps": len(steps)}


def train(command, limit_s):
    """Exit code, or "no end"."""
    begin = time.monotonic()
    try:
        code = subprocess.run(command, timeout=limit_s).returncode
    except subprocess.TimeoutExpired:
        code = "no end"
    return code, round(time.monotonic() - begin, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", default="llama", choices=MODELS)
    parser.add_argument("--size", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--limit", type=float, default=90)
    options = parser.parse_args()
    model = MODELS[options.model]
    if options.size not in model.SIZES:
        sys.exit(f"no size '{options.size}' of {options.model}; there are {', '.join(model.SIZES)}")
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    job = model.write_job(options.folder.resolve(), options.size, options.steps)
    code, seconds = train([options.program, "train", str(job), "--fresh", f"cluster.device={options.device}"], options.limit)
    row = {"measure": f"{options.model}-{options.size}", "system": "troupe", "program_code": code, "program_s": seconds}
    result = measured(steps_of(options.folder / "run"))
    if result is None:
        emit({**row, "error": f"{len(steps_of(options.folder / 'run'))} steps, of {options.steps}, in {seconds} s"})
        sys.exit(1)
    emit({**row, **result, "flops_per_token": model.flops_per_token(options.size), "parameters": model.parameters(options.size)})


if __name__ == "__main__":
    main()
