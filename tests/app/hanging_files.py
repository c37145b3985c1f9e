#!/usr/bin/python3
"""Commands whose files hang, as on a network mount whose server is gone: each ends in time, and names the file.

    hanging_files.py TROUPE

One file of a run after the other (a run is trained for it), job files and what they extend, then a whole folder. Nothing
is changed by a command that could not read.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from dead_folder import dead_folder
from drawn_cases import named_or_third
from run_cases import Failure, expect, run_cases
from stalled_file import StalledFile

DEMO = ROOT / "configs" / "demo.toml"
LIMIT_S = 0.5
WITHIN_S = 20  # Many times what it takes; a wait without a limit lasts for 45 s and for ever.
RUN_LIMIT = ("--timeout", str(LIMIT_S))
JOB_LIMIT = f"data.read_timeout_s={LIMIT_S}"
ON_COMMAND_LINE = "data.read_timeout_s on the command line"


class Bench:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.run = binary, folder, folder / "run"
        self.data = f'data.sources=[{{json="{folder}/data/samples.json"}}]'
        self.troupe("data", "make", folder / "data")
        self.troupe("train", DEMO, self.data, f"job.run_dir={self.run}", "train.steps=2", "train.dump_gradients=true",
                    "checkpoint.every_steps=1")
        # As a job that runs leaves it; nobody listens there.
        control = self.run / "control"
        control.write_text(json.dumps({"host": "nowhere", "local": "127.0.0.1:9", "far": "127.0.0.1:9", "key": "0" * 64}),
                           encoding="utf-8")
        control.chmod(0o600)

    def troupe(self, *words):
        subprocess.run([self.binary, *map(str, words)], cwd=self.folder, check=True, capture_output=True, timeout=120)

    def expect_end(self, words, file, setting, done="read"):
        """Ends with exit code 1, and what, where, why and the fix."""
        try:
            ended = subprocess.run([self.binary, *map(str, words)], cwd=self.folder, capture_output=True, text=True,
                                   timeout=WITHIN_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"{words[:2]} waits for {file}: no end within {WITHIN_S} s") from None
        said = f"{words[:2]}: exit {ended.returncode}\n{ended.stdout[-400:]}{ended.stderr[-600:]}"
        expect(ended.returncode == 1 and not ended.stdout, said)
        expect(f"{setting}: {file} could not be {done} within {LIMIT_S} s: its file system does not answer" in ended.stderr,
               said)
        expect(f"fix: look at the disk or the network file system that holds it, then start again; raise {setting} where"
               in ended.stderr, said)


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def expect_ends_while_it_hangs(bench, file, commands, setting):
    before = contents(bench.run)
    for words in commands:
        with StalledFile(file):
            bench.expect_end(words, file, setting)
    expect(contents(bench.run) == before, f"a run was changed although {file.name} could not be read")


def every_file_of_a_run_that_a_report_or_trace_reads(bench):
    run = bench.run
    report = ["report", run, *RUN_LIMIT]
    timeline = ["trace", run, *RUN_LIMIT, "--step", "1", "--out", bench.folder / "step.html"]
    whole = ["trace", run, *RUN_LIMIT, "--out", bench.folder / "trace-copy.json"]
    step = ["trace", run, *RUN_LIMIT, "--step", "1", "--out", bench.folder / "step.json"]
    for name, commands in (("trace.json", [report, ["trace", run, *RUN_LIMIT], timeline, whole, step]),
                           ("predicted.json", [report, timeline]),
                           *((name, [report]) for name in ("metrics.jsonl", "plan.json", "resolved.toml", "bad_samples.jsonl",
                                                           "run.json", "events.jsonl"))):
        file = run / name
        made = not file.exists()
        if made:  # A run without such an event has no such file.
            file.touch()
        expect_ends_while_it_hangs(bench, file, commands, "--timeout")
        if made:
            file.unlink()
    lock = bench.folder / ".run.lock"  # Tells whether the run goes on.
    lock.touch()
    with StalledFile(lock):
        bench.expect_end(report, run, "--timeout")
    lock.unlink()
    expect(not any(bench.folder.glob("step.*")) and not (bench.folder / "trace-copy.json").exists(), "something was written")


def a_comparison_of_runs(bench):
    words = ["compare", bench.run, bench.run, *RUN_LIMIT]
    for name in ("model/model.safetensors", "metrics.jsonl", "gradients/step-1.safetensors"):
        expect_ends_while_it_hangs(bench, bench.run / name, [words], "--timeout")


def what_looks_into_a_run_besides(bench):
    expect_ends_while_it_hangs(bench, bench.run / "samples.jsonl", [["data", "audit", bench.run, *RUN_LIMIT]], "--timeout")
    expect_ends_while_it_hangs(bench, bench.run / "control", [["ctl", bench.run, *RUN_LIMIT, "status"], ["observe", bench.run, *RUN_LIMIT]], "--timeout")


def job_commands(bench, job):
    """All that read a job file; each would end by itself."""
    given = [job, bench.data, f"job.run_dir={bench.folder / 'never'}", JOB_LIMIT]
    policy = ["--policy", "dflop", "--cluster", "H100-80G"]
    return [["validate", *given], ["train", *given], ["train", "--reference", *given], ["plan", *given], ["simulate", *given],
            ["whatif", *given, "--join", "1"], ["balance", *given, *policy], ["profile", *given, "--out", bench.folder / "p.json"],
            ["data", "check", *given], ["data", "show", *given]]


def a_job_file_and_what_it_extends(bench):
    base, job = bench.folder / "base.toml", bench.folder / "job.toml"
    base.write_text(DEMO.read_text(encoding="utf-8"), encoding="utf-8")
    job.write_text('extends = "base.toml"\n', encoding="utf-8")
    for words in job_commands(bench, job):
        with StalledFile(job):
            bench.expect_end(words, job, ON_COMMAND_LINE)
    for words in job_commands(bench, job)[:2]:
        with StalledFile(base):
            bench.expect_end(words, base, ON_COMMAND_LINE)
    resolved = bench.run / "resolved.toml"
    expect_ends_while_it_hangs(bench, resolved, [["train", "--resume", bench.run, JOB_LIMIT]], ON_COMMAND_LINE)
    expect(not (bench.folder / "never").exists(), "a run folder was made for a job that could not be read")


def a_plug_in(bench):
    library = bench.folder / "plug-in.so"
    library.write_text("no library; it is not read as far as that", encoding="utf-8")
    for words in job_commands(bench, DEMO)[:4]:
        with StalledFile(library):
            bench.expect_end([*words, f'plugins.libraries=["{library}"]'], library, ON_COMMAND_LINE)


def a_profile_and_the_run_to_repeat(bench):
    """What planning and the oracle read besides."""
    profile = bench.folder / "profile.json"
    bench.troupe("profile", DEMO, bench.data, "--budget", "1", "--out", profile)
    job = [DEMO, bench.data, f"job.run_dir={bench.folder / 'never'}", JOB_LIMIT, f"scheduler.profile={profile}"]
    for words in (["plan", *job], ["balance", *job, "--policy", "dflop"], ["train", *job], ["profile", *job]):
        with StalledFile(profile):
            bench.expect_end(words, profile, "data.read_timeout_s")
    failures = bench.folder / "failures.csv"
    failures.write_text("0,add,a\n0,add,b\n1000,remove,a\n", encoding="utf-8")
    with StalledFile(failures):
        bench.expect_end(["replay", *job[:4], "--cluster", "2x1xH100-80G", "--failures", failures], failures,
                         "data.read_timeout_s")
    plan = bench.run / "plan.json"
    expect_ends_while_it_hangs(bench, plan, [["train", *job[:4], "--reference", "--microbatches", bench.run]], "data.read_timeout_s")


def a_folder_that_answers_nothing(bench):
    """Not even whether a file is there."""
    with dead_folder(bench.folder / "gone") as gone:
        for words in (["report", gone, *RUN_LIMIT], ["trace", gone, *RUN_LIMIT], ["compare", bench.run, gone, *RUN_LIMIT],
                      ["ctl", gone, *RUN_LIMIT, "status"], ["observe", gone, *RUN_LIMIT]):
            bench.expect_end(words, gone, "--timeout")
        for verb in ("list", "show", "verify"):
            bench.expect_end(["checkpoint", verb, gone, *RUN_LIMIT], gone, "--timeout")
        for words, use in ((["node", "--join", "127.0.0.1:9", "--key", gone / "key"], "read"),
                           (["key", "new", gone / "key"], "written"), (["solve", "partition", gone / "key"], "read")):
            bench.expect_end([*words, *RUN_LIMIT], gone / "key", "--timeout", use)
        own = [DEMO, bench.data, JOB_LIMIT]
        for words, folder in (([f"job.run_dir={gone}/run"], gone / "run"),
                              ([f"job.run_dir={bench.folder}/never", f"checkpoint.dir={gone}/saved"], gone / "saved")):
            bench.expect_end(["train", *own, *words], folder, "data.read_timeout_s", "written")
        page = gone / "page.html"
        for words in (["report", bench.run, "--out", page], ["trace", bench.run, "--step", "1", "--out", page]):
            bench.expect_end([*words, *RUN_LIMIT], page, "--timeout", "written")
        for words in job_commands(bench, gone / "job.toml"):
            bench.expect_end(words, gone / "job.toml", ON_COMMAND_LINE)
        # The job is here; its data are there.
        samples = gone / "samples.json"
        bench.expect_end(["validate", DEMO, f'data.sources=[{{json="{samples}"}}]', JOB_LIMIT], samples, ON_COMMAND_LINE)
        bench.expect_end(["train", "--resume", gone, JOB_LIMIT], gone, ON_COMMAND_LINE)


def a_folder_of_parameters_that_answers_nothing(bench):
    """The run itself is there."""
    half = bench.folder / "half"
    half.mkdir()
    with dead_folder(half / "model") as model:
        bench.expect_end(["compare", bench.run, half, *RUN_LIMIT], model, "--timeout")


def all_is_well_once_files_can_be_read(bench):
    """With the same limits."""
    for words in (["report", bench.run, *RUN_LIMIT], ["trace", bench.run, *RUN_LIMIT],
                  ["compare", bench.run, bench.run, *RUN_LIMIT, "--rtol", "0"], ["data", "audit", bench.run, *RUN_LIMIT],
                  ["validate", DEMO, bench.data, JOB_LIMIT]):
        bench.troupe(*words)


CASES = (every_file_of_a_run_that_a_report_or_trace_reads, a_comparison_of_runs, what_looks_into_a_run_besides,
         a_job_file_and_what_it_extends, a_plug_in, a_profile_and_the_run_to_repeat, a_folder_that_answers_nothing,
         a_folder_of_parameters_that_answers_nothing, all_is_well_once_files_can_be_read)


def main():
    binary, wanted = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="troupe-hanging-") as name:
        bench = Bench(binary, pathlib.Path(name))
        return run_cases(named_or_third(CASES, wanted), lambda case: case(bench))


if __name__ == "__main__":
    sys.exit(main())
