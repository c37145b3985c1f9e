"""Whether a job that chaos.py disturbed trained what it should: windows of it against the reference, all of it against
runs that nothing disturbed, and each sample once.

Rounding grows from step to step, so that after hundreds of them two layouts differ by far more than 1e-10 though both are
right. A window therefore begins with what the job itself had saved before an event, and the reference trains it from there
to a checkpoint behind the event: losses and parameters are equal within 1e-10.

Where gradients are ill-conditioned it grows so fast that even a run which nothing disturbs is farther off than that after 20
steps. A window beyond 1e-10 is therefore trained once more, undisturbed, on another layout: it may be ten times as far from
the reference as that one. How many there were is told.
"""

import json
import pathlib
import shutil
import subprocess

from chaos_job import environment
from recorded_runs import read_lines
from run_cases import Failure, expect

FP64_RTOL, WINDOW, SAVED_EVERY = 1e-10, 20, 10
UNDISTURBED = 10  # So many times as far from it as two undisturbed runs are from each other.
NEWEST_KEPT = 3


def farthest(losses, others):
    """The largest relative difference of a step's loss."""
    return max(abs(loss - others[step]) / abs(loss) for step, loss in losses.items())


class Oracle:
    def __init__(self, binary, folder, job, run, patience):
        self.binary, self.folder, self.job, self.run, self.patience = binary, folder, job, run, patience
        self.windows = []  # [step before the event, step behind it or None].

    def watch(self, step):
        """An event comes in one of the next steps."""
        before = [saved for saved in self._saved() if step - WINDOW // 2 - SAVED_EVERY // 2 <= saved <= step]
        if before and all(end is not None for _, end in self.windows):
            self.windows.append([before[0], None])

    def look(self):
        """Notes which windows have come to their end, and removes checkpoints that none of them needs."""
        saved = self._saved()
        for window in self.windows:
            window[1] = window[1] or next((step for step in saved if step >= window[0] + WINDOW), None)
        wanted = {step for window in self.windows for step in window}
        for step in set(saved[:-NEWEST_KEPT]) - wanted:
            shutil.rmtree(self.run / f"checkpoints/step-{step}", ignore_errors=True)

    def check_windows(self, layout):
        """Returns how many there were, and the largest differences; `layout`: of the run that shows how far rounding goes."""
        saved = self._saved()  # Not what the job has gone back behind.
        closed = [window for window in self.windows if window[0] in saved and window[1] in saved]
        expect(closed, f"no window of {WINDOW} steps came to its end: {self.windows}")
        losses = self._losses(self.run)
        worst = [0.0, 0.0]
        for begin, end in closed:
            reference, trained = (self._from_checkpoint(f"{name}-{begin}-{end}", step, end)
                                  for name, step in (("reference", begin), ("trained", end)))
            own = self._losses(reference)
            expect(sorted(own) == list(range(begin + 1, end + 1)), f"the reference trained steps {sorted(own)}")
            parameters, loss = self._difference(reference, trained), farthest(own, losses)
            if max(parameters, loss) > FP64_RTOL:
                self._expect_rounding(begin, end, reference, layout, parameters, loss)
            worst = [max(worst[0], parameters), max(worst[1], loss)]
            for run in (reference, trained):
                shutil.rmtree(run)
        return len(closed), worst

    def _expect_rounding(self, begin, end, reference, layout, parameters, loss):
        """A window that is beyond the bound: an undisturbed run of it is nearly as far off."""
        other = self._from_checkpoint(f"undisturbed-{begin}-{end}", begin, end, layout)
        bounds = [max(FP64_RTOL, UNDISTURBED * difference) for difference in
                  (self._difference(reference, other), farthest(self._losses(reference), self._losses(other)))]
        told = (f"steps {begin + 1} to {end}: parameters {parameters:.3g} and losses {loss:.3g} from the reference; undisturbed, on another "
                f"layout, they may be {bounds[0]:.3g} and {bounds[1]:.3g}")
        expect(parameters <= bounds[0] and loss <= bounds[1], told)
        print(f"  beyond {FP64_RTOL:g} by rounding: {told}", flush=True)
        shutil.rmtree(other)

    def check_whole(self, steps, layouts):
        """Against undisturbed runs of so many steps on two layouts; returns both differences."""
        ended = self._from_checkpoint("ended", steps, steps)
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
        return sorted(int(path.parent.name[5:]) for path in self.run.glob("checkpoints/step-*/manifest.json"))

    def _losses(self, run):
        return {line["step"]: line["loss"] for line in read_lines(run / "metrics.jsonl")}

    def _from_checkpoint(self, name, step, end, words=("--reference",)):
        """A run of the reference (or on a layout) from what the job saved after `step`; where that is `end`, it only writes
        the model."""
        run, saved = self.folder / name, self.folder / f"{name}-saved"
        shutil.copytree(self.run / f"checkpoints/step-{step}", saved / f"step-{step}")
        process = self._popen([*words, f"train.steps={end}", f"job.run_dir={run}", f"checkpoint.dir={saved}",
                               "checkpoint.every_steps=0", "--resume"])
        self._finish(process, 120 + 20 * (end - step))
        if step == end:
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
