"""What scripts about whole jobs share: the demo as a job, its processes, and how they are seen to end."""

import contextlib
import inspect
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from drawn_cases import named_or_third
from recorded_runs import read_lines_so_far
from run_cases import Failure, Skipped, expect, run_cases

JOB = ROOT / "configs" / "demo.toml"
END_WITHIN_S = 5


class Bench:
    """The binary, the demo's data, and a folder for one case."""

    def __init__(self, binary, data, folder):
        self.binary, self.data, self.folder = binary, data, folder
        self.run_dir = folder / "run"
        self.key = None
        self.processes = []

    def command(self, *overrides, steps=1000):
        sources = f'data.sources=[{{json="{self.data}/samples.json"}}]'
        profile = f"scheduler.profile={self.data}/profile.json"
        return [str(self.binary), "train", str(JOB), sources, f"job.run_dir={self.run_dir}", profile,
                f"train.steps={steps}", *([f"cluster.key={self.key}"] if self.key else []), *overrides]

    def use_key(self):
        """Head and nodes use a key of their own from here on, as a job that other machines join must."""
        self.key = self.folder / "job.key"
        subprocess.run([str(self.binary), "key", "new", str(self.key)], check=True, capture_output=True)

    def popen(self, command, env):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                   env={**os.environ, **env})
        self.processes.append(process)
        return process

    def kill_all(self):
        """Ends what a failed case left behind; nodes of a head go with it."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()

    def start(self, *overrides, steps=1000, prefix=(), env={}):
        return self.popen([*prefix, *self.command(*overrides, steps=steps)], env)

    def node(self, address, *flags, prefix=(), env={}):
        key = ["--key", str(self.key)] if self.key else []
        return self.popen([*prefix, str(self.binary), "node", "--join", address, *key, *flags], env)

    def own_data(self):
        """A job file for one node, and its own copy of the list of samples."""
        samples = self.folder / "samples.json"
        shutil.copy(self.data / "samples.json", samples)
        job = self.folder / "own.toml"
        job.write_text(f'extends = "{JOB}"\n[[data.sources]]\njson = "{samples}"\nmedia = "{self.data}"\n',
                       encoding="utf-8")
        return job, samples

    def metrics(self):
        return read_lines_so_far(self.run_dir / "metrics.jsonl")

    def wait_for_steps(self, count, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if len(self.metrics()) >= count:
                return
            time.sleep(0.05)
        raise Failure(f"no {count} steps within {seconds} s")


def children(pid):
    """Process ids of the node processes that a head started, in order of their node ids."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--parent" in words and words[words.index(b"--parent") + 1] == str(pid).encode():
            found[int(words[words.index(b"--node") + 1])] = int(entry.name)
    return [found[node] for node in sorted(found)]


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
        return state != "Z"
    except OSError:
        return False


def listening_sockets(pid):
    """(host, port) of each TCP socket at which a process listens, in its own network namespace."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            name = os.readlink(entry)
            if name.startswith("socket:["):
                inodes.add(name[8:-1])
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
            words = line.split()
            if words[3] != "0A" or words[9] not in inodes:
                continue
            host, port = words[1].split(":")
            # Words of four bytes, each as this machine orders them.
            packed = b"".join(struct.pack("=I", int(host[i:i + 8], 16)) for i in range(0, len(host), 8))
            found.append((socket.inet_ntop(family, packed), int(port, 16)))
    return found


def expect_none_left(pids, within=END_WITHIN_S):
    deadline = time.monotonic() + within
    while any(alive(pid) for pid in pids):
        expect(time.monotonic() < deadline, f"processes left behind: {[p for p in pids if alive(p)]}")
        time.sleep(0.05)


def finish(process, within):
    """(seconds, stdout, stderr) of a process that must end by itself."""
    begin = time.monotonic()
    try:
        out, err = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failure(f"did not end within {within} s")
    return time.monotonic() - begin, out, err


def ended_with(process, within):
    try:
        return process.wait(timeout=within)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failure(f"did not end within {within} s") from None


def expect_end(process, code, words, within=END_WITHIN_S):
    _, out, err = finish(process, within)
    expect(process.returncode == code, f"exit {process.returncode}, expected {code}\n{out[-800:]}{err[-800:]}")
    for word in words:
        expect(word in err, f"'{word}' is missing on stderr:\n{err[-800:]}")


class lines_of(threading.Thread):
    """What a long run writes to stdout, read all the while, so that its pipe never fills."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self.process, self.lines = process, []
        self.start()

    def run(self):
        self.lines.extend(self.process.stdout)

    def text(self):
        """All of it. The process has ended."""
        self.join()
        return "".join(self.lines)


# A line of the log as a user sees it; one may stand farther in.
OWN_LINE = re.compile(r"\d\d:\d\d:\d\d \[head\] +\S")
# What libraries call themselves; users are told about nodes.
LIBRARIES = ("CAF", "caf::", "UCX", "UCS", "ucp_", "uct_", "OpenSSL", "SSL", "terminate called")


def expect_own_lines(out, err, reason=()):
    """The whole output is the engine's: lines of its log, and on stderr nothing but the reason of its end."""
    foreign = [line for line in out.splitlines() if not OWN_LINE.match(line)]
    expect(not foreign, f"lines that no log of ours has: {foreign}")
    lines = err.splitlines()
    expect(len(lines) == len(reason) and all(word in line for word, line in zip(reason, lines)),
           f"stderr has other lines than the reason, {reason}:\n{err}")
    expect_no_library_speaks(out + err)


def expect_no_library_speaks(said):
    named = [line for line in said.splitlines() if any(word in line for word in LIBRARIES)]
    expect(not named, f"libraries speak: {named}")


TWO_NODES = ("cluster.nodes=2", "cluster.local_nodes=0",
             "parallel.pipelines=[{stages=[{node=0,vision=\"all\",audio=\"all\"},{node=1,llm=\"all\"}]}]")


# Every node has the only copy of something.
ONE_PIPELINE = ('parallel.pipelines=[{stages=[{node=0,vision="all",audio="all"},{node=1,llm=[0,2]},{node=2,llm=[2,4]},'
                "{node=3,llm=[4,6]}]}]")


def run_quietly(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False).returncode == 0


class Hosts:
    """Hosts in network namespaces of this machine, joined by a bridge of their own."""

    def __init__(self, count):
        self.names = [f"troupe-{os.getpid()}-{i}" for i in range(count)]
        self.bridge = f"trp{os.getpid() % 100000}"

    def __enter__(self):
        if os.geteuid() != 0 or not shutil.which("ip") or not run_quietly("ip", "netns", "add", self.names[0]):
            raise Skipped("needs root and network namespaces")
        switch = self.names[0]  # The first host carries the bridge.
        for name in self.names[1:]:
            run_quietly("ip", "netns", "add", name)
        inside = ["ip", "-n", switch]
        run_quietly(*inside, "link", "add", self.bridge, "type", "bridge")
        run_quietly(*inside, "addr", "add", "10.77.0.1/24", "dev", self.bridge)
        run_quietly(*inside, "link", "set", self.bridge, "up")
        run_quietly(*inside, "link", "set", "lo", "up")
        for i, name in enumerate(self.names[1:], start=2):
            run_quietly("ip", "-n", name, "link", "set", "lo", "up")
            run_quietly("ip", "link", "add", f"tv{i}", "netns", name, "type", "veth", "peer", "name", f"tp{i}",
                        "netns", switch)
            run_quietly("ip", "-n", name, "addr", "add", f"10.77.0.{i}/24", "dev", f"tv{i}")
            run_quietly("ip", "-n", name, "link", "set", f"tv{i}", "up")
            run_quietly(*inside, "link", "set", f"tp{i}", "master", self.bridge)
            if not run_quietly(*inside, "link", "set", f"tp{i}", "up"):
                raise Skipped("this kernel has no veth or bridge devices")
        return self

    def __exit__(self, *_):
        for name in self.names:
            run_quietly("ip", "netns", "del", name)

    def prefix(self, index):
        return ["ip", "netns", "exec", self.names[index]]


def port_of(head):
    """Reads the head's lines up to the one that says where to join."""
    for line in head.stdout:
        found = re.search(r"troupe node --join (\S+)", line)
        if found:
            return found.group(1)
    raise Failure("the head ended before it said where to join:\n" + head.stderr.read())


def is_case(value):
    """A function of a bench and nothing else: helpers take more."""
    return inspect.isfunction(value) and list(inspect.signature(value).parameters) == ["bench"]


def run_script(names):
    """Runs the cases among a script's globals that the command line names, or all; returns its exit code."""
    binary = pathlib.Path(sys.argv[1]).resolve()
    wanted = sys.argv[2:]
    os.environ["OMP_NUM_THREADS"] = "1"
    base = pathlib.Path(tempfile.mkdtemp(prefix="troupe-runs-"))
    subprocess.run([str(binary), "data", "make", str(base / "data")], check=True, capture_output=True)
    # One profile for all runs, so that none of them measures the layers again.
    subprocess.run([str(binary), "profile", str(JOB), f'data.sources=[{{json="{base}/data/samples.json"}}]', "--out",
                    str(base / "data" / "profile.json")], check=True, capture_output=True)
    chosen = named_or_third([value for value in names.values() if is_case(value)], wanted)

    def run(case):
        bench = Bench(binary, base / "data", pathlib.Path(tempfile.mkdtemp(dir=base)))
        try:
            case(bench)
        finally:
            bench.kill_all()

    code = run_cases(chosen, run)
    shutil.rmtree(base, ignore_errors=True)
    return code
