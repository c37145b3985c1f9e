#!/usr/bin/python3
"""Step time of real training under the policies of balancer/ and every schedule: real-mini, one thread a process.

    live_bench.py [--schedules S,...] [--policies P,...] [--runs N] [--steps N] [--minutes N] [--results FILE]
                  [CONFIGURATION...]
    live_bench.py --table FILE

Configurations (live_configurations.py) are present ones and every one that this bench had before; names may hold `*`.
By default the present ones train under two schedules, three turns in 28 minutes. `--schedules all '*'` is the whole
table, hours of work: give it a file, and repeat the command until it says that nothing is left. In every turn each
configuration trains under every schedule with every policy, one after the other, so that what the machine does in
that quarter of an hour concerns all of them; the value is the median over turns of a run's mean step (all train the
same batches, which differ in work).

What counts is how much of what could be saved under a schedule a policy saves: (random - step) / (random - bound).
The bound is the busiest device's work under the best layout of the samples; live_results.py says exactly how it is
measured, and holds the goals. `--table` prints the tables of RESULTS.md. Steps are wall-clock, so this wants an
otherwise idle machine with two cores. Skipped (exit 77) where the data set is absent.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import live_results
import live_tables
import run_benches
from live_configurations import (BASELINE_POLICY, BASELINE_SCHEDULE, DEFAULT_SCHEDULES, JOB, MEDIA, POLICIES, PRESENT,
                                 SCHEDULES, matching, overrides, rows_of)

BINARY = pathlib.Path(os.environ.get("TROUPE_BINARY", "build/release/troupe")).resolve()
WARM_UP = 2
RUN_TIMEOUT_S = 600


def listed(known):
    """A type of option: names of `known` with commas between, or `all`."""
    def read(text):
        chosen = list(known) if text == "all" else text.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"no '{name}' (known: all, {', '.join(known)})")
        return [name for name in known if name in chosen]
    return read


def read_arguments():
    """The command line, which the peer shares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configurations", nargs="*", default=PRESENT, metavar="CONFIGURATION",
                        help="default: the present ones")
    parser.add_argument("--schedules", type=listed(SCHEDULES), default=list(DEFAULT_SCHEDULES), metavar="S,...")
    parser.add_argument("--policies", type=listed(POLICIES), default=list(POLICIES), metavar="P,...")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="turns (default 3)")
    parser.add_argument("--steps", type=int, default=8, metavar="N", help=f"of a run (default 8; {WARM_UP} warm up)")
    parser.add_argument("--minutes", type=float, default=28, metavar="N", help="begin no run after so many (default 28)")
    parser.add_argument("--results", metavar="FILE", help="append runs to FILE; what it has is not run again")
    parser.add_argument("--table", metavar="FILE", help="print the tables of a result file, run nothing")
    arguments = parser.parse_args()
    try:
        arguments.configurations = matching(arguments.configurations)
    except ValueError as error:
        parser.error(str(error))
    if not rows_of(arguments.schedules, arguments.policies):
        parser.error(f"{', '.join(arguments.policies)}: only under {BASELINE_SCHEDULE}")
    if arguments.runs < 1 or arguments.steps <= WARM_UP:
        parser.error(f"--runs must be 1 or more and --steps more than {WARM_UP}, which warm up")
    return arguments


def device_work(trace):
    """Per step and device, what ran there in ms: ({step: {device: wall-clock}}, the same in processor time)."""
    wall, cpu = (collections.defaultdict(lambda: collections.defaultdict(float)) for _ in range(2))
    for event in trace:
        if event["ph"] == "X" and event.get("cat") in ("compute", "update"):
            device = event["pid"], event["tid"]
            wall[event["args"]["step"]][device] += event["dur"] / 1e3
            cpu[event["args"]["step"]][device] += event["tdur"] / 1e3
    return wall, cpu


def calibrated_ms(line):
    """A step's prediction that follows speeds measured in the same run; older metrics call it `predicted_step_ms`."""
    return line["calibrated_step_ms"] if "calibrated_step_ms" in line else line["predicted_step_ms"]


def measures(run, cores):
    """Of a run's folder, all as live_results.py keeps them: steps, work of the busiest device, predicted / measured
    by the profile and with the speeds of the steps before, the longest wait for a plan, and activation memory, the
    peak over what was promised (of the fullest device, and of the one that exceeds its promise most), furthest from
    1."""
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    wall, cpu = device_work(json.loads((run / "trace.json").read_text(encoding="utf-8")))
    kept = metrics[WARM_UP:]
    step_ms = sum(line["step_ms"] for line in kept)
    memory = [line["activation_bytes"] / line["promised_activation_bytes"] for line in kept]
    memory += [line["activations_over_promise"] for line in kept]
    return {
        "steps_ms": [round(line["step_ms"], 3) for line in kept],
        "busiest_ms": statistics.mean(live_results.busiest_ms(wall[line["step"]].values(), cpu[line["step"]].values(), cores)
                                      for line in kept),
        "profile": sum(line["profile_step_ms"] for line in kept) / step_ms,
        "calibrated": sum(calibrated_ms(line) for line in kept) / step_ms,
        "plan_wait_ms": max(line["plan_wait_ms"] for line in kept),
        "memory": max(memory, key=lambda share: abs(share - 1)),
    }


def train(folder, job, steps, schedule, policy, binary=None):
    """Measures of one run, or what it ended with."""
    run = pathlib.Path(folder) / "run"
    command = [str(binary or BINARY), "train", str(JOB), *job, f"balancer.policy={policy}", f"scheduler.schedule={schedule}",
               f"train.steps={steps}", f"job.run_dir={run}"]
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=folder,
                              env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {RUN_TIMEOUT_S} s"}
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    return measures(run, len(os.sched_getaffinity(0)))


def version(binary):
    """The first line that `--version` says."""
    return subprocess.run([str(binary), "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]


def provenance():
    """What every record says of where it comes from."""
    machine = run_benches.machine()
    return {"commit": version(BINARY).split("(")[-1].rstrip(")"),
            "machine": f"{machine['cpu']}, {len(os.sched_getaffinity(0))} cores"}


def record_runs(planned, path, minutes, run):
    """Runs what `planned` lists and the result file lacks, and appends it, until so many minutes have passed; `run`
    makes a record's measures from its head, or an `error`, which is not tried again. Returns all records."""
    begin, records = time.monotonic(), live_results.read(path)
    had = [record for record in records if "configuration" in record]
    if other := {record["steps"] for record in had} - {head["steps"] for head in planned}:
        raise SystemExit(f"{path} has runs of {min(other)} steps: give another file or --steps {min(other)}")
    have = {live_results.key(record) for record in had}
    left = [head for head in planned if live_results.key(head) not in have]
    origin = provenance()
    while left and time.monotonic() - begin < 60 * minutes:
        head = left.pop(0)
        record = {**head, **origin, **run(head),
                  "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
        live_results.append(path, record)
        records.append(record)
    print(f"{len(left)} of {len(planned)} runs left" if left else "nothing left to run", file=sys.stderr)
    return records


def planned_runs(arguments, rows):
    """Heads of records, turn by turn, so that what is cut off is a later turn and no row."""
    return [{"configuration": label, "schedule": schedule, "policy": policy, "run": run, "steps": arguments.steps}
            for run in range(arguments.runs) for label in arguments.configurations for schedule, policy in rows]


def row_words(row, random, bound_ms):
    """What stands beside a row's step."""
    words = [f"{row.runs} runs"]
    if random and row.policy != BASELINE_POLICY:
        saved = live_results.percent(live_results.share(random.step_ms, row.step_ms, bound_ms))
        words.append(f"{random.step_ms / row.step_ms:.2f}x over random order under {row.schedule}, {saved} of what could be "
                     f"saved")
    words += [f"predicted by the profile / measured {row.profile:.2f}, with speeds of the steps before "
              f"{row.calibrated:.2f}", f"longest wait for a plan {row.wait_ms:.0f} ms",
              f"peak / promised activations at worst {row.memory:.2f}"]
    return "; ".join(words)


def report(records, configurations, rows):
    """Prints a JSON line per row, how each schedule's policies stand to their goal, and what had no result; returns how
    many these were."""
    for label in configurations:
        table = live_results.rows(records, label)
        for schedule, policy in rows:
            if row := table.get((schedule, policy)):
                bound_ms = live_results.bound(table).busiest_ms
                print(json.dumps({"measure": f"step, {label}, {policy}, {schedule}", "value": row.step_ms, "unit": "ms",
                                  "bound": bound_ms, "better": "lower",
                                  "size": row_words(row, table.get((schedule, BASELINE_POLICY)), bound_ms)}), flush=True)
        for schedule in SCHEDULES:
            if told := live_results.schedule_verdict(label, table, schedule):
                print(f"{label}, {schedule}: {told}", file=sys.stderr)
    failed = [record for record in records if "error" in record]
    for record in failed:
        print(f"{record['configuration']}, {record['policy']}, {record['schedule']}: {record['error']}", file=sys.stderr)
    return len(failed)


def main():
    arguments = read_arguments()
    if arguments.table:
        print(live_tables.markdown(live_results.read(arguments.table)))
        return 0
    if not MEDIA.is_dir():
        print(f"skipped: no {MEDIA}", file=sys.stderr)
        return 77
    rows = rows_of(arguments.schedules, arguments.policies)
    with tempfile.TemporaryDirectory(prefix="troupe-live-") as folder:
        jobs = {label: overrides(label, folder) for label in arguments.configurations}
        records = record_runs(
            planned_runs(arguments, rows), arguments.results or f"{folder}/results", arguments.minutes,
            lambda head: train(folder, jobs[head["configuration"]], head["steps"], head["schedule"], head["policy"]))
    return 1 if report(records, arguments.configurations, rows) else 0


if __name__ == "__main__":
    sys.exit(main())
