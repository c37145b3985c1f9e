"""A folder of checkpoints that is full, read-only or hangs while a job trains, and what saved state is read from that hangs.

    checkpoint_trouble.py BINARY [CASE...]     prints `N passed, M failed, K skipped` last

Each time: a warning that says what, where and the fix; training goes on and ends with the reference's parameters; the last good
checkpoint stays whole, and the job goes on from it. Full and read-only folders are small file systems of their own: without
the right to mount those cases are skipped.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "engine"))
sys.path.insert(0, str(ROOT / "tests" / "support"))

from checkpoints import ALONE, CUT, FP64, JOB, Bench, expect, same_bits, steps_of, wait_for  # noqa: E402
from stalled_file import NoLeases, StalledFile  # noqa: E402
from tests.support.run_cases import Skipped, run_cases  # noqa: E402

LAST = 6  # Steps of a job of checkpoints.py.


@contextlib.contextmanager
def small_file_system(folder, size):
    """Mounted there, of so many bytes."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True,
                             text=True)
    if mounted.returncode != 0:
        raise Skipped(f"cannot mount a file system here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def steps_in(folder):
    return sorted(int(path.name[5:]) for path in folder.glob("step-*"))


def bytes_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def warnings_of(output):
    return [line for line in output.splitlines() if "no checkpoint of step" in line]


def expect_gone_on(bench, name, folder, saved):
    """What every trouble leaves: the whole run, the last good checkpoint, nothing half, and a job that goes on from it."""
    expect(steps_of(bench.path(name)) == list(range(1, LAST + 1)), f"steps {steps_of(bench.path(name))}")
    bench.equal(bench.reference("all"), bench.path(name), 1e-10)
    expect(steps_in(folder) == saved, f"checkpoints {steps_in(folder)} instead of {saved}")
    left = [path.name for path in folder.iterdir() if not path.name.startswith("step-")]
    expect(left == [], f"left behind: {left}")
    bench.run(["checkpoint", "verify", str(folder)])


def a_full_folder(bench):
    """There is room for one checkpoint and a half."""
    bench.train("measured", FP64, *CUT, f"checkpoint.every_steps={LAST}")
    size = bytes_of(bench.path("measured") / "checkpoints" / f"step-{LAST}")
    with small_file_system(bench.folder / "full", size * 3 // 2) as folder:
        output = bench.train("full-run", FP64, *CUT, "checkpoint.every_steps=2", f"checkpoint.dir={folder}")
        expect(len(warnings_of(output)) == 2, output[-2500:])
        expect("No space left on device" in output and "fix: free some disk space" in output, output[-2500:])
        expect("training goes on; the newest checkpoint is that of step 2" in output, output[-2500:])
        expect_gone_on(bench, "full-run", folder, [2])
        # Beyond the checkpoint nothing was lost but time.
        output = bench.train("full-run", FP64, *CUT, "--resume", f"checkpoint.dir={folder}")
        expect("going on after step 2" in output, output[:800])
        same_bits(bench.path("measured"), bench.path("full-run"))


def fill(folder):
    """All of its room, to the last byte; returns the file that takes it."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return filler


def a_full_disk_of_the_run(bench):
    """Lines of the run folder wait until there is room again; a job is stopped in between and goes on."""
    words = [FP64, *ALONE, "checkpoint.every_steps=20", "train.steps=100000"]
    with small_file_system(bench.folder / "full-disk", 64 << 20) as folder:
        run = folder / "run"
        process = bench.popen(["train", str(JOB), *bench.job, f"job.run_dir={run}", *words])
        wait_for(lambda: steps_in(run / "checkpoints"), process)
        filler = fill(folder)
        stuck = len(steps_of(run))
        status = ["ctl", str(run), "status"]
        step = lambda: int(re.search(r"step (\d+)", bench.run(status)).group(1))  # noqa: E731
        first = step()
        wait_for(lambda: step() > first + 60, process)
        expect(len(steps_of(run)) < stuck + 60, "the disk was not full")
        filler.unlink()
        wait_for(lambda: len(steps_of(run)) > first + 60, process)
        process.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=60)[0]
        expect(process.returncode == 75, f"exit {process.returncode}\n{output[-1500:]}")
        expect(output.count("lines are kept in memory until they can be written") == 1, output[-2500:])
        expect("fix: free some disk space" in output and "no line is missing" in output, output[-2500:])
        for file in ("metrics.jsonl", "samples.jsonl", "iterations.jsonl"):
            steps = steps_of(run, file)
            expect(steps == list(range(1, len(steps) + 1)), f"{file}: {steps}")
        output = bench.run(["train", str(JOB), *bench.job, f"job.run_dir={run}", *words[:-1],
                            f"train.steps={len(steps_of(run)) + 2}"])
        expect("going on after step" in output, output[:800])


# Window: the run folder's disk fails
def a_run_folder_that_cannot_take_a_new_plan(bench):
    """Whoever reads what follows needs it: the job ends, once its last step is saved on another disk, and goes on from there."""
    saved = bench.path("saved-elsewhere")
    with small_file_system(bench.folder / "full-run-folder", 64 << 20) as folder:
        run = folder / "run"
        words = ["train", str(JOB), *bench.job, f"job.run_dir={run}", f"checkpoint.dir={saved}", FP64]
        process = bench.popen([*words, "train.steps=100000"])
        wait_for(lambda: len(steps_of(run)) >= 3, process)
        filler = fill(folder)
        bench.run(["ctl", str(run), "drain", "1"])
        output = process.communicate(timeout=60)[0]
        expect(process.returncode == 75, f"exit {process.returncode}\n{output[-2500:]}")
        steps = steps_in(saved)
        expect(len(steps) == 1 and steps[0] >= 3, f"saved: {steps}\n{output[-2500:]}")
        expect("No space left on device" in output, output[-2500:])
        expect(f"step {steps[0]} is saved: the same command goes on from there ({saved}" in output, output[-2500:])
        filler.unlink()
        output = bench.run([*words, f"train.steps={steps[0] + 2}"])
        expect(f"going on after step {steps[0]}" in output, output[:800])


def a_folder_becomes_read_only(bench):
    with small_file_system(bench.folder / "read-only", 64 << 20) as folder:
        run = bench.path("read-only-run")
        process = bench.popen(["train", str(JOB), *bench.job, f"job.run_dir={run}", FP64, *CUT, "checkpoint.every_steps=1",
                               f"checkpoint.dir={folder}", "train.steps=100000"])
        wait_for(lambda: steps_in(folder), process)
        # While a file is open for writing the kernel refuses.
        wait_for(lambda: subprocess.run(["mount", "-o", "remount,ro", str(folder)], capture_output=True,
                                        check=False).returncode == 0, process)
        saved = steps_in(folder)
        count = len(steps_of(run))
        wait_for(lambda: len(steps_of(run)) > count + 4, process)
        process.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=60)[0]
        expect(process.returncode == 75, f"exit {process.returncode}\n{output[-1500:]}")
        expect("Read-only file system" in output and str(folder) in output, output[-2500:])
        expect(f"the newest checkpoint is that of step {saved[-1]}" in output, output[-2500:])
        expect(steps_in(folder) == saved, f"{steps_in(folder)} instead of {saved}")
        expect(f"step {saved[-1]} is saved and what followed is lost" in output, output[-1500:])
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
        bench.run(["checkpoint", "verify", str(folder)])
        output = bench.train("read-only-run", FP64, *CUT, f"checkpoint.dir={folder}", f"train.steps={saved[-1] + 2}",
                             "checkpoint.every_steps=1")
        expect(f"going on after step {saved[-1]}" in output, output[:800])


def a_folder_hangs(bench):
    """Whoever opens a pipe that nobody reads waits, as for a server that is gone: a node's file, under the name that it is
    written by. The save is given up in time, the next ones say what holds them up, and all is well once the pipe is gone."""
    run = bench.path("hanging-run")
    folder = run / "checkpoints"
    process = bench.popen(["train", str(JOB), *bench.job, f"job.run_dir={run}", FP64, *ALONE, "checkpoint.every_steps=20",
                           "checkpoint.timeout_s=1", "train.steps=100000"])
    wait_for(lambda: len(steps_of(run)) >= 2, process)
    partial = folder / ".step-20.partial-1"
    partial.mkdir()
    pipes = [partial / f"state-0.0.safetensors.tmp-{pid}" for pid in family_of(process.pid)]
    spares = [bench.folder / pipe.name for pipe in pipes]  # The save's own names go when it is given up.
    for pipe, spare in zip(pipes, spares):
        os.mkfifo(spare)
        os.link(spare, pipe)
    expect(len(steps_of(run)) < 20, "the pipes came too late")
    wait_for(lambda: "was not written within 1 s" in (run / "train.log").read_text(encoding="utf-8"), process,
             within=150)
    count = len(steps_of(run))
    wait_for(lambda: len(steps_of(run)) > count + 25, process, within=150)  # It trains, and more saves come and go.
    log = (run / "train.log").read_text(encoding="utf-8")
    expect("look at this file system, or raise checkpoint.timeout_s" in log and "training goes on" in log, log[-2500:])
    expect("the checkpoint before is still being written" in log, log[-2500:])
    expect(steps_in(folder) == [], f"saved {steps_in(folder)} beside a write that hangs")
    for spare in spares:  # Somebody reads: the writer comes back. Nobody waits where nobody writes.
        threading.Thread(target=spare.read_bytes, daemon=True).start()
    wait_for(lambda: steps_in(folder), process, within=150)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=60)[0]
    expect(process.returncode == 75, f"exit {process.returncode}\n{output[-1500:]}")
    last = steps_in(folder)[-1]
    expect(re.search(rf"step {last} is saved: the same command goes on", output), output[-1500:])
    bench.run(["checkpoint", "verify", str(folder)])


@contextlib.contextmanager
def stalled(file):
    """Nobody can open it meanwhile."""
    try:
        with StalledFile(file):
            yield
    except NoLeases as why:  # The script's own kind of it.
        raise Skipped(str(why)) from None


def expect_stall(bench, words, file, setting, within=40):
    """The command ends soon, names the file and says what to raise."""
    begin = time.monotonic()
    output = bench.run(words, code=1, timeout=within)
    expect(f"{setting}: {file} could not be read within 1 s" in output and f"raise {setting}" in output, output[-1500:])
    expect(time.monotonic() - begin < within, "it took too long")


def saved_state_that_hangs(bench):
    """A checkpoint's manifest, then a file of its state: who goes on from it, looks at it or begins with it."""
    bench.train("stalled", FP64, *CUT, "checkpoint.every_steps=3", "train.steps=6")
    run = bench.path("stalled")
    saved = run / "checkpoints" / "step-6"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    limit, go_on = "data.read_timeout_s=1", ["train", str(JOB), *bench.job, f"job.run_dir={run}", FP64, *CUT, "train.steps=9"]
    begin_with = [f"modules.llm.init={saved}", f"job.run_dir={bench.path('pupil')}"]
    look = [(["checkpoint", verb, str(run), "--timeout", "1"], "--timeout") for verb in ("list", "show", "verify")]
    setting = "data.read_timeout_s"
    train = [([*go_on, "--resume", limit], setting), (["validate", str(JOB), *bench.job, limit, *begin_with], setting),
             (["train", str(JOB), *bench.job, limit, *begin_with], setting)]
    going_on = (saved / "resolved.toml", run / "plan.json", run / "metrics.jsonl")
    for file, commands in ((saved / "manifest.json", [*look, *train]), (saved / "state-0.0.safetensors", [look[2], *train]),
                           (run / "resolved.toml", look), *((file, train[:1]) for file in going_on)):
        for words, named in commands:
            with stalled(file):
                expect_stall(bench, words, file, named)
    expect(not bench.path("pupil").exists(), "a run folder was made for a job that cannot begin")
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    expect(before == after, f"changed: {[str(path) for path in before if after.get(path) != before[path]]}")
    # Weights in a file of their own.
    model = run / "model" / "model.safetensors"
    with stalled(model):
        expect_stall(bench, ["validate", str(JOB), *bench.job, limit, f"modules.llm.init={model}"], model, setting)
    # All is well once the server is back.
    output = bench.run([*go_on, "--resume", limit])
    expect("going on after step 6" in output, output[:800])


def pipes_in_place_of_files(bench):
    """Whoever opens a pipe that nobody writes waits, as for a server that is gone."""
    bench.train("piped", FP64, *ALONE, "checkpoint.every_steps=3", "train.steps=3")
    run = bench.path("piped")
    for file, words, setting in (
            (run / "run.json", ["train", str(JOB), *bench.job, f"job.run_dir={run}", FP64, *ALONE, "data.read_timeout_s=1"], "data.read_timeout_s"),
            (run / "resolved.toml", ["checkpoint", "list", str(run), "--timeout", "1"], "--timeout")):
        aside = file.with_suffix(".aside")
        file.rename(aside)
        os.mkfifo(file)
        expect_stall(bench, words, file, setting)
        file.unlink()
        aside.rename(file)


def a_node_whose_checkpoint_hangs(bench):
    """The head has read it; when the nodes come to it, its server is gone."""
    bench.train("node-stalled", FP64, *CUT, "checkpoint.every_steps=3", "train.steps=3")
    run = bench.path("node-stalled")
    file = run / "checkpoints" / "step-3" / "state-0.0.safetensors"
    process = bench.popen(["train", str(JOB), *bench.job, f"job.run_dir={run}", FP64, *CUT, "train.steps=6", "--resume",
                           "data.read_timeout_s=1"])
    try:
        while "going on after step 3" not in (line := process.stdout.readline()):
            expect(line, f"exit {process.wait()}: it did not go on")
        with stalled(file):
            output = process.communicate(timeout=40)[0]
    finally:
        process.kill()
        process.wait()
    expect(process.returncode == 1, f"exit {process.returncode}\n{output[-1500:]}")
    expect(f"{file} could not be read within 1 s" in output and "raise data.read_timeout_s" in output, output[-1500:])


def family_of(pid):
    """A process and its children."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *map(int, children)]


CASES = [a_full_folder, a_full_disk_of_the_run, a_run_folder_that_cannot_take_a_new_plan, a_folder_becomes_read_only, a_folder_hangs,
         saved_state_that_hangs, pipes_in_place_of_files, a_node_whose_checkpoint_hangs]


def main():
    binary, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    cases = [case for case in CASES if not names or case.__name__ in names]
    with tempfile.TemporaryDirectory(prefix="troupe-trouble-") as name:
        bench = Bench(binary, pathlib.Path(name))
        return run_cases(cases, lambda case: case(bench))


if __name__ == "__main__":
    sys.exit(main())
