"""Whether a job that chaos.py disturbed trained what it should: windows of it against the reference, all of it against
runs that nothing disturbed, and each sample once.

Rounding grows from step to step, so that after hundreds of them two layouts differ by far more than 1e-10 though both are
right. A window therefore begins with what the job itself had saved before an event, and the reference trains it from there
to a checkpoint behind the event: losses and parameters are equal within 1e-10.

Where gradients are ill-conditioned it grows so fast that even runs which nothing disturbs are farther apart than that after
20 steps. A window beyond 1e-10 is therefore trained twice more, undisturbed, on two other layouts: it may be ten times as far
from the reference as these two are from each other, the measure of the whole run. How many there were is told, and of more
than one in five (or more than one, where there are fewer) rounding is no excuse.

It takes longer than the job: 22 minutes behind the 12 of 200 events, on two cores.
"""

import json
import pathlib
import shutil
import subprocess

from chaos_job import environment
from recorded_runs import read_lines
from run_cases import Failure, expect

FP64_RTOL, WINDOW, SAVED_EVERY = 1e-10, 20, 10
UNDISTURBED = 10  # So many times as far off as two undisturbed runs on different layouts are from each other.
BEYOND_SHARE = 0.2  # Of the windows; at a rate of 1e-3 three of 35 were so, and 15 of 31 of a job of 1,016 steps.
AT_ONCE = 2  # Windows whose reference runs; it has one thread.
NEWEST_KEPT = 3


def farthest(losses, others):
    """The largest relative difference of a step's loss."""
    return max(abs(loss - others[step]) / abs(loss) for step, loss in losses.items())


class Oracle:
    def __init__(self, binary, folder, job, run, patience, windows_max=None):
        self.binary, self.folder, self.job, self.run, self.patience = binary, folder, job, run, patience
        self.windows_max = windows_max
        self.windows = []  # [step before the event, step behind it or None].

    def watch(self, step):
        """An event comes in one of the next steps."""
        self.look()  # A checkpoint that has come since may end the window before.
        before = [saved for saved in self._saved() if step - WINDOW // 2 - SAVED_EVERY // 2 <= saved <= step]
        if before and not self.is_open() and (self.windows_max is None or len(self.windows) < self.windows_max):
            self.windows.append([before[0], None])

    def is_open(self):
        """Whether a window has not come to its end."""
        return any(end is None for _, end in self.windows)

    def look(self):
        """Notes which windows have come to their end, and removes checkpoints that none of them needs."""
        saved = self._saved()
        for window in self.windows:
            window[1] = window[1] or next((step for step in saved if step >= window[0] + WINDOW), None)
        wanted = {step for window in self.windows for step in window}
        for step in set(saved[:-NEWEST_KEPT]) - wanted:
            shutil.rmtree(self.run / f"checkpoints/step-{step}", ignore_errors=True)

    def check_windows(self, layouts):
        """Returns how many there were, how many of them beyond the bound by rounding, and the largest differences; `layouts`:
        two, of the runs that show how far rounding goes."""
        saved = self._saved()  # Not what the job has gone back behind.
        closed = [window for window in self.windows if window[0] in saved and window[1] in saved]
        expect(closed, f"no window of {WINDOW} steps came to its end: {self.windows}")
        losses = self._losses(self.run)
        worst, beyond = [0.0, 0.0], 0
        for first in range(0, len(closed), AT_ONCE):
            some = closed[first:first + AT_ONCE]
            started = [self._start_from(f"{name}-{begin}-{end}", step, end) for begin, end in some
                       for name, step in (("reference", begin), ("trained", end))]
            runs = [self._finish_from(*one) for one in started]
            for (begin, end), reference, trained in zip(some, runs[::2], runs[1::2]):
                own = self._losses(reference)
                expect(sorted(own) == list(range(begin + 1, end + 1)), f"the reference trained steps {sorted(own)}")
                parameters, loss = self._difference(reference, trained), farthest(own, losses)
                if max(parameters, loss) > FP64_RTOL:
                    beyond += 1
                    self._expect_rounding(begin, end, layouts, parameters, loss)
                worst = [max(worst[0], parameters), max(worst[1], loss)]
            for run in runs:
                shutil.rmtree(run)
        expect(beyond <= max(1, BEYOND_SHARE * len(closed)), f"{beyond} of {len(closed)} windows are beyond {FP64_RTOL:g}, by rounding as it seems")
        return len(closed), beyond, worst

    def _expect_rounding(self, begin, end, layouts, parameters, loss):
        """A window that is beyond the bound: two undisturbed runs of it, on different layouts, are nearly as far apart."""
        started = [self._start_from(f"undisturbed-{begin}-{end}-{number}", begin, end, layout) for number, layout in enumerate(layouts)]
        one, other = (self._finish_from(*run) for run in started)
        bounds = [max(FP64_RTOL, UNDISTURBED * apart) for apart in
                  (self._difference(one, other), farthest(self._losses(one), self._losses(other)))]
        told = (f"steps {begin + 1} to {end}: parameters {parameters:.3g} and losses {loss:.3g} from the reference; by what two undisturbed "
                f"runs differ they may be {bounds[0]:.3g} and {bounds[1]:.3g}")
        expect(parameters <= bounds[0] and loss <= bounds[1], told)
        print(f"  beyond {FP64_RTOL:g} by rounding: {told}", flush=True)
        for run in (one, other):
            shutil.rmtree(run)

    def check_whole(self, steps, layouts):
        """Against undisturbed runs of so many steps on two layouts; returns both differences."""
        ended = self._finish_from(*self._start_from("ended", steps, steps))
        runs = [self.folder / f"undisturbed-{number}" for number in range(2)]
        processes = [self._popen([*layout, f"train.steps={steps}", f"job.run_dir={run}"]) for run, layout in zip(runs, layouts)]
        for process in processes:
            self._finish(process, 60 + 5 * steps)
        apart, off = self._difference(*runs), max(self._difference(ended, run) for run in runs)
        expect(off <= UNDISTURBED * apart, f"after {steps} steps it is off by {off:.3g}; two undisturbed runs by {apart:.3g}")
        return off, apart

    def check_samples(self, steps):
        audit = json.loads(self._run(["data", "audit", str(self.run), "--json"]))
        expect(audit["steps"] == steps and not audit["trained_twice"] and not audit["never"], f"audit of {steps} steps: {audit}")
        told = [line["step"] for line in read_lines(self.run / "metrics.jsonl")]
        expect(told == list(range(1, steps + 1)), f"a step stands twice, or not at all: {told}")

    # ---- processes ------------------------------------------------------------------------------------

    def _saved(self):
        names = (path.parent.name[5:] for path in self.run.glob("checkpoints/step-*/manifest.json"))
        return sorted(int(name) for name in names if name.isdigit())

    def _losses(self, run):
        return {line["step"]: line["loss"] for line in read_lines(run / "metrics.jsonl")}

    def _start_from(self, name, step, end, words=("--reference",)):
        """Starts a run of the reference (or on a layout) from what the job saved after `step`; where that is `end`, it only
        writes the model. What is returned is for `_finish_from`."""
        run, saved = self.folder / name, self.folder / f"{name}-saved"
        shutil.copytree(self.run / f"checkpoints/step-{step}", saved / f"step-{step}")
        return run, saved, end - step, self._popen([*words, f"train.steps={end}", f"job.run_dir={run}", f"checkpoint.dir={saved}",
                                                    "checkpoint.every_steps=0", "--resume"])

    def _finish_from(self, run, saved, steps, process):
        """Its run folder."""
        self._finish(process, 120 + 20 * steps)
        if steps == 0:
            (run / "metrics.jsonl").unlink()  # `compare` minds that no step stands there.
        shutil.rmtree(saved)
        return run

    def _difference(self, one, other):
        return json.loads(self._run(["compare", str(one), str(other), "--json"]))["parameters"]["largest"]

    def _popen(self, words):
        with open(self.folder / "oracle.log", "a", encoding="utf-8") as file:
            return subprocess.Popen([str(self.binary), "train", *self.job, *words], stdin=subprocess.DEVNULL, stdout=file,
                                    stderr=subprocess.STDOUT, env=environment())

    def _finish(self, process, within):
        try:
            code = process.wait(timeout=within * self.patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failure(f"an undisturbed run takes more than {within} s") from None
        said = pathlib.Path(self.folder / "oracle.log").read_text(encoding="utf-8")
        expect(code == 0, f"an undisturbed run ended with {code}\n{said[-1500:]}")

    def _run(self, words):
        done = subprocess.run([str(self.binary), *words], capture_output=True, text=True, timeout=120 * self.patience, check=False, env=environment())
        expect(done.returncode in (0, 1) and done.stdout, f"{' '.join(words)}\nexit {done.returncode}\n{done.stderr[-1500:]}")
        return done.stdout
