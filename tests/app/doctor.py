#!/usr/bin/python3
"""What `troupe doctor` says about this machine, and about jobs that it could not run.

    doctor.py TROUPE

Faults of a machine are planted in its unit tests; here are those that a script can bring about.
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from run_cases import expect, run_cases
from stalled_file import StalledFile

# Of --json: programs rely on them (app/README.md).
MACHINE = ["build", "gpu", "nccl", "nccl rows", "ucx", "door", "host name", "network", "clock", "shared memory",
           "open files", "locked memory", "tasks", "core files", "memory", "cores", "threads", "container"]
JOB = """\
[job]
name = "small"
[modules.llm]
kind = "llm"
config = { num_hidden_layers = 4 }
[[data.sources]]
json = "samples.json"
[train]
steps = 2
"""
SAMPLES = [{"id": f"s{i}", "conversations": [{"from": "human", "value": "hi\n"}, {"from": "gpt", "value": "ho"}]}
           for i in range(4)]


class Doctor:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        (folder / "job.toml").write_text(JOB)
        (folder / "samples.json").write_text(json.dumps(SAMPLES))
        self.files = self.listed()

    def listed(self):
        return sorted(str(path) for path in self.folder.rglob("*"))

    def run(self, *words, timeout=60, **variables):
        return subprocess.run([self.binary, "doctor", *words], cwd=self.folder, capture_output=True, text=True, timeout=timeout,
                              env={**os.environ, **variables})

    def ask(self, *words, code, **variables):
        """The checks by name."""
        answer = self.run(*words, "--json", **variables)
        said = f"exit {answer.returncode}\n{answer.stdout[-1500:]}{answer.stderr[-500:]}"
        expect(answer.returncode == code and not answer.stderr, said)
        told = json.loads(answer.stdout)
        levels = [check["level"] for check in told["checks"]]
        expect(told["problems"] == levels.count("problem") and told["warnings"] == levels.count("warning"), said)
        expect(told["can_run"] == (told["problems"] == 0), said)
        expect(all((check["level"] == "ok") == (check["fix"] == "") for check in told["checks"]), said)
        return {check["name"]: check for check in told["checks"]}

    def expect_problem(self, checks, name, found, fix):
        check = checks[name]
        expect(check["level"] == "problem" and found in check["found"] and fix in check["fix"], f"{name}: {check}")
        others = [other["name"] for other in checks.values() if other["level"] == "problem" and other["name"] != name]
        expect(others == [], f"beside {name} these are problems: {others}")


def this_machine_can_run(doctor):
    checks = doctor.ask(code=0)
    expect([name for name in checks if name != "disk"] == MACHINE and "disk" in checks, f"the checks are {list(checks)}")
    answer = doctor.run()
    lines = answer.stdout.splitlines()
    expect(answer.returncode == 0 and not answer.stderr and lines[0].startswith("Troupe can run on this machine: "), answer.stdout)
    expect(all(any(line.startswith(f"  {check['level']}") and f" {name} " in line for line in lines) for name, check in checks.items()),
           answer.stdout)
    rows = checks["nccl rows"]
    expect(rows["level"] == "ok" and rows["found"].startswith("rows between stages "), str(rows))
    expect(doctor.listed() == doctor.files, "it left something behind")


def a_folder_that_cannot_be_written(doctor):
    checks = doctor.ask("--folder", "/proc", code=1)
    doctor.expect_problem(checks, "disk", "/proc: a file cannot be made", "choose a folder")
    answer = doctor.run("--folder", "/proc")
    expect(answer.returncode == 1 and answer.stdout.startswith("Troupe cannot run on this machine: 1 problem"), answer.stdout)
    expect("\n  problem  disk " in answer.stdout and "fix: choose a folder" in answer.stdout, answer.stdout)


def an_environment_that_no_job_survives(doctor):
    doctor.expect_problem(doctor.ask(code=1, UCX_NET_DEVICES="nowhere0"), "network", "UCX_NET_DEVICES = nowhere0", "use one of ")
    doctor.expect_problem(doctor.ask(code=1, UCX_TLS="posix"), "ucx", "UCX_TLS: ", "add 'tcp'")
    bound = doctor.ask(code=0, OMP_PROC_BIND="close")["threads"]
    expect(bound["level"] == "warning" and "OMP_PROC_BIND = close" in bound["found"] and "unset it" in bound["fix"], str(bound))
    alone = doctor.ask(code=0, UCX_TLS="self,tcp")["shared memory"]
    expect(alone["level"] == "ok" and "UCX_TLS excludes it" in alone["found"], str(alone))


def limits_that_are_too_low(doctor):
    limited = ["prlimit", "--nofile=50:4096", str(doctor.binary), "doctor", "--json"]
    answer = subprocess.run(limited, cwd=doctor.folder, capture_output=True, text=True, timeout=60)
    files = {check["name"]: check for check in json.loads(answer.stdout)["checks"]}["open files"]
    expect(answer.returncode == 1 and files["level"] == "problem" and files["fix"] == "ulimit -n 1024", str(files))


def a_job_that_can_run(doctor):
    checks = doctor.ask("job.toml", code=0)
    expect(list(checks) == [*MACHINE, "job", "model", "data", "run folder", "port", "key"], f"the checks are {list(checks)}")
    expect(checks["data"]["found"].startswith("4 samples in 1 source"), str(checks["data"]))
    checks = doctor.ask("job.toml", f"checkpoint.dir={doctor.folder / 'saved'}", "cluster.local_nodes=4", code=0)
    expect(checks["model"]["level"] == "ok" and "checkpoints" in checks and "the job takes 81 MiB" in checks["shared memory"]["found"], str(checks["shared memory"]))
    expect(doctor.listed() == doctor.files, "it left something behind")


def a_job_whose_place_is_taken(doctor):
    with socket.socket() as taken, contextlib.ExitStack() as gone:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        checks = doctor.ask("job.toml", f"cluster.listen={address}", code=1)
        doctor.expect_problem(checks, "port", f"cannot listen on {address}", "use a free port")
        checks = doctor.ask("job.toml", f"observe.metrics_listen={address}", code=1)
        doctor.expect_problem(checks, "port", f"observe.metrics_listen: cannot listen on {address}", "free port")
        other = doctor.folder / "other"
        other.mkdir()
        gone.callback(other.rmdir)
        (other / "thesis.tex").write_text("")
        gone.callback((other / "thesis.tex").unlink)
        doctor.expect_problem(doctor.ask("job.toml", "job.run_dir=other", code=1), "run folder", "'thesis.tex' is there", "choose a folder")
        doctor.expect_problem(doctor.ask("job.toml", "job.run_dir=/proc/runs", code=1), "run folder", "a file cannot be made", "job.run_dir")
        interface = doctor.ask("job.toml", "cluster.data_interface=nowhere0", code=1)
        doctor.expect_problem(interface, "network", "cluster.data_interface = nowhere0", "use one of ")


def a_job_that_runs_already(doctor):
    (doctor.folder / "endless").mkdir()
    train = subprocess.Popen([doctor.binary, "train", "job.toml", "job.run_dir=endless/run", "train.steps=1000000"], cwd=doctor.folder,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (doctor.folder / "endless/run/metrics.jsonl").exists():
            expect(train.poll() is None and time.monotonic() < deadline, "it does not train")
            time.sleep(0.05)
        checks = doctor.ask("job.toml", "job.run_dir=endless/run", code=1)
        doctor.expect_problem(checks, "run folder", "another job writes it now", "job.run_dir")
    finally:
        train.terminate()
        train.communicate(timeout=60)


def a_key_that_others_may_read(doctor):
    key = doctor.folder / "first.key"
    subprocess.run([doctor.binary, "key", "new", str(key)], check=True, capture_output=True)
    found = doctor.ask("job.toml", f"cluster.key={key}", code=0)["key"]["found"]
    expect("first.key" in found, found)
    key.chmod(0o644)
    doctor.expect_problem(doctor.ask("job.toml", f"cluster.key={key}", code=1), "key", "first.key", "chmod 600")
    key.unlink()
    doctor.expect_problem(doctor.ask("job.toml", code=1, TROUPE_KEY="short"), "key", "TROUPE_KEY", "")


def data_that_are_wrong(doctor):
    broken = doctor.folder / "broken.json"
    broken.write_text("[{]")
    doctor.expect_problem(doctor.ask("job.toml", f'data.sources[0].json="{broken}"', code=1), "data", "broken.json", "")
    broken.unlink()


def a_job_file_that_is_wrong(doctor):
    """The machine is looked at all the same."""
    checks = doctor.ask("job.toml", "train.step=3", "optimizer.lr=-1", code=2)
    doctor.expect_problem(checks, "job", "2 problems in all", "troupe validate job.toml")
    expect("disk" in checks and "data" not in checks, f"the checks are {list(checks)}")
    doctor.expect_problem(doctor.ask("nowhere.toml", code=2), "job", "nowhere.toml", "")
    # What only the planner can tell `validate` and `doctor` find by the same function.
    checks = doctor.ask("job.toml", "cluster.local_nodes=7", "train.global_batch_size=1", "train.microbatches=1", code=2)
    doctor.expect_problem(checks, "job", "7 devices are more than the job can use", "nearest choice: 6 devices")


def a_model_that_does_not_fit(doctor):
    big = ["modules.llm.config={num_hidden_layers=80,hidden_size=8192,intermediate_size=28672,num_attention_heads=64}"]
    doctor.expect_problem(doctor.ask("job.toml", *big, code=1), "model", "", "")


def files_that_hang(doctor):
    for file, name in (("samples.json", "data"), ("job.toml", "job")):
        with StalledFile(doctor.folder / file):
            begin = time.monotonic()
            checks = doctor.ask("job.toml", "--timeout", "1.5", code=1 if name == "data" else 2)
            took = time.monotonic() - begin
        doctor.expect_problem(checks, name, "no answer within 1.5 s", "--timeout")
        expect(took < 20, f"it took {took:.0f} s")


CASES = (this_machine_can_run, a_folder_that_cannot_be_written, an_environment_that_no_job_survives, limits_that_are_too_low,
         a_job_that_can_run, a_job_whose_place_is_taken, a_job_that_runs_already, a_key_that_others_may_read, data_that_are_wrong,
         a_job_file_that_is_wrong, a_model_that_does_not_fit, files_that_hang)


def main(binary, names):
    cases = [case for case in CASES if not names or case.__name__ in names]
    with tempfile.TemporaryDirectory(prefix="troupe-doctor-") as name:
        doctor = Doctor(binary, pathlib.Path(name))
        return run_cases(cases, lambda case: case(doctor))


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]))
