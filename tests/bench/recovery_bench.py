#!/usr/bin/python3
"""What the loss of a node costs a running job, beside starting it again from its newest checkpoint, and beside torchrun.

    recovery_bench.py [--folder DIR] [--sizes SIZE...] [--losses N] [--losses-1gb N] [--restarts N] [--restarts-1gb N]
                      [--joins N] [--joins-1gb N] [--record FILE]

Text-only llms in fp32, two pipelines of two stages on 4 local nodes, 10 MB and 1 GB of state per copy of the model
(100 MB too where asked for); SIGKILL to one node just after a step's end. From the run's events, medians: detect +
decide + connect + rebuild (the goal is 300 ms), and the copy: bytes over time, beside transport_bench in the same run
over shared memory, with its messages that come nearest to those of the model (the goal is 0.8 of it).

Seconds of training lost per failure: from the kill to the end of the step that follows the last finished one, less a
usual step. The same where head and nodes are killed and the same command goes on from a checkpoint of every step; where
the head is killed alone and replaced; and where `torchrun --max-restarts` does it, with a checkpoint by
torch.distributed.checkpoint after every step (recovery_torchrun.py), where `scripts/setup --reference` has installed it.
All that goes on from a checkpoint is killed just after one was complete, which costs it least. The goal is a tenth of
what each restart loses.

A node that joins four others, one pipeline each: what those lose from its start to the end of the first step with it, beside
as many usual steps. The goal is less than a step and 200 ms.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import kept_results  # noqa: E402
from recovery_jobs import (BINARY, LAYERS, NODES, SAMPLES, SIZES, VOCABULARY, let_one_join, lose_a_node,  # noqa: E402
                           read_lines_so_far, replace_the_head, start_again, write_job)

GOAL_MS, GOAL_SHARE, GOAL_SPEED, GOAL_JOIN_S = 300, 0.1, 0.8, 0.2
WORKER = pathlib.Path(__file__).with_name("recovery_torchrun.py")
TRANSPORT = BINARY.parent / "bench" / "transport_bench"
TRANSPORT_SIZES, TRANSPORT_S = 3, 60  # Of messages; for all three, where a few seconds are usual.
LONGEST_WAIT_S = 300
STEPS_BETWEEN = 3  # From the first step after a failure of torchrun's workers to the next failure.


def report(measure, value, unit, size, goal=None, better="lower", **more):
    record = {"measure": measure, "value": value, "unit": unit, "size": size, "better": better} | more
    if goal is not None:
        is_met = value <= goal if better == "lower" else value >= goal
        record |= {"bound": goal, "goal": "met" if is_met else "MISSED"}
    kept_results.emit(record)


def transport_gb_per_s():
    """Speeds over shared memory by bytes of a message; none where transport_bench is not built, or cores are too busy."""
    speeds = {}
    if not TRANSPORT.exists():
        print("recovery_bench: no transport_bench here (scripts/bench recovery builds it)", file=sys.stderr)
        return speeds
    # Without ucx_perftest, which it looks for in PATH: that polls, and takes minutes where cores are busy.
    process = subprocess.Popen([str(TRANSPORT)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "PATH": "/nonexistent"})
    limit = threading.Timer(TRANSPORT_S, process.kill)
    limit.start()
    for line in process.stdout:
        row = json.loads(line)
        speeds[int(row["size"].split()[0]) << 10] = row["value"]
        if len(speeds) == TRANSPORT_SIZES:
            break  # Latencies and TCP come next.
    limit.cancel()
    process.kill()
    process.wait()
    if len(speeds) < TRANSPORT_SIZES:
        print(f"recovery_bench: transport_bench took longer than {TRANSPORT_S} s, so the copy has no goal", file=sys.stderr)
    return speeds if len(speeds) == TRANSPORT_SIZES else {}


class Torchrun:
    """Four workers under torchrun, and what rank 0 says of their steps."""

    def __init__(self, folder, size, tokens, failures):
        self.folder = folder
        folder.mkdir()
        model = {"width": size.width, "inner": size.inner, "layers": LAYERS, "vocabulary": VOCABULARY,
                 "samples": SAMPLES // NODES, "tokens": tokens // SAMPLES}
        words = ["--standalone", "--nproc-per-node", str(NODES), "--max-restarts", str(failures)]
        self.command = " ".join(["torchrun", *words, WORKER.name, "FOLDER", f"'{json.dumps(model)}'"])
        # In a store that outlives them, workers that are started again find the addresses of those before, and wait for ever.
        environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        with (folder / "log").open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen([os.environ["REFERENCE_PYTHON"], "-m", "torch.distributed.run", *words, str(WORKER),
                                             str(folder), json.dumps(model)], stdout=log, stderr=log, env=environment)

    def lines(self):
        return read_lines_so_far(self.folder / "steps.jsonl")

    def wait_for(self, find, what):
        """What `find` finds in the lines, once it does."""
        deadline = time.monotonic() + LONGEST_WAIT_S
        while (found := find(self.lines())) is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"torchrun: {what} did not come\n" + (self.folder / "log").read_text(encoding="utf-8")[-2000:])
            time.sleep(0.002)
        return found

    def lose_a_worker(self):
        """Seconds lost, and a usual step's."""
        began = len(self.lines())

        def newest_save(lines):
            steps = sum("step" in line for line in lines[began:])
            return lines[-1].get("saved") if steps >= STEPS_BETWEEN else None

        saved = self.wait_for(newest_save, "a checkpoint")
        usual = statistics.median([line["ms"] for line in self.lines() if "step" in line][1 - STEPS_BETWEEN:]) / 1e3
        begin = time.monotonic()
        os.kill(int((self.folder / "pid-1").read_text(encoding="utf-8")), signal.SIGKILL)
        end = self.wait_for(lambda lines: next((line["at"] for line in reversed(lines)
                                                if line.get("step", 0) > saved), None), f"step {saved + 1}")
        return end - begin - usual, usual

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()  # It ends its workers.
        self.process.wait(timeout=LONGEST_WAIT_S)
        shutil.rmtree(self.folder)


def measure_torchrun(folder, size, tokens, failures):
    """Median seconds lost per failure; None where it is not installed."""
    if not pathlib.Path(os.environ.get("REFERENCE_PYTHON", "")).is_file():
        print("recovery_bench: no torchrun here (scripts/setup --reference installs it)", file=sys.stderr)
        return None
    with Torchrun(folder / "torchrun", size, tokens, failures) as workers:
        lost, usual = zip(*(workers.lose_a_worker() for _ in range(failures)))
    text = f"{size.name}, {failures} failures"
    report("training lost per restart by torchrun", statistics.median(lost), "s", text, command=workers.command)
    report("usual step under torchrun", statistics.median(usual), "s", text, command=workers.command)
    return statistics.median(lost)


def report_losses(size, losses, speeds):
    """Of phases and copies; returns the median of what was lost."""
    lost, events, usual, _ = zip(*losses)
    moved = statistics.median(event["copy_bytes"] for event in events)
    text = f"{size.name}, {len(losses)} losses"
    phases = [sum(event[key] for key in ("detect_ms", "decide_ms", "connect_ms", "rebuild_ms")) for event in events]
    report("detect + decide + connect + rebuild", statistics.median(phases), "ms", text, GOAL_MS)
    copy = statistics.median(event["copy_bytes"] / event["copy_ms"] / 1e6 for event in events)
    text_moved = f"{text}, {moved / 1e6:.1f} MB moved"
    report("copy", statistics.median(event["copy_ms"] for event in events), "ms", text_moved)
    if speeds:
        nearest = min(speeds, key=lambda size_bytes: abs(math.log(size_bytes / size.message_bytes)))
        report("speed of the copy", copy, "GB/s", text_moved, GOAL_SPEED * speeds[nearest], "higher")
        report("transport_bench, the same path", speeds[nearest], "GB/s",
               f"messages of {nearest >> 10} KiB, the copy's of {size.message_bytes >> 10} KiB", better="higher",
               command="transport_bench")
    else:
        report("speed of the copy", copy, "GB/s", text_moved, better="higher")
    report("wait for newly dealt samples", statistics.median(event["decode_ms"] for event in events), "ms", text)
    report("replayed step", statistics.median(event["replay_ms"] for event in events) / 1e3, "s", text)
    report("usual step", statistics.median(usual), "s", text)
    return statistics.median(lost)


def report_joins(size, joins):
    in_all, entering, events, usual = zip(*joins)
    text, step = f"{size.name}, {len(joins)} joins", statistics.median(usual)
    report("training lost per join, from the node's start on", statistics.median(in_all), "s", text, step + GOAL_JOIN_S)
    report("training lost per join, in the step with which it enters", statistics.median(entering), "s", text)
    report("copy behind a join", statistics.median(event["copy_ms"] for event in events), "ms",
           f"{text}, {statistics.median(event['copy_bytes'] for event in events) / 1e6:.1f} MB moved")
    report("usual step beside joins", step, "s", text)


def measure(folder, size, losses, restarts, joins):
    write_job(folder, size)

    def each(how, name, count):
        for number in range(count):
            run = f"{name}-{number}"
            yield how(folder, run, size)
            shutil.rmtree(folder / run)

    speeds = transport_gb_per_s()
    report_joins(size, list(each(let_one_join, "joined", joins)))
    found = list(each(lose_a_node, "lost", losses))
    lost = report_losses(size, found, speeds)
    again = statistics.median(each(start_again, "again", restarts))
    replaced = statistics.median(each(replace_the_head, "head", restarts))
    by_torchrun = measure_torchrun(folder, size, tokens=found[0][3], failures=restarts)
    text = f"{size.name}, {restarts} failures"
    report("training lost per restart from a checkpoint of every step", again, "s", text)
    report("training lost per loss of the head, another one started at once", replaced, "s", text)
    text = f"{size.name}, {losses} losses"
    report("training lost per loss of a node, beside our restart", lost, "s", text, GOAL_SHARE * again)
    if by_torchrun is not None:
        report("training lost per loss of a node, beside torchrun", lost, "s", text, GOAL_SHARE * by_torchrun)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, help="where to write; default: the system's")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["10 MB", "1 GB"], help="default: 10 MB and 1 GB")
    parser.add_argument("--losses", type=int, default=20, help="of a node; default: 20")
    parser.add_argument("--losses-1gb", type=int, default=5, help="the same with 1 GB of state; default: 5")
    parser.add_argument("--restarts", type=int, default=5, help="of each kind; default: 5")
    parser.add_argument("--restarts-1gb", type=int, default=3, help="the same with 1 GB of state; default: 3")
    parser.add_argument("--joins", type=int, default=5, help="of a node; default: 5")
    parser.add_argument("--joins-1gb", type=int, default=3, help="the same with 1 GB of state; default: 3")
    kept_results.add_option(parser)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with kept_results.recorded(arguments.record, kept_results.commit_of(BINARY)), \
            tempfile.TemporaryDirectory(prefix="troupe-recovery-bench-", dir=arguments.folder) as name:
        for size in (SIZES[key] for key in arguments.sizes):
            is_large = size.name == "1 GB"
            measure(pathlib.Path(name), size, arguments.losses_1gb if is_large else arguments.losses,
                    arguments.restarts_1gb if is_large else arguments.restarts,
                    arguments.joins_1gb if is_large else arguments.joins)


if __name__ == "__main__":
    main()
