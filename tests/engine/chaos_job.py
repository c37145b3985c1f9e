"""A job whose head and nodes are all started by hand, on this machine or on hosts of it: what chaos.py does things to.

Everything that waits passes by `tick`, which does what was put off (a process wakes, a link is mended) and takes note of
events before a head that comes later lays them aside.
"""

import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

from left_behind import processes_that_name
from run_cases import Failure, expect
from whole_jobs import alive, run_quietly

KEY = "5a" * 32
STOP_TIMEOUT_S = 20
# How an event says that the job goes on without somebody.
LOSSES = ("lost", "head-lost", "resumed")


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "TROUPE_KEY": KEY}


class Machine:
    """Where a job runs without hosts of its own: its links cannot be cut."""

    address = "127.0.0.1"

    def prefix(self, _):
        return []


class Link:
    """Between the first of two hosts, which carries the bridge, and the second."""

    address = "10.77.0.1"

    def __init__(self, hosts):
        self.hosts, self.prefix = hosts, hosts.prefix
        self.near, self.far = ["ip", "-n", hosts.names[0]], ["ip", "-n", hosts.names[1]]
        self.ends = ((hosts.names[0], "tp2"), (hosts.names[1], "tv2"))

    def cut(self, is_silent):
        """Nothing passes in either direction; unless it is silent, both ends notice that the cable is out."""
        self._do(*self.near, "link", "set", "tp2", *(["nomaster"] if is_silent else ["down"]))

    def keep_near_end_up(self):
        """Until it is mended the first host's end runs, as one whose switch has other cables: whoever starts with no network at all is
        reached by nobody else for as long as it runs (README, "When machines fail"), which is not what is tried here."""
        self._do(*self.near, "link", "add", "tp3", "type", "veth", "peer", "name", "tv3")
        for device in ("tp3", "tv3"):
            self._do(*self.near, "link", "set", device, "up")
        self._do(*self.near, "link", "set", "tp3", "master", self.hosts.bridge)

    def slow(self, megabits):
        for host, device in self.ends:
            self._do("tc", "-n", host, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{megabits}mbit",
                     "burst", "256kb", "latency", "200ms")

    def mend(self):
        self._do(*self.near, "link", "set", "tp2", "master", self.hosts.bridge)
        self._do(*self.near, "link", "set", "tp2", "up")
        run_quietly(*self.near, "link", "del", "tp3")  # There may be none.
        for host, device in self.ends:
            run_quietly("tc", "-n", host, "qdisc", "del", "dev", device, "root")  # There may be none.

    @staticmethod
    def _do(*words):
        expect(run_quietly(*words), f"this machine refuses: {' '.join(words)}")


class Node:
    """A process of `troupe node`. `is_stopped`: it sleeps now; `ends_by`: it is out of the job and must have ended then."""

    def __init__(self, process, host, log):
        self.process, self.host, self.log = process, host, log
        self.is_stopped, self.ends_by = False, None

    @property
    def pid(self):
        return self.process.pid

    def runs(self):
        return self.process.poll() is None


class ChaosJob:
    def __init__(self, binary, folder, words, place, patience):
        self.folder, self.run, self.words, self.place, self.patience = folder, folder / "run", words, place, patience
        folder.mkdir()
        self.binary = folder / "troupe"  # Of this job: whose processes they are shows in their command lines.
        self.binary.symlink_to(binary)
        self.nodes, self.head = [], None
        self.history, self._seen, self._later = [], set(), []

    def _popen(self, words, host, log):
        with open(log, "a", encoding="utf-8") as file:
            return subprocess.Popen([*self.place.prefix(host), str(self.binary), *words], stdin=subprocess.DEVNULL, stdout=file,
                                    stderr=subprocess.STDOUT, env=environment())

    def start_head(self):
        """Always by the same command: one that comes after another gathers the nodes."""
        self.head = self._popen(["train", *self.words, f"job.run_dir={self.run}"], 0, self.folder / "head.log")

    def start_node(self, address, host=0, number=None):
        log = self.folder / f"node-{len(self.nodes)}.log"
        wanted = [] if number is None else ["--node", str(number)]
        node = Node(self._popen(["node", "--join", address, "--timeout", str(60 * self.patience), *wanted], host, log), host, log)
        self.nodes.append(node)
        return node

    # ---- what is seen of it -----------------------------------------------------------------------

    def last_step(self):
        """Of metrics.jsonl, of which only the end is read."""
        try:
            with open(self.run / "metrics.jsonl", "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 15)))
                lines = file.read().rpartition(b"\n")[0].splitlines()
        except FileNotFoundError:
            return 0
        return json.loads(lines[-1])["step"] if lines else 0

    def saved_steps(self):
        names = (path.parent.name[5:] for path in self.run.glob("checkpoints/step-*/manifest.json"))
        return sorted(int(name) for name in names if name.isdigit())

    def status(self):
        """What `troupe ctl` says; None where no head answers."""
        done = self.ctl("status", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def ctl(self, *words):
        return subprocess.run([*self.place.prefix(0), str(self.binary), "ctl", str(self.run), *words], capture_output=True, text=True,
                              timeout=60 * self.patience, check=False)

    def members(self, status):
        """Nodes that take part, by their numbers."""
        by_pid = {node.pid: node for node in self.nodes if node.runs()}
        return {line["node"]: by_pid[line["pid"]] for line in status["nodes"]
                if line["state"] in ("working", "standing by", "spare", "waiting for work") and line["pid"] in by_pid}

    def last_words(self):
        with open(self.folder / "head.log", encoding="utf-8", errors="replace") as file:
            return file.read()[-2500:]

    # ---- waiting ------------------------------------------------------------------------------------

    def later(self, seconds, action):
        """Does it then, or when the job is closed."""
        self._later.append((time.monotonic() + seconds, action))

    def is_quiet(self):
        """Nobody sleeps, and no link is other than it should be."""
        return not self._later

    def tick(self):
        for entry in [entry for entry in self._later if entry[0] <= time.monotonic()]:
            self._later.remove(entry)
            entry[1]()
        try:
            text = (self.run / "events.jsonl").read_text(encoding="utf-8").rpartition("\n")[0]
        except FileNotFoundError:
            text = ""
        for line in text.splitlines():
            if line not in self._seen:
                self._seen.add(line)
                self.history.append(json.loads(line))

    def wait_until(self, is_so, what, within):
        """Seconds until it was so."""
        begin = time.monotonic()
        while True:
            self.tick()
            if is_so():
                return time.monotonic() - begin
            expect(self.head.poll() is None, f"the head ended with {self.head.returncode} before: {what}\n{self.last_words()}")
            expect(time.monotonic() < begin + within, f"not within {within:.0f} s: {what}\n{self.last_words()}")
            time.sleep(0.03)

    def sleep(self, seconds):
        until = time.monotonic() + seconds
        self.wait_until(lambda: time.monotonic() >= until, "a pause", seconds + 5)

    def pass_without_head(self, seconds):
        """What was put off is done, also while no head is there."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tick()
            time.sleep(0.03)

    # ---- its end ------------------------------------------------------------------------------------

    def lost_since(self, count, number):
        """Whether the job went on without this node after so many events of its history."""
        return any(event["kind"] in LOSSES and (number in event["nodes"] or event["kind"] == "resumed") for event in self.history[count:])

    def expect_ended(self):
        """Who is out of the job has left within its time."""
        for node in self.nodes:
            late = node.runs() and node.ends_by is not None and time.monotonic() > node.ends_by
            expect(not late, f"process {node.pid}, which the job goes on without, does not end:\n"
                             f"{node.log.read_text(encoding='utf-8', errors='replace')[-1500:]}")

    def stop(self):
        """It saves and ends, and so do all of its nodes; returns the step that was saved."""
        expect(self.ctl("stop").returncode == 0, f"it does not take the word to stop\n{self.last_words()}")
        try:
            code = self.head.wait(timeout=self.patience * (STOP_TIMEOUT_S + 10))
        except subprocess.TimeoutExpired:
            raise Failure(f"it does not stop\n{self.last_words()}") from None
        expect(code == 75, f"exit {code} instead of 75\n{self.last_words()}")
        deadline = time.monotonic() + 10 * self.patience
        while any(node.runs() for node in self.nodes):
            left = [node.pid for node in self.nodes if node.runs()]
            expect(time.monotonic() < deadline, f"nodes outlive the job: processes {left}")
            time.sleep(0.05)
        self.tick()
        return self.saved_steps()[-1]

    def close(self):
        """On every way out: nothing of the job stays on the machine."""
        while self._later:
            try:
                self._later.pop()[1]()
            except (Failure, OSError):  # The link, or the process, has gone.
                continue
        for process in [self.head, *(node.process for node in self.nodes)]:
            if process and process.poll() is None:
                process.kill()
                process.wait()
        deadline = time.monotonic() + 10
        while (left := processes_that_name(self.folder)) and time.monotonic() < deadline:
            for pid in left:  # What its processes started.
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


TCP_STATES = {"01": "established", "02": "connecting", "08": "left by its peer", "0A": "listening"}


def tcp_states(pid):
    """By the numbers of the sockets, of all in the process's network namespace."""
    lines = pathlib.Path(f"/proc/{pid}/net/tcp").read_text(encoding="utf-8").splitlines()[1:]
    return {fields[9]: TCP_STATES.get(fields[3], "ending") for fields in map(str.split, lines)}


def kind_of_descriptor(target, states):
    """`TCP established`, `socket`, `eventpoll`, `pidfd`, `pipe`, or the folder of a file: /dev/shm is the transport's."""
    if target.startswith("/"):
        return os.path.dirname(target)
    kind, _, name = target.partition(":")
    name = name.strip("[]")
    if kind == "socket" and name in states:
        return f"TCP {states[name]}"
    return name if kind == "anon_inode" else kind


def kinds_of_descriptors(pid):
    """How many a process has open of each kind."""
    states, kinds = tcp_states(pid), collections.Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # Closed meanwhile.
            kinds[kind_of_descriptor(os.readlink(f"/proc/{pid}/fd/{name}"), states)] += 1
    return kinds


def held_by(pid):
    """MiB that a process holds and no file does, shared memory included; how many descriptors and threads; descriptors by their kinds."""
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines())
    kib = sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))
    kinds = kinds_of_descriptors(pid)
    return kib / 1024, kinds.total(), int(fields["Threads"]), kinds
