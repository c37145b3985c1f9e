#!/usr/bin/python3
"""Says how a run went and where to look; exits 1 unless its loss fell by half.

    demo_summary.py RUN
"""

import json
import pathlib
import sys

SHOWN = 40


def main(run):
    file = run / "metrics.jsonl"
    if not file.exists():
        sys.exit(f"demo: {file} is missing; the run left no metrics")
    steps = [json.loads(line) for line in file.read_text().splitlines()]
    losses = [step["loss"] for step in steps if step.get("loss") is not None]
    if len(losses) < 6:
        sys.exit(f"demo: only {len(losses)} steps in {file}")
    first, last = sum(losses[:3]) / 3, sum(losses[-3:]) / 3
    bars = " .:-=+*#%@"
    stride = max(1, len(losses) // SHOWN)
    curve = "".join(bars[min(9, round(9 * loss / max(losses)))] for loss in losses[::stride])
    print(f"\nloss  {first:.3f} -> {last:.3f}  [{curve}]  mean of the first and last three steps")
    print("look at")
    for name, what in (("metrics.jsonl", "every step's figures"), ("resolved.toml", "every setting and its origin"),
                       ("plan.json", "who holds which layers"), ("samples.jsonl", "which samples each step trained"),
                       ("trace.json", "timeline of all nodes: open it in ui.perfetto.dev"),
                       ("model", "the trained parameters, safetensors")):
        if (run / name).exists():
            print(f"  {run / name}  {what}")
    if last > first / 2:
        sys.exit(f"demo: the loss did not fall by half ({first:.3f} -> {last:.3f})")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
