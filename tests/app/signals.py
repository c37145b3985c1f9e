#!/usr/bin/python3
"""Ctrl-C, SIGTERM and SIGHUP before a job runs: at once, with the right exit code, and with a line that says so. And files
that cannot be read, which end what reads them.

    signals.py TROUPE

No case depends on how fast the machine is: a command is told to end once it is past the point where it would end by
itself, and what must be prompt has ten times as long as it needs.
"""

import contextlib
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from run_cases import Failure, expect, run_cases
from stalled_file import StalledFile

DEMO = ROOT / "configs" / "demo.toml"
PROMPT_S = 5
ENDING = ((signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM"), (signal.SIGHUP, 129, "SIGHUP (the terminal closed)"))


def start(binary, folder, *words):
    return subprocess.Popen([binary, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until_it_takes_signals(process):
    """Until it has blocked SIGINT: before that it would just die of it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        expect(process.poll() is None, "it ended before it could be told to")
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        blocked = int(status.split("SigBlk:")[1].split()[0], 16)
        if blocked >> (signal.SIGINT - 1) & 1:
            return
        time.sleep(0.02)
    raise Failure("it never blocked SIGINT")


def end(process, code, words, within=PROMPT_S):
    try:
        out, err = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Failure(f"it did not end within {within} s") from None
    expect(process.returncode == code, f"exit {process.returncode} instead of {code}\n{out[-400:]}{err[-400:]}")
    for word in words:
        expect(word in err, f"'{word}' is missing on stderr:\n{err[-400:]}")


@contextlib.contextmanager
def silent_listener(backlog=8):
    """A port that takes connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(backlog)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def full_listener():
    """A port that drops whoever connects next, as a firewall does: its queue is full."""
    with silent_listener(backlog=0) as address, contextlib.ExitStack() as waiting:
        host, port = address.split(":")
        for _ in range(4):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex((host, int(port)))
        time.sleep(0.2)
        yield address


@contextlib.contextmanager
def nobody():
    """A port where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


LISTENERS = (nobody, silent_listener, full_listener)


def a_node_that_looks_for_its_job_ends_by_a_signal(binary, folder, _data):
    for listener in LISTENERS:
        for wanted, code, name in ENDING:
            with listener() as address:
                node = start(binary, folder, "node", "--join", address, "--timeout", "60")
                wait_until_it_takes_signals(node)
                time.sleep(0.5)
                node.send_signal(wanted)
                end(node, code, [f"stopped by {name} before it joined the job"])


def a_node_has_room_for_all_files_before_it_opens_them(binary, folder, _data):
    """Where its table of open files grows later, the kernel lets it wait."""
    with silent_listener() as address:
        process = start(binary, folder, "node", "--join", address)
        wait_until_it_takes_signals(process)
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        process.send_signal(signal.SIGINT)
        end(process, 130, ["Ctrl-C"])
    wanted = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 65536)
    expect(int(status.split("FDSize:")[1].split()[0]) >= wanted, f"of {wanted}:\n{status}")


def a_node_looks_no_longer_than_it_was_told(binary, folder, _data):
    for listener in LISTENERS:
        with listener() as address:
            node = start(binary, folder, "node", "--join", address, "--timeout", "1")
            wait_until_it_takes_signals(node)
            end(node, 1, ["no job let this node in within 1 s", "fix:"])


def training_ends_by_a_signal_while_layers_are_measured(binary, folder, data):
    for wanted, code, name in ENDING:
        run = folder / name
        train = start(binary, folder, "train", str(DEMO), data, f"job.run_dir={run}")
        wait_until_it_takes_signals(train)
        train.send_signal(wanted)
        end(train, code, [f"stopped by {name} before the job started"])
        expect(not run.exists(), "a run folder was made after the signal")


def training_ends_by_a_signal_while_a_layout_is_searched_for(binary, folder, data):
    picture = sorted((folder / "data" / "images").iterdir())[0]
    for wanted, code, name in ENDING:
        run = folder / f"layout-{name}"
        with StalledFile(picture) as stalled:  # Before it trains, only the search looks into media.
            train = start(binary, folder, "train", str(DEMO), data, f"job.run_dir={run}", "parallel.mode=auto", "parallel.pipelines=[]",
                          "data.index=off")
            expect(stalled.wait_until_wanted(train), "it did not begin to search")
            train.send_signal(wanted)
            end(train, code, [f"stopped by {name} before the job started"])
        expect(not run.exists(), "a run folder was made after the signal")


def the_reference_ends_by_a_signal_and_says_before_which_step(binary, folder, data):
    for wanted, _, name in ENDING:
        run = folder / f"reference-{name}"
        train = start(binary, folder, "train", str(DEMO), data, f"job.run_dir={run}", "train.steps=100000", "--reference")
        metrics = run / "metrics.jsonl"
        deadline = time.monotonic() + 60
        while not metrics.exists() or metrics.read_text(encoding="utf-8").count("\n") < 2:
            expect(time.monotonic() < deadline, "no two steps within 60 s")
            time.sleep(0.05)
        train.send_signal(wanted)
        end(train, 75, [f"stopped by {name} before step ", "is saved: the same command goes on from there"])


def what_looks_into_data_ends_where_they_cannot_be_read(binary, folder, data):
    """A list of samples, and a picture: `data.read_timeout_s` is for whoever reads them."""
    picture = sorted((folder / "data" / "images").iterdir())[0]
    samples = folder / "data" / "samples.json"
    measured = f"scheduler.profile={folder / 'profile.json'}"
    subprocess.run([binary, "profile", str(DEMO), data, "--budget", "1", "--out", str(folder / "profile.json")], check=True, capture_output=True)
    policy = ("--policy", "dflop", "--cluster", "H100-80G")
    for file, commands in ((samples, (("data", "check"), ("data", "show"), ("validate",), ("plan",), ("simulate",), ("whatif", "--join", "1"),
                                      ("balance", *policy), ("profile", "--out", str(folder / "profile.json")))),
                           (picture, (("data", "check"), ("plan",)))):
        for words in commands:
            verb = words[:2] if words[0] == "data" else words[:1]
            with StalledFile(file):
                # A length that is known would need no reading.
                process = start(binary, folder, *verb, str(DEMO), data, measured, "data.read_timeout_s=1", "data.index=off",
                                *words[len(verb):])
                end(process, 1, [f"{file} could not be read within 1 s", "fix: look at the disk"], within=30)


def under_nohup_a_closed_terminal_is_not_heard(binary, folder, data):
    run = folder / "outlives"
    train = start("nohup", folder, binary, "train", str(DEMO), data, f"job.run_dir={run}", "train.steps=2")
    wait_until_it_takes_signals(train)
    train.send_signal(signal.SIGHUP)
    end(train, 0, [], within=120)
    expect((run / "model" / "model.safetensors").is_file(), "no model was written")


def a_closed_terminal_ends_what_only_measures(binary, folder, data):
    profile = start(binary, folder, "profile", str(DEMO), data, "--budget", "60", "--out", str(folder / "long.json"))
    expect("measuring" in profile.stderr.readline(), "it did not begin to measure")
    profile.send_signal(signal.SIGHUP)
    out, err = profile.communicate(timeout=PROMPT_S)
    told = [line for line in (out + err).splitlines() if "measuring" not in line]
    expect(profile.returncode == -signal.SIGHUP and not told, f"exit {profile.returncode}\n{out[-400:]}{err[-400:]}")


def a_crash_is_told_in_two_lines_of_our_own(binary, folder, data):
    for wanted in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL):
        train = start(binary, folder, "train", str(DEMO), data, f"job.run_dir={folder / f'ended-{wanted}'}")
        wait_until_it_takes_signals(train)
        train.send_signal(wanted)
        out, err = train.communicate(timeout=PROMPT_S)
        expect(train.returncode == -wanted, f"exit {train.returncode}: its parent is to see signal {wanted}")
        told = [line for line in (out + err).splitlines() if "crash" in line or "signal" in line or "backtrace" in line]
        expect(len(told) == 1 and told[0].startswith(f"troupe: defect: process {train.pid} crashed ("),
               f"a crash is told by other lines than ours:\n{out[-400:]}{err[-400:]}")
        expect(err.splitlines()[-1].startswith("  fix: "), f"no fix:\n{err[-400:]}")


CASES = (a_node_that_looks_for_its_job_ends_by_a_signal, a_node_has_room_for_all_files_before_it_opens_them,
         a_node_looks_no_longer_than_it_was_told,
         training_ends_by_a_signal_while_layers_are_measured, training_ends_by_a_signal_while_a_layout_is_searched_for,
         the_reference_ends_by_a_signal_and_says_before_which_step, what_looks_into_data_ends_where_they_cannot_be_read,
         under_nohup_a_closed_terminal_is_not_heard, a_closed_terminal_ends_what_only_measures, a_crash_is_told_in_two_lines_of_our_own)


def main(binary):
    with tempfile.TemporaryDirectory(prefix="troupe-ends-") as name:
        folder = pathlib.Path(name)
        subprocess.run([binary, "data", "make", str(folder / "data")], check=True, capture_output=True)
        data = f'data.sources=[{{json="{folder}/data/samples.json"}}]'
        return run_cases(CASES, lambda case: case(binary, folder, data))


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve())))
