#!/usr/bin/python3
"""The figures that a running job shows to Prometheus (`observe.metrics_listen`), and what they are worth.

    metrics_endpoint.py TROUPE [CASE...]
"""

import contextlib
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from free_port import free_port
from recorded_runs import read_lines_so_far
from run_cases import Failure, expect, run_cases

DEMO = ROOT / "configs" / "demo.toml"
WITHIN_S = 120


def scraped(url):
    """Figures by name, labels included."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


class Job:
    """A job of the demo on one node; ends with the case."""

    def __init__(self, binary, folder, name, data, *words):
        self.run = folder / name
        self.log = open(folder / f"{name}.log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [binary, "train", str(DEMO), data, f"job.run_dir={self.run}", "cluster.local_nodes=1", "parallel.mode=auto",
             "parallel.pipelines=[]", "train.steps=100000", *words], stdout=self.log, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def said(self):
        return pathlib.Path(self.log.name).read_text(encoding="utf-8")

    def wait_for(self, what, question):
        """The first answer of `question` that says something."""
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, AttributeError, KeyError, ValueError):
                if answer := question():
                    return answer
            expect(self.process.poll() is None, f"the job ended before {what}:\n{self.said()[-600:]}")
            time.sleep(0.05)
        raise Failure(f"not within {WITHIN_S} s: {what}")

    def url(self):
        return self.wait_for("it said where its figures are",
                             lambda: re.search(r"figures for Prometheus: (http://\S+/metrics)", self.said()).group(1))

    def recorded(self):
        return {line["step"]: line for line in read_lines_so_far(self.run / "metrics.jsonl")}

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        expect(self.process.wait(WITHIN_S) == 75, f"exit {self.process.returncode}:\n{self.said()[-600:]}")


def a_scraper_sees_what_the_run_records(binary, folder, data):
    with Job(binary, folder, "seen", data, "observe.metrics_listen=0", "checkpoint.every_steps=2",
             "cluster.device_tflops=0.1") as job:
        url = job.url()
        first = job.wait_for("a step was shown", lambda: scraped(url).get("troupe_step") and scraped(url))
        later = job.wait_for("a checkpoint and two more steps were shown",
                             lambda: "troupe_checkpoint_age_seconds" in scraped(url)
                             and scraped(url)["troupe_step"] >= first["troupe_step"] + 2 and scraped(url))
        line = job.wait_for("it is recorded", lambda: job.recorded().get(int(later["troupe_step"])))
        for figure, wanted in (("troupe_loss", line["loss"]), ("troupe_tokens_per_second", line["tokens_per_s"]),
                               ("troupe_step_seconds", line["step_ms"] / 1000), ("troupe_bubble_ratio", line["bubble"]),
                               ("troupe_mfu_ratio", line["mfu"]), ("troupe_nodes", 1), ("troupe_generation", 1),
                               ('troupe_memory_bytes{kind="activations"}', line["activation_bytes"])):
            expect(abs(later[figure] - wanted) <= 1e-9 * abs(wanted), f"{figure} is {later[figure]}, not {wanted}")
        expect(0 <= later["troupe_checkpoint_age_seconds"] < WITHIN_S, "the checkpoint's age is that of something else")
        job.stop()
        try:
            scraped(url)
            raise Failure("somebody answers when the job has ended")
        except urllib.error.URLError:
            pass


def a_run_that_goes_on_knows_the_age_of_its_checkpoint(binary, folder, data):
    with Job(binary, folder, "on", data, "checkpoint.every_steps=1") as job:
        job.wait_for("a checkpoint", lambda: list(job.run.glob("checkpoints/step-*/manifest.json")))
        job.stop()
    time.sleep(3)
    with Job(binary, folder, "on", data, "observe.metrics_listen=0", "data.prefetch=1") as job:
        url = job.url()
        expect(scraped(url).get("troupe_checkpoint_age_seconds", 0) >= 3, f"not 3 s old: {scraped(url)}")
        before = len(job.recorded())
        job.wait_for("a step of its own", lambda: len(job.recorded()) > before)
        job.stop()


def a_port_that_is_taken_is_refused_before_anything_is_written(binary, folder, data):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for more in ([], ["--reference"]):
            with Job(binary, folder, "taken", data, f"observe.metrics_listen={port}", *more) as job:
                expect(job.process.wait(WITHIN_S) == 2, f"exit {job.process.returncode}, not 2")
                for word in ("observe.metrics_listen", f"127.0.0.1:{port}", "another program listens there", "fix:"):
                    expect(word in job.said(), f"'{word}' is missing:\n{job.said()[-600:]}")
                expect(not job.run.exists(), "a run folder was made")


def a_port_alone_is_open_to_this_machine_alone(binary, folder, data):
    port = free_port()
    with Job(binary, folder, "alone", data, f"observe.metrics_listen={port}") as job:
        expect(job.url() == f"http://127.0.0.1:{port}/metrics", f"it is at {job.url()}")
        scraped(job.url())
        # Who listens on all addresses answers on this one too.
        with socket.socket() as other:
            expect(other.connect_ex(("127.0.0.2", port)) != 0, "it listens on other addresses too")


def a_step_needs_the_same_arithmetic_in_every_layout(binary, folder, data):
    flops = {}
    for name, devices, words in (("pipelines", 4, []), ("one", 1, ["cluster.local_nodes=1", "parallel.mode=auto", "parallel.pipelines=[]"]),
                                 ("reference", 1, ["--reference"]), ("frozen", 4, ["modules.vision.freeze=true"])):
        run = folder / f"flops-{name}"
        done = subprocess.run([binary, "train", str(DEMO), data, f"job.run_dir={run}", "train.steps=2", *words],
                              capture_output=True, text=True, timeout=WITHIN_S)
        expect(done.returncode == 0, f"{name}: exit {done.returncode}:\n{done.stderr[-400:]}")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        expect(not any("mfu" in line for line in lines), f"{name}: a share of a peak that nobody told")
        flops[name] = [line["tflops_per_device"] * devices * line["step_ms"] * 1e9 for line in lines]
    for name in ("one", "reference"):
        for ours, wanted in zip(flops[name], flops["pipelines"], strict=True):
            expect(abs(ours - wanted) <= 1e-9 * wanted, f"{name}: {ours} instead of {wanted}")
    for frozen, all_of_it in zip(flops["frozen"], flops["pipelines"], strict=True):
        expect(0.3 * all_of_it < frozen < all_of_it, f"a frozen encoder takes {frozen} of {all_of_it}")


CASES = (a_scraper_sees_what_the_run_records, a_run_that_goes_on_knows_the_age_of_its_checkpoint,
         a_port_that_is_taken_is_refused_before_anything_is_written, a_port_alone_is_open_to_this_machine_alone,
         a_step_needs_the_same_arithmetic_in_every_layout)


def main(binary, wanted):
    with tempfile.TemporaryDirectory(prefix="troupe-metrics-") as name:
        folder = pathlib.Path(name)
        subprocess.run([binary, "data", "make", str(folder / "data")], check=True, capture_output=True)
        data = f'data.sources=[{{json="{folder}/data/samples.json"}}]'
        cases = [case for case in CASES if not wanted or case.__name__ in wanted]
        return run_cases(cases, lambda case: case(binary, folder, data))


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:]))
