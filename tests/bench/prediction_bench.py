#!/usr/bin/python3
"""Predicted against measured step time: real-mini in three layouts of two stages, one thread each, two processes.

    prediction_bench.py [--runs N] [--results FILE]

The profile is measured first, on made-up rows. Then each layout trains; its first steps warm up. That is done `--runs`
times, each time with a profile of its own, because a profile is as good as the minute in which it was taken. Prints two
JSON lines per layout: the error of the profile's prediction, made before the run, and that of `calibrated_step_ms`,
which follows speeds measured in the same run. The error of a run is |median over steps of predicted / measured - 1|;
the value is the median over runs. `--results` appends to a file of live_bench.py, whose `--table` shows both. Steps
are wall-clock, so this wants an otherwise idle machine with two cores; it ends with 77 where the data set is absent.
See README.md.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import live_bench
import live_results
from live_bench import BINARY
from live_configurations import JOB, MEDIA

PREDICT = BINARY.parent / "bench" / "prediction_bench"
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


def trained(run, overrides):
    """Metrics of every step after the warm-up."""
    subprocess.run([str(BINARY), "train", str(JOB), *overrides, f"train.steps={STEPS}", f"job.run_dir={run}"],
                   check=True, stdout=subprocess.DEVNULL)
    lines = (pathlib.Path(run) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines][WARM_UP:]


def median_ratio(told, seen):
    return statistics.median(predicted_ms / step_ms for predicted_ms, step_ms in zip(told, seen))


def measure(folder, stages):
    """Measured step and both ratios of one layout."""
    overrides = [f"parallel.pipelines=[{{stages=[{stages}]}}]", "cluster.local_nodes=2"]
    expected, metrics = predicted(folder, overrides), trained(f"{folder}/run", overrides)
    if not len(expected) == len(metrics) == STEPS - WARM_UP:
        raise SystemExit(f"{len(expected)} steps predicted, {len(metrics)} measured")
    seen = [line["step_ms"] for line in metrics]
    return {"step_ms": statistics.median(seen), "profile": median_ratio(expected, seen),
            "calibrated": median_ratio([live_bench.calibrated_ms(line) for line in metrics], seen)}


def report(records):
    """Prints errors per layout, the profile's first."""
    for name in LAYOUTS:
        found = [record for record in records if record.get("prediction") == name]
        for which, words in (("profile", "predicted by the profile"), ("calibrated", "with speeds of the steps before")):
            print(json.dumps({"measure": f"error of the step {words}, {name}", "unit": "share", "better": "lower",
                              "value": live_results.median_error(found, which), "bound": live_results.PREDICTION_GOAL,
                              "size": f"{len(found)} runs of {STEPS - WARM_UP} steps; measured "
                                      f"{statistics.median(record['step_ms'] for record in found):.1f} ms"}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--results", metavar="FILE", help="append to FILE")
    arguments = parser.parse_args()
    if not MEDIA.is_dir():
        print(f"nothing to measure with: no {MEDIA}", file=sys.stderr)
        return 77
    for program in (BINARY, PREDICT):
        if not program.exists():
            print(f"no {program}: build it first (scripts/bench prediction does)", file=sys.stderr)
            return 1
    records, origin = [], live_bench.provenance()
    for _ in range(arguments.runs):
        with tempfile.TemporaryDirectory(prefix="troupe-prediction-") as folder:
            subprocess.run([str(BINARY), "profile", str(JOB), "--out", f"{folder}/profile.json"],
                           check=True, stdout=subprocess.DEVNULL)
            for name, stages in LAYOUTS.items():
                records.append({"prediction": name, **origin, **measure(folder, stages)})
                if arguments.results:
                    live_results.append(arguments.results, records[-1])
    report(records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
