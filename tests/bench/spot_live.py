"""A job on nodes that are started and killed by hand, one process each, for spot_bench.py and recovery_jobs.py."""

import collections
import contextlib
import ctypes
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tests.support.recorded_runs import read_lines_so_far  # noqa: E402

BINARY = pathlib.Path(os.environ.get("TROUPE_BINARY", ROOT / "build/release/troupe")).resolve()
KINDS = {"lost": "a loss", "joined": "a join"}
WARM_UP = 4  # Steps that do not count.
PAUSE_S = 0.005  # Between looks at what the head wrote.


class Ended(Exception):
    """The job ended by itself, or does not begin."""


def die_with_the_bench():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: also where the bench itself is killed.


class Live:
    """A running job: its head, its nodes by their names in the trace, and when its steps ended."""

    def __init__(self, folder, name, job="job.toml", words=()):
        self.folder, self.run = folder, folder / name
        self.nodes, self.steps, self.starts, self.door = {}, {}, [], None
        self.seen, self.last = 0, 0  # Lines of metrics.jsonl, and the step of the last one.
        self.log = open(folder / f"{name}.log", "w", encoding="utf-8")
        self.head = self.spawn(["train", job, f"job.run_dir={name}", *words], {})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in [*self.nodes.values(), self.head]:
            process.kill()
        for process in [*self.nodes.values(), self.head]:
            process.wait()
        self.log.close()

    def spawn(self, words, environment):
        return subprocess.Popen([str(BINARY), *words], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.log,
                                stderr=subprocess.STDOUT, env={**os.environ, **environment}, preexec_fn=die_with_the_bench)

    def until(self, holds, seconds, what):
        """Notes when steps end while it waits; `what` tells which wait it was that had no end."""
        deadline = time.monotonic() + seconds
        while not holds():
            if self.head.poll() is not None:
                raise Ended(f"the head ended with {self.head.returncode}: {self.last_words()}")
            if time.monotonic() > deadline:
                raise Ended(f"{what}: not within {seconds:.0f} s: {self.last_words()}")
            time.sleep(PAUSE_S)
            self.look()

    def look(self):
        now = time.monotonic()
        for line in read_lines_so_far(self.run / "metrics.jsonl")[self.seen:]:
            self.seen, self.last = self.seen + 1, line["step"]
            self.steps[self.last] = (now, line["nodes"])

    def last_words(self):
        self.log.flush()
        told = pathlib.Path(self.log.name).read_text(encoding="utf-8").splitlines()
        return "\n".join([line for line in told if " step " not in line][-25:] + told[-2:])

    def begin(self, names):
        """Returns the step after which all of these nodes have trained for a while."""
        self.until((self.run / "control").exists, 60, "the head opens its door")
        self.door = json.loads((self.run / "control").read_text(encoding="utf-8"))
        for name in names:
            self.join(name)
        self.until(lambda: sum(nodes == len(names) for _, nodes in self.steps.values()) > WARM_UP, 180, "training begins")
        return self.last

    def join(self, name):
        self.starts.append(time.monotonic())
        self.nodes[name] = self.spawn(["node", "--join", self.door["local"]], {"TROUPE_KEY": self.door["key"]})

    def kill(self, name):
        process = self.nodes.pop(name)
        if process.poll() is not None:
            print(f"{name} had ended by itself with {process.returncode}", flush=True)
        process.kill()
        process.wait()

    def events(self):
        return [event for event in read_lines_so_far(self.run / "events.jsonl") if event["kind"] in KINDS]

    def joined(self):
        """How many nodes the head has said to have joined."""
        self.log.flush()
        return pathlib.Path(self.log.name).read_text(encoding="utf-8").count(") joined")

    def end(self):
        """Stops the job as a user would."""
        self.head.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.head.wait(timeout=30)
        if self.head.returncode != 75:
            print(f"the job was told to stop and its head's exit code is {self.head.returncode}, not 75")

    def took(self):
        """Of each step whose predecessor was seen too: seconds from that one's end to its own, and its nodes."""
        return {step: (end - self.steps[step - 1][0], nodes) for step, (end, nodes) in self.steps.items()
                if step - 1 in self.steps}

    def costs(self, begin, batch):
        """Behind this step: seconds lost by each kind of event; seconds from the start of nodes that joined to the end of
        the last step without them; of steps that no event disturbed, in seconds: the median by the number of nodes."""
        took, first = self.took(), {}
        for event in self.events():
            if event["step"] > begin:
                first.setdefault(event["step"], event["kind"])
        calm = collections.defaultdict(list)
        for step, (seconds, nodes) in took.items():
            if step not in first and step > begin:
                calm[nodes].append(seconds)
        sample_s = sum(map(sum, calm.values())) / sum(len(all_s) * math.ceil(batch / nodes) for nodes, all_s in calm.items())
        lost_s, waits_s = {kind: [] for kind in KINDS}, []
        for step, kind in first.items():
            if step not in took:
                continue
            seconds, nodes = took[step]
            few = len(calm[nodes]) < 3
            usual = math.ceil(batch / nodes) * sample_s if few else statistics.median(calm[nodes])
            lost_s[kind].append(seconds - usual)
            before = [at for at in self.starts if at < self.steps[step - 1][0]]
            if kind == "joined" and before:
                waits_s.append(self.steps[step - 1][0] - before[-1])
        return lost_s, waits_s, {nodes: statistics.median(all_s) for nodes, all_s in calm.items() if all_s}
