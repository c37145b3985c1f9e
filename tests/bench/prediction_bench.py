#!/usr/bin/python3
"""Predicted against measured step time: real-mini in three layouts of two stages, one thread each, two processes.

The profile is measured first, on made-up rows. Then each layout trains; its first steps warm up. Prints one JSON
line per layout: the median over steps of predicted / measured, beside both medians. Steps are wall-clock, so this
wants an otherwise idle machine with two cores; it ends with 77 where the data set is absent. See README.md.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BINARY = pathlib.Path(os.environ.get("TROUPE_BINARY", "build/release/troupe")).resolve()
PREDICT = BINARY.parent / "bench" / "prediction_bench"
JOB = pathlib.Path("configs/real-mini.toml").resolve()
DATA = pathlib.Path("../shared/data/real-mini/samples.json").resolve()
WARM_UP, STEPS = 5, 25
LAYOUTS = {
    "encoders | llm": '{node=0,vision="all",audio="all"},{node=1,llm="all"}',
    "encoders, llm 0-3 | llm 3-7": '{node=0,vision="all",audio="all",llm=[0,3]},{node=1,llm=[3,7]}',
    "vision | audio, llm": '{node=0,vision="all"},{node=1,audio="all",llm="all"}',
}


def predicted(folder, overrides):
    """Milliseconds of every step after the warm-up."""
    done = subprocess.run([str(PREDICT), f"{folder}/profile.json", str(WARM_UP), str(STEPS - WARM_UP), str(JOB), *overrides],
                          check=True, stdout=subprocess.PIPE)
    return [json.loads(line)["step_ms"] for line in done.stdout.splitlines()]


def measured(run, overrides):
    subprocess.run([str(BINARY), "train", str(JOB), *overrides, f"train.steps={STEPS}", f"job.run_dir={run}"],
                   check=True, stdout=subprocess.DEVNULL)
    lines = (pathlib.Path(run) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["step_ms"] for line in lines][WARM_UP:]


def main():
    if not DATA.exists():
        print(f"nothing to measure with: no {DATA}", file=sys.stderr)
        return 77
    for program in (BINARY, PREDICT):
        if not program.exists():
            print(f"no {program}: build it first (scripts/bench prediction does)", file=sys.stderr)
            return 1
    with tempfile.TemporaryDirectory(prefix="troupe-prediction-") as folder:
        subprocess.run([str(BINARY), "profile", str(JOB), "--out", f"{folder}/profile.json"],
                       check=True, stdout=subprocess.DEVNULL)
        for index, (name, stages) in enumerate(LAYOUTS.items()):
            overrides = [f"parallel.pipelines=[{{stages=[{stages}]}}]", "cluster.local_nodes=2"]
            expected, seen = predicted(folder, overrides), measured(f"{folder}/run-{index}", overrides)
            if not len(expected) == len(seen) == STEPS - WARM_UP:
                print(f"{name}: {len(expected)} steps predicted, {len(seen)} measured", file=sys.stderr)
                return 1
            ratio = statistics.median(e / s for e, s in zip(expected, seen))
            print(json.dumps({"measure": f"error of the predicted step time, {name}", "value": abs(ratio - 1), "unit": "share",
                              "bound": 0.1, "better": "lower",
                              "size": f"real-mini, {STEPS - WARM_UP} steps; predicted {statistics.median(expected):.1f} ms, "
                                      f"measured {statistics.median(seen):.1f} ms"}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
