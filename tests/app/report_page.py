#!/usr/bin/python3
"""The report of a real run: the page of `troupe report` against the files of the run that it tells about.

    report_page.py TROUPE

Trains a small job on uneven data on four node processes, makes its page, and reads the page as HTML and JSON, so that it
runs in every checkout; with Chromium here, also as the browser shows it. Where pages.py looks at how pages behave, this
looks at whether what they say is so.
"""

import datetime
import html
import json
import math
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from pages import BROWSERS, Page

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from run_cases import Skipped, expect, run_cases

JOB = pathlib.Path(__file__).resolve().parents[1] / "engine" / "parity.toml"
STEPS, BATCH = 6, 8

# What a reader looks for: (title of the chart, name of the curve): what a line of metrics.jsonl says.
CURVES = {
    ("Loss", "each step"): lambda line: line["loss"],
    ("Throughput", "each step"): lambda line: line["tokens_per_s"],
    ("Throughput", "samples"): lambda line: 1000 * line["samples"] / line["step_ms"],
    ("Step time", "measured"): lambda line: line["step_ms"],
    ("Bubble", "measured"): lambda line: 100 * line["bubble"],
    ("Imbalance of microbatches", "after balancing"): lambda line: line["imbalance_planned"],
    ("Imbalance of microbatches", "before balancing"): lambda line: line["imbalance_in_order"],
    ("Imbalance of stages", "stages"): lambda line: line["imbalance"],
    ("Memory: activations", "measured"): lambda line: 1e-6 * line["activation_bytes"],
    ("Memory: activations", "promised by the plan"): lambda line: 1e-6 * line["promised_activation_bytes"],
    ("Memory: held for deferral", "rows that wait"): lambda line: 1e-6 * line["held_bytes"],
    ("Rows held for deferral", "most at a time"): lambda line: line["held_rows"],
    ("Planning and waiting", "planning"): lambda line: line["plan_ms"],
    ("Planning and waiting", "waited for it"): lambda line: line["plan_wait_ms"],
    ("Planning and waiting", "waited for data"): lambda line: line["data_wait_ms"],
    ("Gradient norm", "norm"): lambda line: line["grad_norm"],
    ("Learning rate", "rate"): lambda line: line["lr"],
}
# Of the chart of a step's time, which leaves out the first step.
TIMES = {"computing": "compute_ms", "reducing gradients, optimizer": "update_ms", "sending": "transfer_ms",
         "waiting for other stages": "wait_ms", "waiting for data": "data_wait_ms", "waiting for planning": "plan_wait_ms"}
TIME_CHART = "Where a step's time goes"


def close(a, b):
    """Pages hold six figures."""
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-12)


def axis_value(text):
    """What a label beside an axis says: 20k, 1.5M."""
    return float(text.rstrip("kMG")) * {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1)


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def plain(text):
    """What a reader sees of some HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "", text)).strip()


class Report:
    """A run, the page about it, and the page's parts."""

    def __init__(self, binary, folder):
        data, self.run, self.binary = folder / "data", folder / "run", binary
        self.data = [f"data.sources[0].json={data}/samples.json"]
        self.call(binary, "data", "make", data, "--uneven", "-n", "64")
        self.call(binary, "train", JOB, *self.data, f"job.run_dir={self.run}",
                  f"train.steps={STEPS}", f"train.global_batch_size={BATCH}", "balancer.policy=deferral",
                  "scheduler.schedule=split-1f1b")
        self.call(binary, "report", self.run)
        self.file = self.run / "report.html"
        self.page = self.file.read_text(encoding="utf-8")
        self.metrics = read_lines(self.run / "metrics.jsonl")
        expect(len(self.metrics) == STEPS, f"{len(self.metrics)} steps in metrics.jsonl")
        self.charts = re.findall(r'<figure class="chart(?: large)?">.*?</figure>', self.page, re.DOTALL)
        self.curves = {}  # (title, name): chart, place among its curves, values.
        for chart in self.charts:
            title = plain(re.search(r"<h3>(.*?)(?:,? <span|</h3>)", chart, re.DOTALL)[1]).rstrip(",")
            for place, series in enumerate(json_of(chart)["series"]):
                self.curves[title, series["name"]] = chart, place, series["y"]
        self.levels = dict(re.findall(r'<tr><th scope="row">([^<]*)</th><td>([^<]*)</td><td class="text">[^<]*</td></tr>', self.page))

    @staticmethod
    def call(binary, *words):
        result = subprocess.run([str(binary), *map(str, words)], capture_output=True, text=True, timeout=300)
        expect(result.returncode == 0, f"troupe {words[0]}: exit {result.returncode}\n{result.stderr[-1500:]}")

    def about(self):
        """{what: text} of the first lines."""
        return {plain(what): plain(text) for what, text in re.findall(
            r"<dt>(.*?)</dt><dd>(.*?)</dd>", re.search(r'<dl class="about">.*?</dl>', self.page, re.DOTALL)[0])}

    def figures(self):
        """{words and unit: text} of the tiles."""
        return {plain(name) + (f" {plain(unit)}" if unit else ""): value.strip() for name, value, unit in re.findall(
            r"<dt>(.*?)</dt><dd>([^<]*)(?:<small>(.*?)</small>)?</dd>", self.page)}

    def table(self, heading):
        """The cells of each row of the table below a heading."""
        body = re.search(rf"<h2[^>]*>{heading}</h2>.*?<tbody>(.*?)</tbody>", self.page, re.DOTALL)[1]
        return [[plain(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)]
                for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)]


def json_of(part):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', part, re.DOTALL)[1])


def shown(value):
    """A number as pages print it."""
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.4g}"


def every_curve_is_what_the_metrics_say(report):
    """Names and numbers: a curve drawn from another key is found here."""
    for name, value in CURVES.items():
        wanted = [value(line) for line in report.metrics]
        if len(set(wanted)) == 1 and name not in report.curves:
            continue  # What never changes is in the table of levels, which another case looks at.
        expect(name in report.curves, f"no curve {name}")
        found = report.curves[name][2]
        expect(len(found) == STEPS and all(map(close, found, wanted)), f"{name}: {found} instead of {wanted}")


def every_key_that_changes_is_drawn(report):
    """Whatever a step records is in some chart, in its own unit, as a percentage or in megabytes."""
    drawn = [values for _, _, values in report.curves.values()]
    for key in report.metrics[0]:
        values = [line[key] for line in report.metrics]
        if key in TIMES.values():
            values = values[1:]
        if key in ("step", "samples") or not all(isinstance(value, (int, float)) for value in values) or len(set(values)) == 1:
            continue
        expect(any(all(close(a, b * factor) for a, b in zip(curve, values)) for curve in drawn for factor in (1, 100, 1e-6)),
               f"no chart shows {key}: {values}")


def curves_are_drawn_where_their_values_are(report):
    """Each dot's place is a straight function of its step and value; the axis carries the numbers."""
    for name, (chart, place, values) in report.curves.items():
        if name[0] == TIME_CHART:
            continue  # Areas: the next case.
        chart = re.search(r'<div class="plot">.*?</div>', chart, re.DOTALL)[0]
        path = re.search(rf'class="dots s{place}[^"]*" d="([^"]*)"', chart)[1]
        dots = [(float(x), float(y)) for x, y in re.findall(r"M([-\d.]+) ([-\d.]+)h0", path)]
        expect(len(dots) == STEPS, f"{name}: {len(dots)} dots for {STEPS} steps")
        expect([round(x, 1) for x, _ in dots] == [round(1000 * i / (STEPS - 1), 1) for i in range(STEPS)],
               f"{name}: dots stand beside their steps")
        ticks = [(10 * float(y), axis_value(text)) for y, text in re.findall(
            r'<span class="y" style="top:([-\d.]+)%">([^<]*)</span>', chart)]
        expect(len(ticks) >= 2, f"{name}: {len(ticks)} labels on the axis")
        (low_y, low), (high_y, high) = ticks[0], ticks[-1]
        for (_, y), value in zip(dots, values):
            by_axis = low + (y - low_y) * (high - low) / (high_y - low_y)
            expect(abs(by_axis - value) <= 0.005 * abs(high - low) + 1e-4 * abs(value),
                   f"{name}: a dot reads {by_axis} on the axis for {value}")


def the_parts_of_a_steps_time_add_up_to_it(report):
    """Each part is what the metrics say, together with the rest they are the step; nothing takes less than no time. A device
    may begin a step before the head has heard of the end of the last one, so that a step's parts may be longer than it, but
    not those of all steps together."""
    sums = [0] * (STEPS - 1)
    expect((TIME_CHART, "computing") in report.curves, "no chart of where a step's time goes")
    for (title, name), (_, _, values) in report.curves.items():
        if title != TIME_CHART:
            continue
        expect(min(values) >= 0, f"{name}: {values}")
        if name in TIMES:
            wanted = [line[TIMES[name]] for line in report.metrics[1:]]
            expect(all(map(close, values, wanted)), f"{name}: {values} instead of {wanted}")
        sums = [a + b for a, b in zip(sums, values)]
    for total, line in zip(sums, report.metrics[1:]):
        expect(total >= 0.999 * line["step_ms"], f"parts of {total} ms in a step of {line['step_ms']}")
    devices = sum(line[key] for line in report.metrics for key in ("compute_ms", "update_ms", "transfer_ms", "wait_ms"))
    whole = sum(line["step_ms"] for line in report.metrics)
    expect(devices <= 1.05 * whole, f"devices were busy for {devices} of {whole} ms")
    busy = [line["compute_ms"] for line in report.metrics]
    expect(min(busy) > 0, f"devices computed for {busy} ms")


def what_never_changes_is_in_a_table(report):
    metrics, words = report.metrics, {"nodes": "Nodes", "epoch_number": "Configuration", "bad_samples": "Bad samples so far"}
    for key, text in words.items():
        expect(len({line[key] for line in metrics}) == 1, f"{key} changes in this run")
        expect(report.levels.get(text) == shown(metrics[0][key]), f"{text}: {report.levels.get(text)}")
        expect((text, text) not in report.curves, f"{text} never changes and has a chart")


def the_first_lines_say_what_the_job_was(report):
    about, facts = report.about(), json.loads((report.run / "run.json").read_text(encoding="utf-8"))
    plan = json.loads((report.run / "plan.json").read_text(encoding="utf-8"))
    parameters = sum(layer[kind] for module in plan["modules"] for layer in module["layers"]
                     for kind in ("parameter_elements", "constant_elements"))
    parameters += sum(tied["parameter_elements"] for tied in plan.get("tied", []))
    version = subprocess.run([report.binary, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    expect(about["Outcome"] == f"Done: {STEPS} of {STEPS} steps", about["Outcome"])
    wanted = {"Job": str(JOB), "Date": facts["started"][:10], "Machine": socket.gethostname(), "Version": version,
              "Parameters": f"{parameters:,}", "Layout": "2 pipelines of"}
    for what, part in wanted.items():
        expect(part in about.get(what, ""), f"{what}: {about.get(what)} lacks {part}")
    for part in ("schedule split-1f1b", "balancing deferral", f"{BATCH} samples per step", "4 nodes"):
        expect(part in about["Layout"], f"Layout: {about['Layout']} lacks {part}")
    first_chart = report.page.index("<figure")
    expect(report.page.index('<dl class="about">') < first_chart, "a chart comes first")
    expect(time.time() - 3600 < datetime.datetime.fromisoformat(facts["started"].replace("Z", "+00:00")).timestamp()
           <= datetime.datetime.fromisoformat(facts["ended"].replace("Z", "+00:00")).timestamp() <= time.time(), f"{facts}")


def how_a_run_ended_is_told(report):
    """Still running, told to stop, killed."""
    for name, end, wanted in (("stopped", signal.SIGTERM, "Stopped after step"), ("killed", signal.SIGKILL, "Ended without a word")):
        run = report.run.parent / name
        command = [report.binary, "train", JOB, *report.data, f"job.run_dir={run}", "train.steps=5000", "train.global_batch_size=8"]
        head = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 120
            while not (run / "metrics.jsonl").exists() or len((run / "metrics.jsonl").read_bytes().splitlines()) < 3:
                expect(head.poll() is None and time.monotonic() < deadline, "the job did not get to its third step")
                time.sleep(0.05)
            report.call(report.binary, "report", run)
            outcome = re.search(r"<dt>Outcome</dt><dd>(.*?)</dd>", (run / "report.html").read_text(encoding="utf-8"))[1]
            expect(outcome.startswith("Still running: step "), outcome)
            head.send_signal(end)
            head.wait(timeout=60)
        finally:
            head.kill()
            head.wait()
        report.call(report.binary, "report", run)
        outcome = re.search(r"<dt>Outcome</dt><dd>(.*?)</dd>", (run / "report.html").read_text(encoding="utf-8"))[1]
        expect(outcome.startswith(wanted) and " of 5,000" in outcome, f"{name}: {outcome}")


def the_figures_at_the_top_sum_up_the_metrics(report):
    figures, lines = report.figures(), report.metrics
    settled = lines[1:]  # The first step also warms up.
    seconds = sum(line["step_ms"] for line in settled) / 1000
    wanted = {
        "Steps": STEPS,
        "Loss, first step": lines[0]["loss"],
        "Loss, last step": lines[-1]["loss"],
        "Throughput tokens/s": sum(line["tokens"] for line in settled) / seconds,
        "Throughput samples/s": BATCH * len(settled) / seconds,
        "Step time, median ms": statistics.median(line["step_ms"] for line in settled),
        "Bubble, mean %": 100 * statistics.fmean(line["bubble"] for line in settled),
        "Imbalance of stages, mean": statistics.fmean(line["imbalance"] for line in settled),
        "Rows held for deferral, most": max(line["held_rows"] for line in lines),
        "Activations on a device, most MB": 1e-6 * max(line["activation_bytes"] for line in lines),
        "Bad samples": 0,
        "Nodes at the end": 4,
    }
    for name, value in wanted.items():
        expect(figures.get(name) == shown(value), f"{name}: {figures.get(name)} instead of {shown(value)}")


def the_layout_is_that_of_the_plan(report):
    plan = json.loads((report.run / "plan.json").read_text(encoding="utf-8"))
    layers = {module["name"]: len(module["layers"]) for module in plan["modules"]}
    rows = report.table("Layout")
    expect(len(rows) == len(plan["stages"]), f"{len(rows)} rows for {len(plan['stages'])} stages")
    for row, stage in zip(rows, plan["stages"]):
        runs = [f"{run['module']} (all)" if run["layers"] == [0, layers[run["module"]]]
                else f"{run['module']} {run['layers'][0]} to {run['layers'][1] - 1}" for run in stage["runs"]]
        places = [f"node {plan['devices'][d]['node']}, device {plan['devices'][d]['local_index']}" for d in stage["devices"]]
        wanted = [str(stage["pipeline"]), stage["name"], ", ".join(runs), "; ".join(places)]
        expect(row[:4] == wanted, f"the layout says {row[:4]} instead of {wanted}")


def the_timelines_show_the_last_step(report):
    """Predicted above measured, what the profile alone says told first; as many actions of a kind as predicted.json and
    trace.json hold, and as long."""
    sections = re.findall(r'<section class="timeline".*?</section>', report.page, re.DOTALL)
    titles = [plain(re.search(r"<h2[^>]*>(.*?)</h2>", section)[1]) for section in sections]
    expect(titles == [f"Step {STEPS}, predicted", f"Step {STEPS}, measured"], f"timelines: {titles}")
    alone = f"The profile alone says {report.metrics[-1]['profile_step_ms']:.1f} ms. Drawn with speeds that earlier steps"
    expect(alone in plain(sections[0]) and "profile alone" not in plain(sections[1]), f"the profile's word is not: {alone}")
    for section, name in zip(sections, ("predicted.json", "trace.json")):
        data = json_of(section)
        times = data["intervals"]
        found = {}
        for kind, begin, end in zip(times["kind"], times["begin"], times["end"]):
            count, sum_ms = found.get(data["kinds"][kind], (0, 0))
            found[data["kinds"][kind]] = count + 1, sum_ms + end - begin
        events = json.loads((report.run / name).read_text(encoding="utf-8"))
        for kind in ("forward", "backward", "optimizer_step"):
            wanted = [event["dur"] / 1000 for event in events
                      if event.get("ph") == "X" and event["args"].get("step") == STEPS and event["args"].get("kind") == kind]
            count, sum_ms = found.get(kind, (0, 0))
            expect(count == len(wanted) > 0, f"{name}: {count} {kind} actions instead of {len(wanted)}")
            expect(abs(sum_ms - sum(wanted)) <= 0.001 * count, f"{name}: {kind} takes {sum_ms} ms instead of {sum(wanted)}")


def nothing_is_undefined_or_missing(report):
    body = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", report.page, flags=re.DOTALL)
    found = re.findall(r".{0,40}\b(?:NaN|nan|undefined|null|infinite|inf)\b.{0,40}", body)
    expect(not found, f"the page says {found[:3]}")
    expect("What this run did not record" not in body and "About this run folder" not in body,
           "the page misses something of a whole run")
    expect("No values" not in body, "a chart has no values")
    expect("Bad samples: none, every sample could be decoded." in body, "the page does not say that no sample was bad")
    text = plain(re.sub(r"<pre>.*?</pre>", "", body, flags=re.DOTALL))
    keys = [key for key in report.metrics[0] if "_" in key and re.search(rf"\b{key}\b", text)]
    expect(not keys, f"the page speaks of {keys}")
    resolved = (report.run / "resolved.toml").read_text(encoding="utf-8")
    expect(html.unescape(re.search(r"<pre>(.*?)</pre>", body, re.DOTALL)[1]) == resolved, "the job shown is not resolved.toml")


def the_page_needs_no_network(report):
    loaded = re.findall(r'(?:src|href)="(?!data:)([^"#][^"]*)"|url\((?!#)([^)]*)\)|(@import)', report.page)
    expect(not loaded, f"the page loads {loaded}")
    called = re.findall(r"\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|\bimport\(|EventSource", report.page)
    expect(not called, f"the page's scripts call {called}")
    hosts = set(re.findall(r"https?://([^/\"'\s]+)", report.page)) - {"www.w3.org"}  # The name of SVG, never loaded.
    expect(not hosts, f"the page names {hosts}")


def a_browser_draws_every_chart_without_an_error(report):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise Skipped("no Chromium here; scripts/setup --browser installs it")
    page = Page(browser, report.file)
    expect("error" not in page.root, f"script error: {page.root.get('error')}")
    expect(page.root.get("charts") == str(len(report.charts)), f"{page.root.get('charts')} of {len(report.charts)} charts work")
    for section in page.timelines:
        count = len(json_of(section)["intervals"]["lane"])
        expect(f'data-drawn="{count}"' in section, "not every interval was drawn")


CASES = [every_curve_is_what_the_metrics_say, every_key_that_changes_is_drawn, curves_are_drawn_where_their_values_are,
         the_parts_of_a_steps_time_add_up_to_it, what_never_changes_is_in_a_table, the_first_lines_say_what_the_job_was,
         how_a_run_ended_is_told,
         the_figures_at_the_top_sum_up_the_metrics, the_layout_is_that_of_the_plan, the_timelines_show_the_last_step,
         nothing_is_undefined_or_missing, the_page_needs_no_network, a_browser_draws_every_chart_without_an_error]


def main(binary):
    with tempfile.TemporaryDirectory(prefix="troupe-report-") as folder:
        report = Report(binary, pathlib.Path(folder))
        return run_cases(CASES, lambda case: case(report))


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
