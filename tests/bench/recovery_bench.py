#!/usr/bin/python3
"""What the loss of a node costs a running job, beside starting it again from its newest checkpoint.

    recovery_bench.py [--folder DIR] [--losses N]

Text-only llms, two pipelines of two stages on 4 local nodes, 10 and 100 MB of state per copy of the model; SIGKILL to one
node at a time that changes nothing for the others but what it held. From the run's events: detect + decide + connect +
rebuild (the goal is 300 ms) and the copy, whose GB/s stand beside those of `transport_bench`'s path only in kind: it is
this machine's shared memory. By the clock: from the kill to the end of the next step, less the step itself; and the same
for a head that is killed with all its nodes and started again by the same command, with a checkpoint of every step; and for
a head that is killed alone and replaced.
Seconds of training lost per failure, medians (the goal is a tenth of the restart's).
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench"), str(ROOT / "tests" / "actors"), str(ROOT)]

from checkpoint_bench import lines, report  # noqa: E402
from whole_jobs import children  # noqa: E402

BINARY = pathlib.Path(os.environ.get("TROUPE_BINARY", ROOT / "build/release/troupe")).resolve()
GOAL_MS, GOAL_SHARE = 300, 0.1
SIZES = {"10 MB": 128, "100 MB": 400}  # Width of the llm.
JOB = """
[job]
name = "recovery-bench"
[modules.llm]
kind = "llm"
config = {{ num_hidden_layers = 4, hidden_size = {width}, intermediate_size = {wide}, num_attention_heads = 4, \
num_key_value_heads = 4, vocab_size = 512 }}
[[parallel.pipelines]]
stages = [{{node = 0, llm = [0, 3]}}, {{node = 1, llm = [3, 6]}}]
[[parallel.pipelines]]
stages = [{{node = 2, llm = [0, 3]}}, {{node = 3, llm = [3, 6]}}]
[[data.sources]]
json = "samples.json"
[train]
steps = 100000
global_batch_size = 8
microbatches = 4
[cluster]
local_nodes = 4
"""


class Job:
    def __init__(self, folder, run, *words):
        self.run = folder / run
        self.seen = 0
        self.process = subprocess.Popen([str(BINARY), "train", "job.toml", f"job.run_dir={run}", *words], cwd=folder,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def steps(self):
        path = self.run / "metrics.jsonl"
        return path.read_text(encoding="utf-8").count("\n") if path.exists() else 0

    def wait_for(self, count, seconds=120):
        deadline = time.monotonic() + seconds
        while self.steps() < count:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{self.run.name} came to no step {count}")
            time.sleep(0.002)

    def end(self):
        self.process.kill()
        self.process.wait()


def step_s(job):
    return statistics.median(line["step_ms"] for line in lines(job.run / "metrics.jsonl")[-5:]) / 1e3


def lose_a_node(folder, run):
    """Seconds lost, and the event."""
    job = Job(folder, run)
    job.wait_for(8)
    nodes, usual = children(job.process.pid), step_s(job)
    before = job.steps()
    begin = time.monotonic()
    os.kill(nodes[1], signal.SIGKILL)
    job.wait_for(before + 1)
    # The step that was under way may just have been committed: the next one is the first without the node.
    while not (job.run / "events.jsonl").exists():
        time.sleep(0.002)
    lost = time.monotonic() - begin - usual
    event = lines(job.run / "events.jsonl")[-1]
    job.end()
    return lost, event


def start_again(folder, run):
    """Seconds lost where head and nodes die and the same command goes on from a checkpoint of every step."""
    job = Job(folder, run, "checkpoint.every_steps=1", "checkpoint.keep_last=2")
    job.wait_for(8)
    usual, before = step_s(job), job.steps()
    begin = time.monotonic()
    job.end()
    job = Job(folder, run, "checkpoint.every_steps=1", "checkpoint.keep_last=2")
    job.wait_for(before + 1)
    lost = time.monotonic() - begin - usual
    job.end()
    return lost


def replace_the_head(folder, run):
    """Seconds lost where the head alone dies and the same command takes its place at once."""
    job = Job(folder, run, "cluster.head_timeout_s=60")
    job.wait_for(8)
    usual, before = step_s(job), job.steps()
    begin = time.monotonic()
    job.end()
    job = Job(folder, run, "cluster.head_timeout_s=60")
    job.wait_for(before + 2)  # One line may stand for a step that was finished before.
    lost = time.monotonic() - begin - 2 * usual
    job.process.terminate()
    job.process.wait()
    return lost


def measure(folder, size, losses):
    (folder / "job.toml").write_text(JOB.format(width=SIZES[size], wide=3 * SIZES[size]), encoding="utf-8")
    lost, again, replaced, events = [], [], [], []
    for number in range(losses):
        seconds, event = lose_a_node(folder, f"lost-{size.replace(' ', '')}-{number}")
        lost.append(seconds)
        events.append(event)
        again.append(start_again(folder, f"again-{size.replace(' ', '')}-{number}"))
        replaced.append(replace_the_head(folder, f"head-{size.replace(' ', '')}-{number}"))
    copied = statistics.median(event["copy_bytes"] for event in events)
    text = f"{size}, {copied / 1e6:.1f} MB moved, {losses} losses"
    phases = [sum(event[key] for key in ("detect_ms", "decide_ms", "connect_ms", "rebuild_ms")) for event in events]
    report("detect + decide + connect + rebuild", statistics.median(phases), "ms", text, bound=GOAL_MS)
    report("copy", statistics.median(event["copy_ms"] for event in events), "ms", text)
    report("training lost per loss of a node", statistics.median(lost), "s", text,
           bound=GOAL_SHARE * statistics.median(again))
    report("training lost per loss of the head, another one started at once", statistics.median(replaced), "s", text)
    report("training lost per restart from a checkpoint of every step", statistics.median(again), "s", text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, help="where to write; default: the system's")
    parser.add_argument("--losses", type=int, default=20)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="troupe-recovery-bench-", dir=arguments.folder) as name:
        folder = pathlib.Path(name)
        (folder / "samples.json").write_text(json.dumps(
            [{"id": str(i), "conversations": [{"from": "human", "value": "what?" * 20},
                                              {"from": "gpt", "value": f"number {i}" * 20}]} for i in range(256)]),
            encoding="utf-8")
        for size in SIZES:
            measure(folder, size, arguments.losses)


if __name__ == "__main__":
    main()
