#!/usr/bin/python3
"""The examples for Slurm and Kubernetes: their files are sound, and what they start finds together, ends and goes on.

    cluster_examples.py TROUPE [CASE...]          prints `N passed, M failed, K skipped` last

Three machines are three processes here, with the environment that Slurm or Kubernetes gives them. slurm.sbatch itself
runs between an srun and an scontrol that stand in for Slurm's. Neither a Slurm nor a Kubernetes is needed, or asked.
"""

import inspect
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from drawn_cases import named_or_third
from fake_slurm import FAKE_SCONTROL, FAKE_SRUN
from recorded_runs import read_lines_so_far
from run_cases import Failure, Skipped, expect, run_cases

CLUSTER = ROOT / "examples" / "cluster"
START, SBATCH, MANIFEST = CLUSTER / "start.sh", CLUSTER / "slurm.sbatch", CLUSTER / "kubernetes.yaml"
JOB = ROOT / "configs" / "demo.toml"
MACHINES = 3
STEPS = 60
LAYOUT = ('parallel.pipelines=[{stages=[{node=0,vision="all",audio="all"},{node=1,llm=[0,3]},{node=2,llm=[3,6]}]}]')
# A copy of the model on each machine.
COPIES = "parallel.pipelines=[" + ",".join(
    f'{{stages=[{{node={node},vision="all",audio="all",llm="all"}}]}}' for node in range(MACHINES)) + "]"
WITHIN_S = 60  # What only a failure takes.


def text_of(path):
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def is_group(number):
    """Whether a process of this group is there."""
    try:
        os.killpg(number, 0)
        return True
    except ProcessLookupError:
        return False


def free_port():
    """One of those that slurm.sbatch makes of job ids."""
    for port in range(20000 + os.getpid() % 5000, 30000):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                return port
            except OSError:
                continue
    raise Skipped("no port between 20000 and 30000 is free")


class Bench:
    """A folder that all machines share, the job in it, and the processes that a case starts."""

    def __init__(self, binary, data, folder):
        self.binary, self.data, self.folder = binary, data, folder
        self.run_dir, self.port, self.layout = folder / "run", free_port(), LAYOUT
        self.processes = []
        (folder / "examples").symlink_to(ROOT / "examples")

    def job(self):
        """The arguments of start.sh: quotes and brackets have to come through."""
        return [str(JOB), f'data.sources=[{{json="{self.data}/samples.json"}}]', self.layout, f"job.run_dir={self.run_dir}",
                f"scheduler.profile={self.data}/profile.json", f"train.steps={STEPS}"]

    def start(self, command, log, **variables):
        known = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "TROUPE", "JOB_"))}
        with open(log, "w", encoding="utf-8") as output:
            process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, env={**known, **variables}, start_new_session=True)
        self.processes.append(process)
        return process

    # The machines, as each launcher starts them.

    def sbatch(self, **variables):
        """slurm.sbatch as slurmd runs it on the first machine."""
        slurm = self.folder / "slurm"
        if not slurm.exists():
            (slurm / "bin").mkdir(parents=True)
            for name, text in (("srun", FAKE_SRUN), ("scontrol", FAKE_SCONTROL)):
                (slurm / "bin" / name).write_text(text, encoding="utf-8")
                (slurm / "bin" / name).chmod(0o755)
        return self.start(["bash", str(SBATCH), *self.job()], self.folder / "sbatch.log", TROUPE=str(self.binary),
                          PATH=f"{slurm}/bin:{os.environ['PATH']}", FAKE_SLURM=str(slurm), SLURMD_NODENAME="127.0.0.1",
                          SLURM_JOB_ID=str(self.port - 20000), SLURM_NTASKS=str(MACHINES), SLURM_CPUS_PER_TASK="1",
                          SLURM_NODEID="0", SLURM_PROCID="0", **variables)

    def tasks(self):
        """Process ids of start.sh on each machine."""
        return [int(file.read_text()) for file in sorted((self.folder / "slurm").glob("*.pid"))]

    def task_codes(self):
        return [int(code) for code in text_of(self.folder / "slurm" / "codes").split()]

    def pod(self, index, **variables):
        given = {"JOB_COMPLETION_INDEX": str(index), "TROUPE_NODES": str(MACHINES), "TROUPE_HEAD": "127.0.0.1",
                 "TROUPE_KEY": "5a" * 32, "TROUPE_PORT": str(self.port), "TROUPE": str(self.binary), **variables}
        return self.start(["/bin/bash", str(START), *self.job()], self.folder / f"pod-{index}.log", **given)

    def pods(self, **variables):
        """In order of their indexes. The head is started last: a machine that comes before it waits for it."""
        return [self.pod(index, **variables) for index in reversed(range(MACHINES))][::-1]

    def kill_all(self):
        """What a failed case left behind: what it has started leads process groups of its own."""
        for group in [process.pid for process in self.processes] + self.tasks():
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes:
            process.wait()

    def steps(self):
        return read_lines_so_far(self.run_dir / "metrics.jsonl")

    def said(self):
        return text_of(self.run_dir / "train.log")

    def wait_until(self, is_so, what):
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            expect(time.monotonic() < deadline, f"not within {WITHIN_S} s: {what}\n{self.logs()}")
            time.sleep(0.02)

    def wait_for_steps(self, count):
        self.wait_until(lambda: len(self.steps()) >= count, f"{count} steps")

    def logs(self):
        return "\n".join(f"--- {log.name}\n{text_of(log)[-1200:]}" for log in sorted(self.folder.glob("**/*.log"))
                         if self.run_dir not in log.parents)

    def ends(self, processes, codes):
        deadline = time.monotonic() + WITHIN_S
        for process in processes:
            try:
                process.wait(max(1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Failure(f"did not end within {WITHIN_S} s\n{self.logs()}") from None
        found = [process.returncode for process in processes]
        expect(found == codes, f"exit codes {found}, expected {codes}\n{self.logs()}")
        for process in processes:
            self.wait_until(lambda: not is_group(process.pid), "processes that were left behind ended")

    def expect_whole_run(self, resumed_after=None):
        expect([step["step"] for step in self.steps()] == list(range(1, STEPS + 1)), "each step was to stand once")
        expect((self.run_dir / "model").is_dir(), "there is no model")
        if resumed_after is None:
            return
        expect(f"going on after step {resumed_after}," in self.said(), "it did not go on from what was saved")
        generations = [step["generation"] for step in self.steps()]
        expect(generations[resumed_after - 1] < generations[resumed_after], f"generations {generations}")

    def saved_step(self):
        """The newest checkpoint."""
        saved = [int(folder.name[5:]) for folder in (self.run_dir / "checkpoints").glob("step-*")]
        expect(saved, f"nothing was saved\n{self.logs()}")
        return max(saved)


# ---- the files ------------------------------------------------------------------------------------


def the_scripts_are_shell_that_parses(bench):
    for script in (START, SBATCH):
        run = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
        expect(run.returncode == 0, run.stderr)
    expect(os.access(START, os.X_OK), "start.sh cannot be executed")


def shellcheck_finds_nothing(bench):
    if not shutil.which("shellcheck"):
        raise Skipped("shellcheck is not installed")
    run = subprocess.run(["shellcheck", str(START), str(SBATCH)], capture_output=True, text=True, check=False)
    expect(run.returncode == 0, run.stdout)


def slurm_is_told_to_signal_the_tasks_and_to_requeue(bench):
    lines = SBATCH.read_text(encoding="utf-8").splitlines()
    options = [line.split(maxsplit=1)[1] for line in lines if line.startswith("#SBATCH")]
    for option in ("--ntasks-per-node=1", "--signal=TERM@120", "--requeue", "--open-mode=append"):
        expect(option in options, f"{option} is not among {options}")
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    expect(not any(line.startswith("#SBATCH") for line in lines[first_command:]), "sbatch reads none behind a command")


def the_head_ends_before_it_is_killed(bench):
    """Its time to stop, a node's to leave, and the seconds that they end within fit between SIGTERM and SIGKILL."""
    (stop_s,) = re.findall(r"cluster\.stop_timeout_s=(\d+)", START.read_text(encoding="utf-8"))
    (drain_s,) = re.findall(r"cluster\.drain_timeout_s=(\d+)", START.read_text(encoding="utf-8"))
    (evicted_s,) = re.findall(r"TROUPE_EVICTED_S:-(\d+)", START.read_text(encoding="utf-8"))
    (slurm_s,) = re.findall(r"^#SBATCH --signal=TERM@(\d+)$", SBATCH.read_text(encoding="utf-8"), re.MULTILINE)
    (pod_s,) = re.findall(r"terminationGracePeriodSeconds: (\d+)", MANIFEST.read_text(encoding="utf-8"))
    expect(int(stop_s) + 15 <= int(slurm_s), f"{stop_s} s of {slurm_s} s")
    for which_s in (stop_s, drain_s):
        expect(int(evicted_s) + int(which_s) + 5 <= int(pod_s), f"{evicted_s} and {which_s} s of {pod_s} s")


def the_manifest_says_what_the_job_needs(bench):
    try:
        import yaml
    except ImportError:
        raise Skipped("python3-yaml is not installed") from None
    service, claim, job = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
    expect([thing["kind"] for thing in (service, claim, job)] == ["Service", "PersistentVolumeClaim", "Job"], "kinds")
    spec, pods_spec = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pods_spec["containers"]
    variables = {entry["name"]: entry for entry in container["env"]}
    count = spec["completions"]
    expect(spec["completionMode"] == "Indexed" and spec["parallelism"] == count, "all machines run at once")
    expect(variables["TROUPE_NODES"]["value"] == str(count), "TROUPE_NODES is another number of machines")

    name, domain = variables["TROUPE_HEAD"]["value"].split(".")
    expect(name == f"{job['metadata']['name']}-0", "the head is the pod of index 0")
    expect(domain == pods_spec["subdomain"] == service["metadata"]["name"], "its name is the Service's")
    expect(service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"], "headless, at once")
    labels = job["spec"]["template"]["metadata"]["labels"]
    expect(service["spec"]["selector"].items() <= labels.items(), "the Service selects other pods")

    expect("secretKeyRef" in variables["TROUPE_KEY"]["valueFrom"], "the key comes from a Secret")
    expect("ReadWriteMany" in claim["spec"]["accessModes"], "all machines write to the volume")
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pods_spec["volumes"]
              if "persistentVolumeClaim" in volume]
    expect(claims == [claim["metadata"]["name"]], "the claim is not mounted")
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    expect(mounted == {volume["name"] for volume in pods_spec["volumes"]}, "volumes and mounts differ")

    expect(pods_spec["restartPolicy"] == "Never", "a podFailurePolicy needs restartPolicy: Never")
    actions = {code: rule["action"] for rule in spec["podFailurePolicy"]["rules"] if "onExitCodes" in rule
               for code in rule["onExitCodes"]["values"]}
    expect(actions == {1: "FailJob", 2: "FailJob", 3: "FailJob", 75: "Ignore"}, f"actions by exit code: {actions}")
    by_code = [rule["onExitCodes"] for rule in spec["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    named = {rule["containerName"] for rule in by_code}
    expect(named == {container["name"]}, "rules of another container")
    expect(spec["podReplacementPolicy"] == "Failed", "two pods of an index at once")
    expect(spec["successPolicy"]["rules"] == [{"succeededIndexes": "0"}], "the head says when the job is done")
    # Else a Service of this name defines TROUPE_PORT.
    expect(pods_spec["enableServiceLinks"] is False, "Services define variables of start.sh")
    documented = set(re.findall(r"^# (TROUPE\w*) ", START.read_text(encoding="utf-8"), re.MULTILINE)) | {"TROUPE_KEY"}
    expect(set(variables) <= documented | {"TROUPE_NODES"}, f"start.sh knows no such variables: {set(variables)}")


def what_start_sh_is_not_told_is_named(bench):
    slurm = {"SLURM_NODEID": "1", "SLURM_NTASKS": "3"}
    kubernetes = {"JOB_COMPLETION_INDEX": "1", "TROUPE_NODES": "3", "TROUPE_HEAD": "a"}
    for variables, word in (({}, "neither SLURM_NODEID nor JOB_COMPLETION_INDEX"),
                            (slurm, "TROUPE_HEAD is not set"),
                            ({**slurm, "TROUPE_HEAD": "a"}, "neither TROUPE_KEY nor TROUPE_KEY_FILE"),
                            ({**slurm, "SLURM_STEP_NUM_NODES": "2"}, "3 tasks on 2 machines"),
                            ({"JOB_COMPLETION_INDEX": "1", "TROUPE_HEAD": "a"}, "how many machines?"),
                            (kubernetes, "neither TROUPE_KEY nor TROUPE_KEY_FILE")):
        log = bench.folder / "refused.log"
        bench.ends([bench.start(["bash", str(START), "job.toml"], log, **variables)], [2])
        expect(word in text_of(log), f"'{word}' is missing:\n{text_of(log)}")


# ---- Slurm ----------------------------------------------------------------------------------------


def a_slurm_job_that_is_signalled_is_requeued_and_goes_on(bench):
    batch = bench.sbatch()
    bench.wait_for_steps(5)
    for task in bench.tasks():  # As slurmstepd does with proctrack/cgroup: not what the tasks have started.
        os.kill(task, signal.SIGTERM)
    bench.ends([batch], [75])
    expect(bench.task_codes() == [75, 0, 0], f"the head's code is to decide: {bench.task_codes()}")
    expect(text_of(bench.folder / "slurm" / "scontrol") == f"requeue {bench.port - 20000}\n", "it was not requeued")
    key = bench.folder / "runs" / "cluster.key"
    made = key.read_bytes()
    expect(key.stat().st_mode & 0o777 == 0o600, f"the key has mode {key.stat().st_mode & 0o777:o}")
    saved = bench.saved_step()
    expect(len(bench.steps()) == saved < STEPS, f"{len(bench.steps())} steps, saved {saved}")

    bench.ends([bench.sbatch()], [0])
    expect(bench.task_codes() == [0, 0, 0], f"{bench.task_codes()}")
    bench.expect_whole_run(resumed_after=saved)
    expect(key.read_bytes() == made, "another key was made")
    expect(text_of(bench.folder / "slurm" / "scontrol").count("requeue") == 1, "a job that is done was requeued")


def a_slurm_job_that_is_wrong_is_not_requeued(bench):
    bench.run_dir.write_text("a file in the way", encoding="utf-8")
    # Who looks for a head that has ended is killed.
    bench.ends([bench.sbatch(FAKE_WAIT_S="2")], [128 + signal.SIGKILL])
    expect(bench.task_codes() == [2, 137, 137], f"{bench.task_codes()}\n{bench.logs()}")
    expect(not (bench.folder / "slurm" / "scontrol").exists(), "it was requeued")


# ---- Kubernetes -----------------------------------------------------------------------------------


def pods_train_to_the_end_and_save_when_asked(bench):
    started = bench.pods()
    bench.wait_for_steps(3)
    for process in started:
        process.send_signal(signal.SIGUSR1)
    bench.ends(started, [0, 0, 0])
    bench.expect_whole_run()
    expect(3 <= bench.saved_step() < STEPS, "SIGUSR1 did not save")


def pods_that_end_together_are_saved_and_go_on(bench):
    started = bench.pods()
    bench.wait_for_steps(5)
    for process in started:
        process.terminate()
    bench.ends(started, [75, 75, 75])
    saved = bench.saved_step()
    bench.ends(bench.pods(), [0, 0, 0])
    bench.expect_whole_run(resumed_after=saved)


def a_pod_that_is_evicted_alone_leaves_and_the_job_goes_on(bench):
    started = bench.pods(TROUPE_EVICTED_S="1")
    bench.wait_for_steps(5)
    started[2].terminate()
    bench.ends(started, [0, 0, 75])
    events = read_lines_so_far(bench.run_dir / "events.jsonl")
    expect([event["nodes"] for event in events if event["kind"] == "drained"] == [[2]], f"events: {events}")
    steps = [line["step"] for line in bench.steps()]
    expect(steps == list(range(1, len(steps) + 1)), "a step was lost")


def pods_of_a_head_that_had_state_alone_begin_anew(bench):
    started = bench.pods()
    bench.wait_for_steps(2)
    os.killpg(started[0].pid, signal.SIGKILL)
    bench.ends([bench.pod(0), *started[1:]], [0, 0, 0])
    bench.expect_whole_run()
    expect("begins again" in text_of(bench.folder / "pod-1.log"), "it did not begin anew")


def pods_begin_again_where_another_one_had_state_alone(bench):
    started = bench.pods()
    bench.wait_for_steps(3)
    started[0].send_signal(signal.SIGUSR1)
    bench.wait_until(lambda: list(bench.run_dir.glob("checkpoints/step-*/manifest.json")), "a checkpoint")
    saved = bench.saved_step()
    os.killpg(started[1].pid, signal.SIGKILL)
    # A pod that comes before its loss is noticed is refused, ends with 75 and is replaced.
    bench.wait_until(lambda: "begins again" in bench.said(), "the loss")
    bench.ends([started[0], bench.pod(1), started[2]], [0, 0, 0])
    bench.expect_whole_run(resumed_after=saved)


def the_next_pod_of_a_head_goes_on_with_the_state_of_the_others(bench):
    bench.layout = COPIES
    started = bench.pods()
    bench.wait_for_steps(5)
    os.killpg(started[0].pid, signal.SIGKILL)
    bench.ends([bench.pod(0), *started[1:]], [0, 0, 0])
    bench.expect_whole_run()
    events = read_lines_so_far(bench.run_dir / "events.jsonl")
    expect(["head-lost", [0]] in [[event["kind"], event["nodes"]] for event in events], f"events: {events}")


def is_case(value):
    return inspect.isfunction(value) and list(inspect.signature(value).parameters) == ["bench"]


def main(binary, wanted):
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="troupe-cluster-") as name:
        base = pathlib.Path(name)
        data = base / "data"
        subprocess.run([binary, "data", "make", str(data)], check=True, capture_output=True)
        subprocess.run([binary, "profile", str(JOB), f'data.sources=[{{json="{data}/samples.json"}}]', "--budget", "1",
                        "--out", str(data / "profile.json")], check=True, capture_output=True)

        def run(case):
            bench = Bench(binary, data, pathlib.Path(tempfile.mkdtemp(dir=base)))
            try:
                case(bench)
            finally:
                bench.kill_all()

        cases = [value for value in globals().values() if is_case(value)]
        return run_cases(named_or_third(cases, wanted), run)


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:]))
