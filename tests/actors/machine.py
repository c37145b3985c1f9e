"""Whole jobs and the machine they run on: terminals that close, readers that leave or stop, heads that hang, ports and memory
that are not there, networks, and libraries that would speak.

    machine.py BINARY [CASE...]       prints `N passed, M failed, K skipped` last
"""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from whole_jobs import (ONE_PIPELINE, TWO_NODES, Hosts, children, ended_with, expect, expect_end, expect_none_left, expect_own_lines, lines_of,
                        finish, listening_sockets, port_of, run_quietly, run_script)
from run_cases import Skipped
from stopped_threads import StoppedThreads, threads_of

# ---- terminals and readers ------------------------------------------------------------------------


def sighup_ends_all_nodes(bench):
    head = bench.start()
    bench.wait_for_steps(1)
    pids = children(head.pid)
    head.send_signal(signal.SIGHUP)
    expect_end(head, 75, ["stopped by SIGHUP (the terminal closed) during step", "is saved: the same command goes on"], within=15)
    expect_none_left(pids)


class Terminal:
    """A command as the leader of a terminal's session."""

    def __init__(self, bench, command):
        self.ours, theirs = pty.openpty()
        self.said = b""
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                                        cwd=bench.folder, env={**os.environ, "TERM": "xterm"},
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        bench.processes.append(self.process)
        os.close(theirs)
        self.closing = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        """Shows what is said until nobody has the terminal open any more, or it is closed."""
        with contextlib.suppress(OSError):
            while not self.closing.is_set():
                if select.select([self.ours], [], [], 0.02)[0]:
                    self.said += os.read(self.ours, 1 << 16)
        os.close(self.ours)

    def close(self):
        self.closing.set()
        self.reader.join()

    def ended_with(self, within):
        """The exit code, and all that was shown."""
        code = ended_with(self.process, within)
        self.reader.join(timeout=5)  # Until the last word is read.
        self.close()
        return code, self.said.decode(errors="replace")


def a_terminal_that_closes_ends_training_with_a_checkpoint(bench):
    terminal = Terminal(bench, bench.command())
    bench.wait_for_steps(2)
    pids = children(terminal.process.pid)
    terminal.close()
    code, _ = terminal.ended_with(15)
    expect(code == 75, f"exit {code} instead of 75")
    expect_none_left(pids)
    said = (bench.run_dir / "train.log").read_text(encoding="utf-8")
    expect("stopped by SIGHUP (the terminal closed) during step" in said and "is saved" in said, said[-800:])
    again = bench.start(steps=len(bench.metrics()) + 2)
    _, out, err = finish(again, 60)
    expect(again.returncode == 0 and "going on after step" in out, f"exit {again.returncode}\n{out[-800:]}{err[-800:]}")


def under_nohup_training_outlives_its_terminal(bench):
    terminal = Terminal(bench, ["nohup", *bench.command(steps=15)])
    bench.wait_for_steps(2)
    pids = children(terminal.process.pid)
    terminal.close()
    steps = len(bench.metrics())
    code, _ = terminal.ended_with(60)
    expect(code == 0, f"exit {code}\n{(bench.folder / 'nohup.out').read_text(encoding='utf-8')[-800:]}")
    expect(steps < 15 and len(bench.metrics()) == 15, f"{steps} steps before the terminal closed, {len(bench.metrics())} in all")
    expect((bench.run_dir / "model" / "model.safetensors").is_file(), "no model was written")
    expect_none_left(pids)


def a_reader_that_leaves_does_not_end_training(bench):
    """As `troupe train ... | head -1` has it."""
    head = bench.start(steps=20)
    line = head.stdout.readline()
    head.stdout.close()
    expect("[head] demo: " in line, f"the first line: {line}")
    pids = children(head.pid)
    expect(ended_with(head, 60) == 0, f"exit {head.returncode}\n{head.stderr.read()[-800:]}")
    expect(len(bench.metrics()) == 20, f"{len(bench.metrics())} of 20 steps")
    expect((bench.run_dir / "model" / "model.safetensors").is_file(), "no model was written")
    said = (bench.run_dir / "train.log").read_text(encoding="utf-8")
    expect("step 20/20" in said and "done: " in said, f"the log in the run folder ends early:\n{said[-800:]}")
    expect_none_left(pids)


def with_a_full_pipe(bench, command, stderr=None):
    """A process whose stdout and stderr (where it has no other) are one pipe of a page, which is full; and its other end,
    which must stay open."""
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    fcntl.fcntl(theirs, fcntl.F_SETFL, os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while os.write(theirs, b"x"):
            pass
    fcntl.fcntl(theirs, fcntl.F_SETFL, 0)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=stderr or theirs, cwd=bench.folder)
    os.close(theirs)
    bench.processes.append(process)
    return process, ours


def expect_ended_by_sigterm(process, codes, within, when):
    process.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    code = ended_with(process, within + 10)
    took = time.monotonic() - begin
    expect(code in codes and took < within, f"{when}: exit {code} after {took:.1f} s, not {codes} within {within} s")


def who_writes_where_nobody_reads_still_hears_signals(bench):
    """`troupe train ... 2>&1 | something that hangs`: before it trains, while it trains, and as a node of its own."""
    stop_timeout_s = 3
    for stderr in (None, subprocess.DEVNULL):  # Then the first word is one of its log, in the run folder.
        head, ours = with_a_full_pipe(bench, bench.command(f"cluster.stop_timeout_s={stop_timeout_s}"), stderr)
        deadline = time.monotonic() + 60
        while stderr and not (bench.run_dir / "train.log").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(3)  # It cannot say its first line, and starts no node.
        expect(not children(head.pid) and head.poll() is None, "it went on although nobody reads")
        expect_ended_by_sigterm(head, (143,), 2, "before it trains")
        expect(not (bench.run_dir / "control").exists(), "it left its control file")

    head, reads = with_a_full_pipe(bench, bench.command(f"cluster.stop_timeout_s={stop_timeout_s}"))
    # Its first lines are read, until nodes are there.
    deadline = time.monotonic() + 60
    while not bench.metrics() and time.monotonic() < deadline:
        os.read(reads, 1 << 16)
    pids = children(head.pid)
    expect(len(pids) == 4, f"{len(pids)} nodes")
    time.sleep(5)
    expect_ended_by_sigterm(head, (75, 143), stop_timeout_s + 2, "while it trains")
    expect_none_left(pids)

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        node, _ = with_a_full_pipe(bench, [str(bench.binary), "node", "--join", address])
        time.sleep(1)
        expect_ended_by_sigterm(node, (143,), 2, "a node that looks for its job")


# ---- a head that hangs ------------------------------------------------------------------------------


def a_head_whose_supervisor_hangs_ends_by_force(bench):
    """First its actors' threads alone stand still, then all but the main thread, which takes signals."""
    stop_timeout_s = 2
    for which, chosen in (("actors", lambda _, name: name.startswith("caf.")), ("all but the main thread", lambda number, _: number != head.pid)):
        head = bench.start(f"cluster.stop_timeout_s={stop_timeout_s}", steps=100_000)
        bench.wait_for_steps(2)
        pids = children(head.pid)
        with StoppedThreads(head.pid, chosen) as threads:
            names = sorted(name for _, name in threads_of(head.pid))
            expect(len(threads.stopped) >= 2, f"too few threads stand still: {names}")
            time.sleep(0.5)
            steps = len(bench.metrics())
            time.sleep(0.5)
            expect(len(bench.metrics()) == steps, f"{which}: it trains on, its threads are {names}")
            head.send_signal(signal.SIGTERM)
            begin = time.monotonic()
            while head.poll() is None and time.monotonic() < begin + 20:
                threads.reap()
                time.sleep(0.02)
            took = time.monotonic() - begin
        expect(head.poll() == 143, f"{which}: exit {head.poll()} after {took:.1f} s")
        # A second for what it does then, and its last words.
        expect(stop_timeout_s <= took < stop_timeout_s + 2, f"{which}: it took {took:.1f} s, cluster.stop_timeout_s is {stop_timeout_s}")
        said = head.stderr.read()
        expect("stopped by SIGTERM by force: its supervisor did not end the job" in said, f"{which}: it said {said[-800:]}")
        expect_none_left(pids)
        bench.run_dir = bench.folder / "again"


def who_would_take_the_folder_of_a_head_that_hangs_hears_how(bench):
    """It holds the lock of its run folder as long as its process is there."""
    head = bench.start("cluster.heartbeat_timeout_s=100", steps=100_000)
    bench.wait_for_steps(2)
    pids = children(head.pid)
    names, end = f"another job writes this run folder: process {head.pid} on ", f"kill -9 {head.pid}, then the same command"
    head.send_signal(signal.SIGSTOP)
    expect_end(bench.start(steps=2), 2, [names, "; it is stopped", "; its newest line, in ", f"fix: kill -CONT {head.pid} lets it go on; or {end}"], within=10)
    head.send_signal(signal.SIGCONT)
    with StoppedThreads(head.pid, lambda _, name: name.startswith("caf.")):
        expect_end(bench.start(steps=2), 2, [names, "; it does not answer; its newest line, in ", f"fix: if it hangs: {end}"], within=20)
    head.kill()
    finish(head, 5)
    expect_none_left(pids)
    expect_end(bench.start(steps=2), 0, [], within=60)  # "Then the same command."
    with open(bench.run_dir.parent / f".{bench.run_dir.name}.lock", "w", encoding="utf-8") as lock:  # Of a head that has only begun.
        fcntl.flock(lock, fcntl.LOCK_EX)
        json.dump({"host": socket.gethostname(), "process": os.getpid(), "since": "now"}, lock)
        lock.flush()
        expect_end(bench.start(steps=2), 2, [f"process {os.getpid()} on ", "; it has not opened its door", "fix: wait for it or stop it"], within=10)
    expect_end(bench.start(steps=2), 0, [], within=60)


# ---- networks -------------------------------------------------------------------------------------


def reaches(prefix, host, port):
    """Whether a connection from a host of ours comes about."""
    return run_quietly(*prefix, sys.executable, "-c", "import socket, sys; socket.create_connection((sys.argv[1], "
                       "int(sys.argv[2])), timeout=5)", host, str(port))


def tensors_go_over_the_interface_of_the_job(bench):
    """Each time one that the job would not choose by itself."""
    bench.use_key()
    with Hosts(2) as hosts:
        for interface, own, control in ((hosts.bridge, "10.77.0.1", "127.0.0.1"), ("lo", "127.0.0.1", "10.77.0.1")):
            bench.run_dir = bench.folder / interface
            head = bench.start(f"cluster.data_interface={interface}", f"cluster.listen={control}:0", prefix=hosts.prefix(0))
            bench.wait_for_steps(2)
            nodes = children(head.pid)
            expect(len(nodes) == 4, f"{len(nodes)} node processes")
            found = {host for host, _ in listening_sockets(head.pid)}
            expect(found == {own, control}, f"{interface}: the head listens at {found}")
            for pid in nodes:
                sockets = listening_sockets(pid)
                expect(sockets and {host for host, _ in sockets} == {own}, f"{interface} is {own}; a node listens at {sockets}")
                for _, port in sockets:
                    expect(reaches(hosts.prefix(0), own, port), f"nobody answers at {own}:{port}")
                    from_elsewhere = reaches(hosts.prefix(1), "10.77.0.1", port)
                    expect(from_elsewhere == (interface != "lo"), f"{interface}: reached from elsewhere: {from_elsewhere}")
            head.send_signal(signal.SIGINT)
            expect_end(head, 75, ["is saved"], within=15)
            expect_none_left(nodes)


def tensors_of_a_job_on_the_loopback_stay_on_the_machine(bench):
    """Whoever starts its nodes: nobody needs a key there, and tensors are not encrypted."""
    for name in ("127.0.0.1", "localhost"):
        bench.run_dir = bench.folder / name
        head = bench.start(*TWO_NODES, f"cluster.listen={name}:0", steps=2000)
        address = port_of(head)
        nodes = [bench.node(address) for _ in range(2)]
        bench.wait_for_steps(2)
        for pid in (head.pid, *(node.pid for node in nodes)):
            found = {host for host, _ in listening_sockets(pid)}
            near = {host for host in found if host.startswith(("127.", "::1", "::ffff:127."))}
            expect(found and found == near, f"{name}: process {pid} listens at {found}")
        head.send_signal(signal.SIGINT)
        expect_end(head, 75, ["is saved"], within=15)
        for node in nodes:
            finish(node, 6)


# ---- what is refused before anything is done ------------------------------------------------------


def entries_of(folder):
    """Name, size and time of all that lies below a folder."""
    return sorted((str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*"))


def expect_refused_at_once(bench, code, words, *overrides, prefix=()):
    """No layer was measured for this job, and the older run lies where it lay."""
    if not bench.run_dir.exists():
        expect_end(bench.start(steps=2), 0, [], within=60)
    before = entries_of(bench.folder)
    command = [word for word in bench.command(*overrides) if not word.startswith("scheduler.profile=")]
    terminal = Terminal(bench, [*prefix, *command])
    ended, said = terminal.ended_with(40)
    expect(ended == code and all(word in said for word in words), f"exit {ended}, not {code} and {words}\n{said[-800:]}")
    expect("measuring" not in said, f"'{words[0]}' came after layers were measured:\n{said[:400]}")
    after = [entry for entry in entries_of(bench.folder) if entry not in before]
    expect(not after and len(before) == len(entries_of(bench.folder)), f"'{words[0]}' came after {after}")


def a_taken_port_is_found_before_anything_is_done(bench):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        for key, code in (("cluster.listen", 1), ("observe.metrics_listen", 2)):
            expect_refused_at_once(bench, code, ["another program listens there", key, "fix: "], f"{key}={taken}")


def too_large_a_model_is_found_before_anything_is_done(bench):
    # 600 layers of 0.27 GB each, several times over.
    wide = "modules.llm.config={hidden_size=2048,num_hidden_layers=600,intermediate_size=8192,num_attention_heads=16}"
    cut = ('parallel.pipelines=[{stages=[{node=0,vision="all",audio="all"},{node=1,llm=[0,200]},{node=2,llm=[200,400]},'
           "{node=3,llm=[400,602]}]}]")
    words = ["parameters, gradients and optimizer of the nodes of this machine take", "fix: use more nodes or a smaller model"]
    expect_refused_at_once(bench, 2, words, wide, cut)
    expect_refused_at_once(bench, 2, ["alone needs", "fix:"], wide, "parallel.pipelines=[]", "parallel.mode=auto",
                           "cluster.device_memory_gib=0.1")


def with_shared_memory(mebibytes):
    """A prefix of commands: /dev/shm as large as containers have it, for them alone."""
    mount = f"mount -t tmpfs -o size={mebibytes}m none /dev/shm"
    if os.geteuid() != 0 or not run_quietly("unshare", "-m", "sh", "-c", mount):
        raise Skipped("needs root and mount namespaces")
    return ["unshare", "-m", "sh", "-c", mount + ' && exec "$@"', "sh"]


def small_shared_memory_is_found_before_anything_is_done(bench):
    expect_refused_at_once(bench, 2, ["/dev/shm has 1024 KiB free", "fix: enlarge it", "--shm-size"],
                           prefix=with_shared_memory(1))


# ---- libraries ------------------------------------------------------------------------------------

def lost_nodes_bring_no_words_of_libraries(bench):
    """One is killed while tensors move, and one falls silent and is told to leave when it wakes."""
    head = bench.start("cluster.fault_tolerance=2", steps=100_000)
    said = lines_of(head)
    bench.wait_for_steps(3)
    pids = children(head.pid)
    os.kill(pids[1], signal.SIGKILL)
    bench.wait_for_steps(len(bench.metrics()) + 5)
    os.kill(pids[3], signal.SIGSTOP)
    bench.wait_for_steps(len(bench.metrics()) + 5)
    os.kill(pids[3], signal.SIGCONT)
    expect_none_left([pids[1], pids[3]])
    bench.wait_for_steps(len(bench.metrics()) + 2)
    head.send_signal(signal.SIGINT)
    code = ended_with(head, 15)
    out, err = said.text(), head.stderr.read()
    expect(code == 75 and out.count(" was lost: ") >= 2, f"exit {code}, two losses:\n{out[-2000:]}{err[-800:]}")
    expect_own_lines(out, err, ["stopped by Ctrl-C during step "])
    expect_none_left(pids)


def sockets_between(one, other):
    """(local, remote) of the connections that two processes of this machine have with each other, as the first has them."""
    listed = subprocess.run(["ss", "-tnpH"], capture_output=True, text=True, check=True).stdout
    ends = [(words[3], words[4], int(pid)) for words, pid in ((line.split(), re.search(r"pid=(\d+)", line)[1])
                                                              for line in listed.splitlines() if "pid=" in line)]
    owners = {local: pid for local, _, pid in ends}
    return [(local, remote) for local, remote, pid in ends if pid == one and owners.get(remote) == other]


def a_broken_way_between_two_nodes_is_told_with_both(bench):
    """Their sockets are closed by the system; both live, and nobody else has what they hold."""
    if os.geteuid() != 0 or not shutil.which("ss"):
        raise Skipped("needs root and ss")
    head = bench.start(ONE_PIPELINE, steps=100_000, prefix=["env", "UCX_TLS=self,tcp"])
    bench.wait_for_steps(3)
    pids = children(head.pid)
    ways = sockets_between(pids[1], pids[2])
    expect(ways, "nodes 1 and 2 have no connection")
    for local, remote in ways:
        killed = subprocess.run(["ss", "-H", "-K", "-tn", "src", local, "dst", remote], capture_output=True, text=True, check=False)
        if local not in killed.stdout:
            raise Skipped("this kernel closes nobody's sockets")
    code = ended_with(head, 15)
    out, err = head.stdout.read(), head.stderr.read()
    nodes = re.match(r"node (\d) \(\S+, pid (\d+)\) lost its connection to node (\d) \(\S+, pid (\d+)\), and both answer the head", err)
    expect(code == 75 and nodes, f"exit {code}\n{out[-1500:]}{err}")  # What they have is saved.
    told = {int(nodes[1]): int(nodes[2]), int(nodes[3]): int(nodes[4])}
    expect(told == {1: pids[1], 2: pids[2]}, f"told are {told}, not {pids}")
    expect("going on without one of them was tried: no other node has " in err, err)
    expect_own_lines(out, err, ["lost its connection to node", " is saved: the same command goes on from there"])
    expect_none_left(pids)


def shared_memory_that_fills_up_brings_no_words_of_libraries(bench):
    """Enough at first, but not for all nine pairs of neighbours: one exchanges rows over the network."""
    head = bench.start(steps=5, prefix=with_shared_memory(34))
    _, out, err = finish(head, 60)
    expect(head.returncode == 0 and "step 5/5" in out, f"exit {head.returncode}\n{out[-800:]}{err[-800:]}")
    expect_own_lines(out, err)


def an_end_by_a_lost_node_brings_no_words_of_libraries(bench):
    head = bench.start(ONE_PIPELINE)
    bench.wait_for_steps(2)
    pids = children(head.pid)
    os.kill(pids[2], signal.SIGKILL)
    _, out, err = finish(head, 15)
    expect(head.returncode == 75, f"exit {head.returncode}")  # What is left is saved.
    expect_own_lines(out, err, ["no other node has llm.", "  fix: "])
    expect_none_left(pids)


if __name__ == "__main__":
    sys.exit(run_script(dict(globals())))
