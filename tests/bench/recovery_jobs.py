"""Jobs of ours that lose a node, the head or both, or gain a node, for recovery_bench.py: how many seconds of training that costs."""

import dataclasses
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench"), str(ROOT / "tests" / "actors"), str(ROOT / "tests" / "support")]

from recorded_runs import read_lines_so_far  # noqa: E402
from spot_live import Live  # noqa: E402
from whole_jobs import children  # noqa: E402

BINARY = pathlib.Path(os.environ.get("TROUPE_BINARY", ROOT / "build/release/troupe")).resolve()
LAYERS, VOCABULARY, SAMPLES, NODES = 4, 512, 8, 4
SAVE_EACH_STEP = ("checkpoint.every_steps=1", "checkpoint.keep_last=2")
LONGEST_WAIT_S = 300


@dataclasses.dataclass(frozen=True)
class Size:
    """An llm, named after its state in fp32: values and two moments of one copy."""
    name: str
    width: int
    words: int  # How often a sample says its own.
    warm_up: int  # Steps before something is killed.
    set_up_s: int  # Four nodes have made the model by then, on busy cores too.

    @property
    def inner(self):
        return 3 * self.width

    @property
    def message_bytes(self):
        """Most of what moves comes in messages of this size: the two moments of a matrix of the MLP."""
        return 2 * 4 * self.width * self.inner


SIZES = {size.name: size for size in (Size("10 MB", 128, 20, 8, 10), Size("100 MB", 400, 20, 8, 10),
                                     Size("1 GB", 1280, 1, 5, 60))}

JOB = """
[job]
name = "recovery-bench"
[modules.llm]
kind = "llm"
config = {{ num_hidden_layers = {layers}, hidden_size = {width}, intermediate_size = {inner}, num_attention_heads = 4, \
num_key_value_heads = 4, vocab_size = {vocabulary} }}
[[parallel.pipelines]]
stages = [{{node = 0, llm = [0, 3]}}, {{node = 1, llm = [3, 6]}}]
[[parallel.pipelines]]
stages = [{{node = 2, llm = [0, 3]}}, {{node = 3, llm = [3, 6]}}]
[[data.sources]]
json = "samples.json"
[train]
steps = 100000
global_batch_size = {samples}
microbatches = 4
[cluster]
local_nodes = {nodes}
join_timeout_s = 300
"""

# Any number of nodes, and one may be lost: the planner lays it out, and whoever joins takes over what standbys would.
JOB_TO_JOIN = JOB.split("[[parallel.pipelines]]", maxsplit=1)[0] + "[[data.sources]]" + JOB.split("[[data.sources]]")[1]
JOINED_SAMPLES, JOINED_MICROBATCHES = 20, 2  # Two samples for each of five pipelines at least.


def write_job(folder, size):
    (folder / "samples.json").write_text(json.dumps(
        [{"id": str(i), "conversations": [{"from": "human", "value": "what?" * size.words},
                                          {"from": "gpt", "value": f"number {i}" * size.words}]} for i in range(256)]),
        encoding="utf-8")
    for name, job in (("job.toml", JOB), ("join.toml", JOB_TO_JOIN)):
        (folder / name).write_text(job.format(layers=LAYERS, width=size.width, inner=size.inner, vocabulary=VOCABULARY,
                                              samples=SAMPLES, nodes=NODES), encoding="utf-8")


class Job:
    def __init__(self, folder, run, *words):
        self.run = folder / run
        self.process = subprocess.Popen([str(BINARY), "train", "job.toml", f"job.run_dir={run}", *words], cwd=folder,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def steps(self):
        return read_lines_so_far(self.run / "metrics.jsonl")

    def newest_step(self):
        """A job that goes on repeats steps that no checkpoint had: what counts is the line that came last."""
        steps = self.steps()
        return steps[-1]["step"] if steps else 0

    def usual_s(self):
        return statistics.median(line["step_ms"] for line in self.steps()[-4:]) / 1e3

    def events(self, kind):
        return [event for event in read_lines_so_far(self.run / "events.jsonl") if event["kind"] == kind]

    def wait_until(self, is_so, what):
        deadline = time.monotonic() + LONGEST_WAIT_S
        while not is_so():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise SystemExit(f"{self.run.name}: {what} did not come\n{self.last_words()}")
            time.sleep(0.002)

    def wait_for_step(self, step):
        self.wait_until(lambda: self.newest_step() >= step, f"step {step}")

    def last_words(self):
        log = self.run / "train.log"
        return log.read_text(encoding="utf-8")[-2000:] if log.exists() else ""

    def end(self):
        self.process.kill()
        self.process.wait()


def lose_a_node(folder, run, size):
    """Seconds lost, the event, and a usual step's seconds and tokens."""
    job = Job(folder, run)
    job.wait_for_step(size.warm_up - 1)
    nodes = children(job.process.pid)
    job.wait_for_step(size.warm_up)
    usual, begin = job.usual_s(), time.monotonic()
    os.kill(nodes[1], signal.SIGKILL)
    # Told when the first step without the node is at its end, whether the one under way was finished before or not.
    job.wait_until(lambda: job.events("lost"), "the event of the loss")
    lost = time.monotonic() - begin - usual
    event, tokens = job.events("lost")[0], job.steps()[0]["tokens"]
    job.end()
    if event["nodes"] != [1]:
        raise SystemExit(f"{run}: lost nodes {event['nodes']} instead of 1: {event['why']}")
    return lost, event, usual, tokens


def start_again(folder, run, size):
    """Seconds lost where head and nodes die just after a save and the same command goes on from it."""
    job = Job(folder, run, *SAVE_EACH_STEP)
    job.wait_for_step(size.warm_up)
    saves = len(job.events("checkpoint"))
    job.wait_until(lambda: len(job.events("checkpoint")) > saves, "a checkpoint")
    usual, before, begin = job.usual_s(), job.newest_step(), time.monotonic()
    job.end()
    job = Job(folder, run, *SAVE_EACH_STEP)
    job.wait_for_step(before + 1)
    lost = time.monotonic() - begin - usual
    job.end()
    return lost


def replace_the_head(folder, run, size):
    """Seconds lost where the head alone dies and the same command takes its place at once."""
    job = Job(folder, run, "cluster.head_timeout_s=60")
    job.wait_for_step(size.warm_up)
    usual, before, begin = job.usual_s(), job.newest_step(), time.monotonic()
    job.end()
    job = Job(folder, run, "cluster.head_timeout_s=60")
    job.wait_for_step(before + 2)  # Nodes may finish the one under way without a head.
    lost = time.monotonic() - begin - 2 * usual
    job.process.terminate()
    job.process.wait()
    return lost


def let_one_join(folder, run, size):
    """Seconds lost in all from the joiner's start on; those of the step with which it enters; the event; a usual step's."""
    words = [f"train.global_batch_size={JOINED_SAMPLES}", f"train.microbatches={JOINED_MICROBATCHES}", f"cluster.nodes={NODES + 1}",
             f"cluster.min_nodes={NODES}", f"cluster.join_timeout_s={size.set_up_s}",  # Then it begins without the last one.
             "cluster.local_nodes=0", "cluster.fault_tolerance=1"]
    with Live(folder, run, "join.toml", words) as live:
        before = live.begin([f"first-{number}" for number in range(NODES)])
        usual = statistics.median(seconds for seconds, _ in live.took().values())
        begin = live.steps[before][0]
        live.join("last")
        live.until(lambda: live.events() and live.events()[0]["step"] in live.steps, LONGEST_WAIT_S, "a node joins")
        event = live.events()[0]
        step, end = event["step"], live.steps[event["step"]][0]
        return end - begin - (step - before) * usual, end - live.steps[step - 1][0] - usual, event, usual
