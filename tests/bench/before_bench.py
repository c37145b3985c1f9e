#!/usr/bin/python3
"""What a change costs training: another build of the program beside this one, in pairs of runs.

    TROUPE_BEFORE=BINARY scripts/bench before
    before_bench.py [--pairs N] [--steps N] [--record FILE] [CONFIGURATION...]

Two measures. Processor time of a step, of all threads of both processes: other programs do not count in it. Batches are
those of step_bench.py's first size; the llm has a fixed number of layers, not as many as 50 ms take, so that both builds
do the same work. Both builds run at the same time, each on a core of its own, which they change from pair to pair: a
machine's speed drifts by a quarter within minutes, and does so for both. Until 30 November 2026 they took turns.
Wall-clock time of a step of live_bench.py's configurations, by default the present ones, under one policy, where they
take turns. A value is the median over pairs of what the later build takes over what the earlier one takes beside it; which
of the two begins, or has the first core, changes from pair to pair. Both builds train the same samples with the same job: one that does
not know a key of today's is named. Skipped (exit 77) without TROUPE_BEFORE.
"""

import argparse
import concurrent.futures
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import kept_results
import live_bench
import step_bench
from live_configurations import MEDIA, PRESENT, matching, overrides

GOAL_STEP, GOAL_LIVE = 1.03, 1.05
LAYERS = 12  # Of each stage's half of the llm.
POLICY, SCHEDULE = "deferral", "split-1f1b"


def step_seconds(binary, core, folder, data, steps):
    """Processor seconds of a step on that core."""
    microbatches, samples, _ = step_bench.SIZES[0]
    with tempfile.TemporaryDirectory(dir=folder) as own:  # Another build trains at the same time.
        _, (first, last), threads = step_bench.train(own, data, microbatches, samples, LAYERS, steps, binary, core)
    return sum(threads.values()) / (last - first)


def pairs_at_once(count, binaries, measure):
    """(earlier, later) of each pair, behind one that does not count."""
    cores = (sorted(os.sched_getaffinity(0)) * 2)[:2]
    made = []
    with concurrent.futures.ThreadPoolExecutor(2) as both:
        for pair in range(-1, count):
            made.append(tuple(both.map(measure, binaries, cores if pair % 2 else reversed(cores))))
    return made[1:]


def live_ms(binary, folder, job, steps):
    """Mean milliseconds of a step behind the warm-up."""
    measured = live_bench.train(folder, job, live_bench.WARM_UP + steps, SCHEDULE, POLICY, binary)
    if "error" in measured:
        raise SystemExit(f"{binary}: {measured['error']}")
    return statistics.mean(measured["steps_ms"])


def pairs_of(count, binaries, measure):
    """(earlier, later) of each pair, after one run of each that does not count."""
    for binary in binaries:
        measure(binary)
    made = []
    for pair in range(count):
        order = (0, 1) if pair % 2 == 0 else (1, 0)
        taken = {place: measure(binaries[place]) for place in order}
        made.append((taken[0], taken[1]))
    return made


def report(what, unit, goal, made, size, before):
    """Prints the line of a measure; the earlier build is named in it, the later one in the line of the run."""
    ratios = [later / earlier for earlier, later in made]
    earlier, later = (statistics.median(values) for values in zip(*made))
    kept_results.emit({
        "measure": f"{what}, later build over earlier", "value": round(statistics.median(ratios), 4), "unit": "x", "bound": goal,
        "better": "lower", "goal": "met" if statistics.median(ratios) <= goal else "MISSED",
        "size": f"{size}; {len(made)} pairs of {min(ratios):.3f} to {max(ratios):.3f}; medians {earlier:.4g} and "
                f"{later:.4g} {unit}; before: {before}"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="of each measure (default 5)")
    parser.add_argument("--steps", type=int, default=24, metavar="N", help="that are measured of a run (default 24)")
    parser.add_argument("configurations", nargs="*", default=PRESENT, metavar="CONFIGURATION", help="default: the present ones")
    kept_results.add_option(parser)
    arguments = parser.parse_args()
    try:
        arguments.configurations = matching(arguments.configurations)
    except ValueError as error:
        parser.error(str(error))
    if not os.environ.get("TROUPE_BEFORE"):
        print("skipped: TROUPE_BEFORE names no earlier build of the program", file=sys.stderr)
        return 77
    binaries = [pathlib.Path(os.environ["TROUPE_BEFORE"]).resolve(), step_bench.BINARY]
    for name, binary in zip(("earlier", "later"), binaries):
        print(f"{name}: {live_bench.version(binary)}", file=sys.stderr)
    before, later = (kept_results.commit_of(binary) for binary in binaries)
    with kept_results.recorded(arguments.record, later) as run, \
            tempfile.TemporaryDirectory(prefix="troupe-before-") as folder:
        data = pathlib.Path(folder) / "data"
        subprocess.run([str(binaries[0]), "data", "make", str(data)], check=True, stdout=subprocess.DEVNULL)
        report("step: processor time", "s", GOAL_STEP,
               pairs_at_once(arguments.pairs, binaries,
                             lambda binary, core: step_seconds(binary, core, folder, data, arguments.steps)),
               f"{LAYERS} layers a stage, {arguments.steps} steps, both at once", before)
        if not MEDIA.is_dir():
            print("live: not measured, its media are not here", file=sys.stderr)
            run["passed"] = False
        for label in arguments.configurations if MEDIA.is_dir() else []:
            job = overrides(label, folder)
            report(f"live: step of {label}", "ms", GOAL_LIVE,
                   pairs_of(arguments.pairs, binaries, lambda binary, job=job: live_ms(binary, folder, job, arguments.steps)),
                   f"{POLICY}, {SCHEDULE}, {arguments.steps} steps", before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
