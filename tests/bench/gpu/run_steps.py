#!/usr/bin/env python3
"""The work of scripts/gpu-bench: takes the steps that its file of results lacks.

    run_steps.py run PACK OUT     OUT/gpu-bench.json, and what programs said in OUT/gpu-bench.log
    run_steps.py steps            their names
"""

import hashlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts" / "lib"))
import machine
import summary
from gpu_pack import ROOT, take, unpack
from report import merged, rows_in
from results import Results, is_done, kept_rows
from steps import chosen, steps

SKIPPED = 77
TRACE_BYTES_MAX = 15 * 2**20


class Taking:
    """One step, whose rows are kept as they come."""

    def __init__(self, name, step, of, results, again):
        self.name, self.step, self.results = name, step, results
        self.kept = kept_rows(results.find(name, of), again)
        self.entry = {"step": name, "of": of, "command": shlex.join(step.command), "code": "under way", "rows": self.kept}
        self.size = 0

    def rows_of(self, log):
        """Takes over the rows that `log` has by now; saves them where it has grown."""
        if log.is_file() and log.stat().st_size != self.size:
            self.size = log.stat().st_size
            self.entry["rows"] = merged(self.kept, rows_in(log.read_text(encoding="utf-8", errors="replace")))
            self.results.put(self.entry)

    def run(self, folder, limit_s, environment):
        log, have = folder / "step.log", folder / "have.json"
        log.unlink(missing_ok=True)
        have.write_text(json.dumps(self.kept), encoding="utf-8")
        with machine.Watch(folder / "watch.csv") as watch:
            told = {**environment, "GPU_BENCH_HAVE": str(have)}
            taken = take(self.name, self.step.command, limit_s, log, told, lambda: self.rows_of(log))
        self.rows_of(log)
        failed = taken["code"] != 0 or not self.entry["rows"]
        self.entry.update(code=taken["code"], seconds=taken["seconds"], watched=watch.told(), machine=machine.facts())
        if failed:
            self.entry["end"] = taken["end"]
        self.results.put(self.entry)
        return self.entry


def take_step(taking, folder, limit_s, environment, out):
    """Takes a step, or says why not; its output goes behind that of the others."""
    if taking.step.skipped:
        taking.entry.update(code=SKIPPED, skipped=taking.step.skipped)
        taking.results.put(taking.entry)
        print(f"{taking.name}: {taking.step.skipped}", flush=True)
        return
    entry = taking.run(folder, limit_s, environment if taking.step.ours else {})
    with open(out / "gpu-bench.log", "a", encoding="utf-8") as file:
        file.write(f"=== {taking.name}\n" + (folder / "step.log").read_text(encoding="utf-8", errors="replace")[-40000:] + "\n")
    errors = [row["error"] for row in entry["rows"] if "error" in row]
    print(f"{taking.name}: {'taken' if entry['code'] == 0 else entry['code']} ({entry['seconds']} s), {len(entry['rows'])} rows, "
          f"{len(errors)} with errors", flush=True)
    for text in [error[:200] for error in errors] + ([entry["end"]] if "end" in entry else []):
        print(f"  {text}", flush=True)


def keep_trace(folder, out):
    """Where the time of our program's steps went: to be looked at elsewhere."""
    for model, name in (("llama", "llama-1b"), ("mm", "mm-2b")):
        trace = folder / model / "run" / "trace.json"
        if trace.is_file() and trace.stat().st_size < TRACE_BYTES_MAX:
            shutil.copy(trace, out / f"{name}-trace.json")


def run(tar, out):
    out = pathlib.Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    device, limit_s = os.environ.get("GPU_BENCH_DEVICE", "cuda"), float(os.environ.get("GPU_BENCH_STEP_S", 100))
    small, again = bool(os.environ.get("GPU_BENCH_SMALL")), bool(os.environ.get("GPU_BENCH_AGAIN"))
    build = hashlib.sha256((ROOT / tar).read_bytes()).hexdigest()[:16]
    results = Results(out / "gpu-bench.json")
    results.told["machine"] = machine.facts()
    results.save()
    with tempfile.TemporaryDirectory(prefix="troupe-gpu-") as folder:
        folder = pathlib.Path(folder)
        environment = unpack(ROOT / tar, folder)[1]
        known = steps(folder, device, small, limit_s)
        codes = []
        for name in chosen(list(known), os.environ.get("GPU_BENCH_STEPS", "").split()):
            of = {**known[name].of(results.told["machine"]["gpu"], build), **({"small": True} if small else {})}
            if not is_done(results.find(name, of), again):
                take_step(Taking(name, known[name], of, results, again), folder, limit_s, environment, out)
            codes.append(results.find(name, of)["code"])
        keep_trace(folder, out)
    print(summary.text(results.told), flush=True)
    return 0 if all(code in (0, SKIPPED) for code in codes) else 1


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that a step's processes end with this one.
    verb, *words = sys.argv[1:]
    if verb == "steps":
        print("\n".join(steps(pathlib.Path("PACK"), "cuda", False, 100)))
        return 0
    if verb == "table":
        print(summary.text(json.loads(pathlib.Path(words[0]).read_text(encoding="utf-8"))))
        return 0
    return run(*words)


if __name__ == "__main__":
    sys.exit(main())
