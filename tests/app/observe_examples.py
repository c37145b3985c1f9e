#!/usr/bin/python3
"""The followers of a run hand every step on once, while the file grows, is replaced by a resume, or is cut.

    observe_examples.py [CASE...]          prints `N passed, M failed, K skipped` last

The libraries are stand-ins that write down what they are told: neither TensorBoard nor Weights & Biases is needed.
"""

import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OBSERVE = ROOT / "examples" / "observe"
sys.path[:0] = [str(ROOT / "tests" / "support"), str(OBSERVE)]
from follow import follow
from run_cases import Failure, expect, run_cases

WITHIN_S = 30  # What only a failure takes.

TELL = """
import json, os
def tell(*words):
    with open(os.environ["TOLD"], "a") as file:
        file.write(json.dumps(words) + "\\n")
"""
STAND_INS = {
    "tensorboardX.py": TELL + """
class SummaryWriter:
    def __init__(self, folder, purge_step, flush_secs, filename_suffix):
        self.suffix = filename_suffix
        tell("open", folder, purge_step, filename_suffix)
    def add_scalar(self, name, value, step):
        tell("scalar", name, value, step)
    def close(self):
        tell("close", self.suffix)
""",
    "wandb.py": TELL + """
class Run:
    def __init__(self, id):
        before = json.loads(os.environ.get("BEFORE", "{}"))
        self.resumed, self.summary = bool(before), before
    def define_metric(self, name, step_metric=None):
        tell("metric", name, step_metric)
    def log(self, figures):
        tell("log", figures)
    def finish(self):
        tell("finish")
def init(project, id, name, resume):
    tell("init", project, id, name, resume)
    return Run(id)
""",
}
MISSING = dict.fromkeys(("tensorboardX.py", "torch.py", "wandb.py"), "raise ImportError('not installed')\n")


def expect_equal(found, expected):
    expect(found == expected, f"{found}\ninstead of {expected}")


def line(step, generation=1, **more):
    return json.dumps({"step": step, "loss": 10 * generation + step, "generation": generation, **more}) + "\n"


def takes(process, wanted):
    """Whether it has a handler for this signal: before that it would just die of it."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return int(status.split("SigCgt:")[1].split()[0], 16) >> (wanted - 1) & 1


class Bench:
    """A run's folder, and followers of it."""

    def __init__(self, folder):
        self.run, self.library, self.told_file = folder / "run", folder / "library", folder / "told"
        self.metrics = self.run / "metrics.jsonl"
        self.run.mkdir()
        self.library.mkdir()
        self.give(STAND_INS)
        self.processes = []

    def give(self, modules):
        for name, text in modules.items():
            (self.library / name).write_text(text, encoding="utf-8")

    def append(self, *texts):
        with open(self.metrics, "a", encoding="utf-8") as file:
            file.write("".join(texts))

    def replace(self, *texts):
        """As a run does that is resumed: the lines that stay, under another inode."""
        beside = self.run / "beside"
        beside.write_text("".join(texts), encoding="utf-8")
        beside.rename(self.metrics)

    def start(self, script, *words, **variables):
        env = {**os.environ, "PYTHONPATH": str(self.library), "TOLD": str(self.told_file), **variables}
        process = subprocess.Popen([sys.executable, str(OBSERVE / script), str(self.run), "--poll", "0.02", *words],
                                   env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def once(self, script, *words, code=0, **variables):
        """Runs a follower to its end; what it said on stderr."""
        _, err = self.end(self.start(script, "--once", *words, **variables), code)
        return err

    def end(self, process, code=0):
        try:
            out, err = process.communicate(timeout=WITHIN_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"it did not end within {WITHIN_S} s") from None
        expect(process.returncode == code and "Traceback" not in err, f"exit {process.returncode}, not {code}\n{err}")
        return out, err

    def stop(self, process, wanted=signal.SIGTERM):
        deadline = time.monotonic() + WITHIN_S
        while not takes(process, wanted):
            expect(time.monotonic() < deadline and process.poll() is None, "it never took signals")
            time.sleep(0.02)
        process.send_signal(wanted)
        self.end(process)

    def told(self, kind):
        if not self.told_file.exists():
            return []
        whole = self.told_file.read_text(encoding="utf-8").rpartition("\n")[0]
        return [words[1:] for words in map(json.loads, whole.splitlines()) if words[0] == kind]

    def wait_until_told(self, kind, count):
        deadline = time.monotonic() + WITHIN_S
        while len(self.told(kind)) < count:
            expect(time.monotonic() < deadline, f"{self.told(kind)} after {WITHIN_S} s, not {count} of them")
            time.sleep(0.01)

    def losses(self):
        """(step, loss) as TensorBoard was told them."""
        return [(step, value) for name, value, step in self.told("scalar") if name == "loss"]

    def sent(self):
        """(generation, step) as W&B was told them."""
        return [(figures["generation"], figures["step"]) for figures, in self.told("log")]

    def kill_all(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


# ---- which lines ----------------------------------------------------------------------------------


def whole_lines_are_taken_once_as_the_file_grows(bench):
    steps = follow(bench.run, poll_s=0.01)
    bench.append(line(1), line(2)[:-9])
    expect_equal(next(steps)["step"], 1)
    bench.append(line(2)[-9:-1])  # Whole but for its end.
    process = bench.start("tensorboard_follow.py")
    bench.wait_until_told("scalar", 2)
    time.sleep(0.2)
    expect_equal(bench.losses(), [(1, 11)])
    bench.append("\n", line(3))
    expect_equal([next(steps)["step"], next(steps)["step"]], [2, 3])
    bench.wait_until_told("scalar", 6)
    bench.stop(process)
    expect_equal(bench.losses(), [(1, 11), (2, 12), (3, 13)])


def a_resume_repeats_nothing_and_sends_again_what_is_trained_again(bench):
    steps = follow(bench.run, poll_s=0.01)
    bench.append(*map(line, range(1, 7)))
    expect_equal([next(steps)["step"] for _ in range(6)], [1, 2, 3, 4, 5, 6])
    bench.replace(*map(line, range(1, 5)))
    bench.append(line(5, 2))
    expect_equal(next(steps), json.loads(line(5, 2)))
    bench.replace(*map(line, range(1, 4)), line(4, 3))  # Again, before the step that it had come to.
    expect_equal(next(steps), json.loads(line(4, 3)))


def a_follower_bears_that_the_file_is_cut_or_away(bench):
    process = bench.start("tensorboard_follow.py")  # Before the run has begun.
    bench.append(line(1), line(2), '{"step": 3, "lo')
    bench.wait_until_told("scalar", 4)
    bench.metrics.write_text(line(1), encoding="utf-8")
    time.sleep(0.2)
    bench.metrics.unlink()
    time.sleep(0.2)
    bench.append(line(1), line(2), line(3), "no JSON\n", "[4]\n", line(5))
    bench.wait_until_told("scalar", 8)
    bench.stop(process, signal.SIGINT)
    expect_equal(bench.losses(), [(1, 11), (2, 12), (3, 13), (5, 15)])
    expect_equal(bench.told("close"), [[".0001"]])


def another_run_in_the_folder_is_not_mixed_with_the_first(bench):
    process = bench.start("tensorboard_follow.py")
    bench.append(line(1), line(2))
    bench.wait_until_told("scalar", 4)
    bench.replace(line(1, loss=0.5), line(2), line(3))
    _, err = bench.end(process, code=1)
    expect("another run has begun" in err and "fix:" in err, err)
    expect_equal(bench.losses(), [(1, 11), (2, 12)])
    expect_equal([step["step"] for step in follow(bench.run, once=True)], [1, 2, 3])


# ---- TensorBoard ----------------------------------------------------------------------------------


def tensorboard_gets_numbers_and_a_new_file_where_steps_go_back(bench):
    bench.append(line(1, skipped="no trained tokens", lr=None, is_last=False, step_ms=1.5), line(2), line(3))
    process = bench.start("tensorboard_follow.py")
    bench.wait_until_told("scalar", 7)
    bench.replace(line(1, skipped="no trained tokens", lr=None, is_last=False, step_ms=1.5))
    bench.append(line(2, 2))
    bench.wait_until_told("scalar", 9)
    bench.stop(process)
    expect_equal(bench.told("scalar")[:3], [["loss", 11, 1], ["generation", 1, 1], ["step_ms", 1.5, 1]])
    expect_equal(bench.losses(), [(1, 11), (2, 12), (3, 13), (2, 22)])
    folder = str(bench.run / "tensorboard")
    expect_equal(bench.told("open"), [[folder, 1, ".0001"], [folder, 2, ".0002"]])
    expect_equal(bench.told("close"), [[".0001"], [".0002"]])


def once_writes_what_is_there_and_ends(bench):
    bench.append(line(1), line(2), line(3)[:-1])
    bench.once("tensorboard_follow.py", "--to", str(bench.run / "elsewhere"))
    expect_equal(bench.losses(), [(1, 11), (2, 12)])
    expect_equal([words[0] for words in bench.told("open")], [str(bench.run / "elsewhere")])


# ---- Weights & Biases -----------------------------------------------------------------------------


def wandb_gets_steps_as_a_figure_that_may_go_back(bench):
    process = bench.start("wandb_follow.py", "--project", "shapes")
    bench.append(line(1), line(2), line(3))
    bench.wait_until_told("log", 3)
    bench.replace(line(1))
    bench.append(line(2, 2), line(3, 2))
    bench.wait_until_told("log", 5)
    bench.stop(process)
    expect_equal(bench.sent(), [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3)])
    expect_equal(bench.told("metric"), [["step", None], ["*", "step"]])
    expect_equal(len(bench.told("finish")), 1)
    ((project, _, name, resume),) = bench.told("init")
    expect_equal((project, name, resume), ("shapes", "run", "allow"))


def a_run_at_wandb_goes_on_where_it_was(bench):
    bench.append(line(1), line(2), line(3, 2), line(4, 2))
    bench.once("wandb_follow.py", BEFORE=json.dumps({"step": 3, "generation": 2, "loss": 1}))
    expect_equal(bench.sent(), [(2, 4)])
    bench.replace(line(1, loss=0.5))
    bench.once("wandb_follow.py")
    bench.once("wandb_follow.py", "--id", "mine")
    ids = [words[1] for words in bench.told("init")]
    expect(ids[0] != ids[1] and ids[0].startswith("run-") and ids[2] == "mine", f"{ids}")


# ---- what is missing ------------------------------------------------------------------------------


def a_library_that_is_missing_is_named_with_how_to_get_it(bench):
    bench.give(MISSING)
    bench.append(line(1))
    for script in ("tensorboard_follow.py", "wandb_follow.py"):
        err = bench.once(script, code=1)
        expect("cannot be imported" in err or "can be imported" in err, err)
        expect("fix: pip install" in err and len(err.splitlines()) == 2, err)


def a_run_that_is_not_there_is_told(bench):
    for script in ("tensorboard_follow.py", "wandb_follow.py"):
        err = bench.once(script, code=1)
        expect("metrics.jsonl: nothing there" in err and "fix: name the folder" in err, err)
    for script in ("tensorboard_follow.py", "wandb_follow.py"):
        bench.stop(bench.start(script))  # While it waits for the first step.
    expect_equal(bench.told("init") + bench.told("open"), [])


def is_case(value):
    return inspect.isfunction(value) and list(inspect.signature(value).parameters) == ["bench"]


def main(wanted):
    with tempfile.TemporaryDirectory(prefix="troupe-observe-") as base:

        def run(case):
            bench = Bench(pathlib.Path(tempfile.mkdtemp(dir=base)))
            try:
                case(bench)
            finally:
                bench.kill_all()

        cases = [value for value in globals().values() if is_case(value)]
        return run_cases([case for case in cases if not wanted or case.__name__ in wanted], run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
