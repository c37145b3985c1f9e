"""Strangers at the doors of a job: real joins replayed and mutated, against the head and its nodes.

    strangers.py BINARY [CASE...]     prints `N passed, M failed, K skipped` last
    TROUPE_CHAOS=1 strangers.py ...   as `scripts/test --chaos` has it: 300 connections at a time, 100,000 mutated frames

A real node joins through a recorder first, so that strangers know what a join looks like, byte by byte. Then they
come with pieces of it, unchanged and mutated, with headers of the protocol behind the door, with other protocols, and
with silence, while the job trains and while nodes join. Nothing may die, no step may be lost, and memory stays flat.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import random
import selectors
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from whole_jobs import (TWO_NODES, alive, children, ended_with, expect, expect_end, expect_no_library_speaks,
                        expect_none_left, expect_own_lines, finish, lines_of, listening_sockets,
                        port_of, run_script)
from run_cases import Failure, Skipped

CHAOS = bool(os.environ.get("TROUPE_CHAOS"))
CONNECTIONS, FRAMES = (300, 100_000) if CHAOS else (60, 3_000)
GROWTH_MAX_KIB = 64 << 10  # Of a process's resident memory under attack.
SEED = int(os.environ.get("TROUPE_SEED", "1"))


# ---- what a join looks like -----------------------------------------------------------------------


class Recorder(threading.Thread):
    """Passes one connection on to the head and keeps what the node said, in the pieces in which it came."""

    def __init__(self, head):
        super().__init__(daemon=True)
        self.head, self.pieces = head, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"

    def run(self):
        node, _ = self.listener.accept()
        host, port = self.head.split(":")
        head = socket.create_connection((host, int(port)))
        with node, head, selectors.DefaultSelector() as selector:
            for one, other in ((node, head), (head, node)):
                selector.register(one, selectors.EVENT_READ, other)
            while True:
                for key, _ in selector.select():
                    with contextlib.suppress(OSError):
                        data = key.fileobj.recv(1 << 16)
                        key.data.sendall(data)
                        if key.fileobj is node and data:
                            self.pieces.append(data)
                        if data:
                            continue
                    return


def record_join(bench, steps=3):
    """What a node says that joins a job with this key and trains."""
    head = bench.start(*TWO_NODES, f"job.run_dir={bench.folder / 'recorded'}", steps=steps)
    recorder = Recorder(port_of(head))
    recorder.start()
    nodes = [bench.node(recorder.address), bench.node(recorder.head)]
    expect_end(head, 0, [], within=60)
    for node in nodes:
        expect_end(node, 0, [])
    expect(len(recorder.pieces) > 3, "nothing was recorded")
    return recorder.pieces


# ---- what strangers say ---------------------------------------------------------------------------


def records_of(pieces):
    """TLS records of a recorded stream: what a stranger would cut it into."""
    stream, records = b"".join(pieces), []
    while len(stream) >= 5:
        size = 5 + struct.unpack(">H", stream[3:5])[0]
        records.append(stream[:size])
        stream = stream[size:]
    return records


def forged_header(random_numbers):
    """A header of CAF's protocol, with a length that nobody should believe."""
    length = random_numbers.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 2_000_000_000))
    return struct.pack(">BBBBIQQQ", random_numbers.randrange(8), 0, 0, 0, length, 4, 0, 0)


def mutated(frame, random_numbers):
    frame = bytearray(frame)
    kind = random_numbers.randrange(6)
    if kind == 0 and frame:  # Some bits.
        for _ in range(random_numbers.randint(1, 8)):
            frame[random_numbers.randrange(len(frame))] ^= 1 << random_numbers.randrange(8)
    elif kind == 1:  # Cut off.
        del frame[random_numbers.randrange(len(frame) + 1):]
    elif kind == 2 and len(frame) >= 5:  # Another length in the record's header.
        frame[3:5] = struct.pack(">H", random_numbers.randrange(1 << 16))
    elif kind == 3:  # More than was announced.
        frame += random_numbers.randbytes(random_numbers.randint(1, 2000))
    elif kind == 4:  # Another kind of record.
        frame[:1] = bytes([random_numbers.randrange(256)])
    else:  # The same again, in the middle.
        at = random_numbers.randrange(len(frame) + 1)
        frame[at:at] = frame[:random_numbers.randint(1, len(frame) or 1)]
    return bytes(frame)


def script(records, random_numbers):
    """Frames of one connection; how many of them are mutated or forged."""
    kind = random_numbers.randrange(10)
    if kind == 0:
        return [], 0  # Silence.
    if kind == 1:
        return list(records), 0  # A join as it was.
    if kind == 2:
        return [b"GET / HTTP/1.1\r\nHost: head\r\n\r\n"], 1
    if kind == 3:
        return [forged_header(random_numbers) for _ in range(4)], 4
    if kind == 4:
        return [records[0], *(forged_header(random_numbers) for _ in range(3))], 3
    start = random_numbers.choice((0, 0, 0, 1))
    frames = [mutated(record, random_numbers) for record in records[start:start + random_numbers.randint(1, 8)]]
    return frames, len(frames)


class Stranger:
    """A connection that says its frames and leaves, in order or not."""

    def __init__(self, address, frames, leaves_by_reset):
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if leaves_by_reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.connect_ex(address)
        self.left = b"".join(frames)
        self.until = time.monotonic() + 0.5

    def go_on(self):
        """False when this stranger is done."""
        try:
            if self.left:
                self.left = self.left[self.socket.send(self.left):]
            return bool(self.socket.recv(1 << 16)) and time.monotonic() < self.until
        except BlockingIOError:
            return time.monotonic() < self.until
        except OSError:
            return False


class Attack:
    """Strangers at some addresses, until all their frames were said."""

    def __init__(self, addresses, records, frames):
        self.addresses = [(host, int(port)) for host, port in (address.rsplit(":", 1) for address in addresses)]
        self.records, self.wanted = records, frames
        self.frames = self.connections = 0
        self.random = random.Random(SEED)

    def run(self, still_there, meanwhile=None):
        """Returns what `meanwhile` does, in a thread of its own; strangers come until it is done."""
        with concurrent.futures.ThreadPoolExecutor(1) as beside:
            doing = beside.submit(meanwhile or (lambda: None))
            self.come(still_there, doing.done)
            return doing.result()

    def come(self, still_there, may_end):
        def is_enough():
            return self.frames >= self.wanted and may_end()

        here = []
        while not is_enough():
            if not still_there():
                raise Failure(f"it died under attack: after {self.connections} connections, {self.frames} frames, seed {SEED}")
            while len(here) < CONNECTIONS and not is_enough():
                frames, count = script(self.records, self.random)
                here.append(Stranger(self.random.choice(self.addresses), frames, self.random.random() < 0.3))
                self.frames += count
                self.connections += 1
            for stranger in list(here):
                if not stranger.go_on():
                    stranger.socket.close()
                    here.remove(stranger)
            time.sleep(0.002)
        for stranger in here:
            stranger.socket.close()


# ---- what must hold -------------------------------------------------------------------------------


def resident_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise Failure(f"no memory of process {pid}")


def listens_at(pid):
    """Addresses at which a process can be reached from here."""
    return [f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}" for host, port in listening_sockets(pid)]


def ports_of(node):
    """Where a node listens for tensors, once it has been let in."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := listens_at(node.pid):
            return found
        time.sleep(0.02)
    raise Failure("a node that joins listens nowhere")


def attack(addresses, pids, records, frames, growing=(), meanwhile=None):
    """Lets strangers come; checks that these processes live on and take no memory for them, but for those that take some
    anyway, because they begin. `meanwhile`: done while they come; its result is returned, and they come until it is there."""
    before = {pid: resident_kib(pid) for pid in pids if pid not in growing}
    begin = time.monotonic()
    attackers = Attack(addresses, records, frames)
    done = attackers.run(lambda: all(alive(pid) for pid in pids), meanwhile)
    growth = {pid: resident_kib(pid) - before[pid] for pid in before}
    print(f"  {attackers.connections} connections to {len(addresses)} ports, {attackers.frames} mutated frames in "
          f"{time.monotonic() - begin:.1f} s; memory grew by at most {max(growth.values()) / 1024:.1f} MiB")
    expect(max(growth.values()) < GROWTH_MAX_KIB, f"memory grew: {growth} KiB")
    return done


def expect_steps_in_order(bench, least):
    steps = [line["step"] for line in bench.metrics()]
    expect(steps == list(range(1, len(steps) + 1)), f"steps were lost: {steps[:20]} ...")
    expect(len(steps) >= least, f"{len(steps)} steps, {least} at least were to be trained")


def stop(head, said):
    """A job that is well saves and ends by Ctrl-C. Whatever came meanwhile, it has spoken in its own words alone."""
    head.send_signal(signal.SIGINT)
    code, out, err = ended_with(head, 15), said.text(), head.stderr.read()
    expect(code == 75 and "stopped by Ctrl-C" in err and "is saved" in err, f"exit {code}\n{out[-800:]}{err[-800:]}")
    expect_own_lines(out, err, ["stopped by Ctrl-C"])


def strangers_while_a_job_trains(bench):
    bench.use_key()
    records = records_of(record_join(bench))
    head = bench.start(steps=100_000)
    said = lines_of(head)
    bench.wait_for_steps(3)
    nodes = children(head.pid)
    steps = len(bench.metrics())
    attack([address for pid in (head.pid, *nodes) for address in listens_at(pid)], (head.pid, *nodes), records, FRAMES)
    bench.wait_for_steps(len(bench.metrics()) + 3)
    expect_steps_in_order(bench, steps + 3)
    stop(head, said)
    expect_none_left(nodes)


def strangers_while_nodes_join(bench):
    bench.use_key()
    records = records_of(record_join(bench))
    head = bench.start(*TWO_NODES, "cluster.join_timeout_s=600", steps=100_000)
    address = port_of(head)
    said = lines_of(head)
    attack([address], [head.pid], records, FRAMES // 4)
    nodes = []

    def join():
        nodes.append(bench.node(address))
        return ports_of(nodes[-1])

    for _ in range(2):  # The second one makes the job begin.
        # It shows its key, joins and opens its data between strangers that crowd the door.
        attack([address], [head.pid], records, FRAMES // 8, meanwhile=join)
        ports, pids = [port for node in nodes for port in ports_of(node)], [node.pid for node in nodes]
        attack([address, *ports], [head.pid, *pids], records, FRAMES // 4, growing=pids)
    bench.wait_for_steps(3)
    attack([address, *ports], [head.pid, *pids], records, FRAMES // 4)
    bench.wait_for_steps(len(bench.metrics()) + 3)
    expect_steps_in_order(bench, 3)
    stop(head, said)
    for node in nodes:
        _, out, err = finish(node, 10)
        expect(node.returncode == 75 and "it can be joined again" in err, f"exit {node.returncode}\n{err[-800:]}")
        expect_no_library_speaks(out + err)


def a_join_that_is_replayed_gets_nowhere(bench):
    bench.use_key()
    pieces = record_join(bench)
    head = bench.start(*TWO_NODES, steps=3)
    address = port_of(head)
    host, port = address.split(":")
    for _ in range(20):
        with socket.create_connection((host, int(port)), timeout=5) as stranger, contextlib.suppress(OSError):
            for piece in pieces:
                stranger.sendall(piece)
            while stranger.recv(1 << 16):
                pass
    nodes = [bench.node(address) for _ in range(2)]
    expect_end(head, 0, [], within=60)
    for node in nodes:
        expect_end(node, 0, [])


def strangers_fill_no_log(bench):
    bench.use_key()
    head = bench.start(*TWO_NODES, steps=3, env={"NO_COLOR": "1"})
    address = port_of(head)
    host, port = address.split(":")
    for _ in range(200):
        with socket.create_connection((host, int(port)), timeout=5) as stranger:
            stranger.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    nodes = [bench.node(address) for _ in range(2)]
    _, out, _ = finish(head, 60)
    told = [line for line in out.splitlines() if "refused a connection from 127.0.0.1:" in line]
    expect(1 <= len(told) <= 3, f"{len(told)} lines about 200 strangers")
    expect("speaks another protocol" in told[0], told[0])
    for node in nodes:
        expect_end(node, 0, [])


def a_server_with_a_certificate_is_no_head(bench):
    """Whoever listens where a node would join, with TLS of its own, learns nothing and is no head."""
    if not shutil.which("openssl"):
        raise Skipped("needs openssl, the command")
    bench.use_key()
    pem = bench.folder / "server.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=head",
                    "-keyout", pem, "-out", bench.folder / "certificate.pem"], check=True, capture_output=True)
    for oldest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = context.maximum_version = oldest
        context.load_cert_chain(bench.folder / "certificate.pem", pem)
        heard = []

        def serve(listener):
            with contextlib.suppress(OSError):
                while True:
                    stranger, _ = listener.accept()
                    with contextlib.suppress(OSError, ssl.SSLError), context.wrap_socket(stranger, server_side=True) as tls:
                        heard.append(tls.recv(1 << 16))

        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=serve, args=(listener,), daemon=True).start()
            node = bench.node(f"127.0.0.1:{listener.getsockname()[1]}", "--timeout", "3")
            _, out, err = finish(node, 20)
        expect(node.returncode in (1, 2), f"{oldest}: exit {node.returncode}\n{err}")
        expect("who listens there" in err or "no job let this node in" in err, f"{oldest}: {err}")
        expect_no_library_speaks(out + err)
        expect(not any(heard), f"{oldest}: it was told {heard}")


if __name__ == "__main__":
    sys.exit(run_script(dict(globals())))
