#!/usr/bin/python3
"""Pages as a browser shows them: no script error, every bar where its times say, nothing from the network; reports of
three, 6,000 and 100,000 steps, on a desk and on a phone.

    pages.py TROUPE MAKE_TIMELINE_PAGES      skips (exit 77) where there is no Chromium
"""

import html
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

DEMO = pathlib.Path(__file__).resolve().parents[2] / "configs" / "demo.toml"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
METRICS = [{"step": 1, "loss": 2.5, "lr": 1e-3, "grad_norm": 2.0, "samples": 8, "tokens": 800, "trained_tokens": 300,
            "step_ms": 200.0, "plan_ms": 0.5, "plan_wait_ms": 0.0, "bubble": 0.4, "imbalance": 1.5, "imbalance_in_order": 2.5, "imbalance_planned": 1.2, "held_rows": 12, "activation_bytes": 5e6, "promised_activation_bytes": 5.1e6,
            "profile_step_ms": 170.0, "calibrated_step_ms": 190.0, "predicted_step_ms": 190.0, "held_bytes": 4096, "data_wait_ms": 0.0, "nodes": 4, "epoch_number": 1}]


class Page:
    """What a browser made of a file: attributes of its root, and its timelines."""

    def __init__(self, browser, file):
        with tempfile.TemporaryDirectory() as profile:
            # Virtual time: scripts are done when the document is printed, however slow the machine is.
            command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--window-size=1400,1000",
                       "--virtual-time-budget=4000", "--dump-dom", file.as_uri()]
            run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.html = run.stdout
        root = re.search(r"<html[^>]*>", self.html)
        if root is None:
            raise RuntimeError(f"the browser printed no document: {run.stderr[-400:]}")
        self.root = dict(re.findall(r'data-([a-z]+)="([^"]*)"', root[0]))
        self.titles = re.findall(r'<h2 id="timeline-\d+-title"[^>]*>(.*?)</h2>', self.html)
        self.timelines = re.findall(r'<section class="timeline".*?</section>', self.html, re.DOTALL)


def bars(section, kind):
    """Left edge and row of each bar of a kind, from the path that draws them all."""
    path = re.search(rf'<path class="k-{kind}" d="([^"]*)"', section)
    return [(float(x), float(y)) for x, y in re.findall(r"M([-\d.]+) ([-\d.]+)h", path[1])] if path else []


def expect(truth, words, faults):
    if not truth:
        faults.append(words)


def check_timeline(page, stages, microbatches, faults):
    expect("error" not in page.root, f"script error: {page.root.get('error')}", faults)
    expect(len(page.timelines) == 1, f"{len(page.timelines)} timelines instead of one", faults)
    for section in page.timelines:
        data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', section, re.DOTALL)[1])
        times = data["intervals"]
        expect(len(data["lanes"]) == stages, f"{len(data['lanes'])} lanes", faults)
        expect(f'data-drawn="{len(times["lane"])}"' in section, "not every interval was drawn", faults)
        for kind in ("forward", "backward"):
            found = bars(section, kind)
            expect(len({y for _, y in found}) == stages, f"{kind} bars in {len({y for _, y in found})} of {stages} rows", faults)
            begins = sorted(times["begin"][i] for i in range(len(times["lane"])) if data["kinds"][times["kind"][i]] == kind)
            expect(len(begins) == stages * microbatches, f"{len(begins)} {kind} actions in the data", faults)
            # Bars narrower than a pixel may share one; with few stages each has its own, in proportion to its time.
            if stages > 8:
                continue
            edges = sorted(x for x, _ in found)
            expect(len(edges) == len(begins), f"{len(edges)} {kind} bars for {len(begins)} actions", faults)
            scale = (edges[-1] - edges[0]) / (begins[-1] - begins[0])
            worst = max(abs(edges[0] + (t - begins[0]) * scale - x) for x, t in zip(edges, begins))
            expect(worst < 0.3, f"a {kind} bar stands {worst:.1f} pixels beside its time", faults)


# Run inside of a page: tells the frame around it what a reader sees, before and after using a chart.
PROBE = """<script>
addEventListener("load", () => {
  const root = document.documentElement, chart = document.querySelector("figure.chart");
  const plot = (kind) => chart.querySelector(kind), shown = (node) => getComputedStyle(node).display !== "none";
  const facts = { error: root.dataset.error ?? "", charts: root.dataset.charts, overflow: root.scrollWidth - innerWidth,
    about: document.querySelector(".about").getBoundingClientRect().bottom + scrollY,
    chart: plot(".plot").getBoundingClientRect().top + scrollY, height: plot(".plot").getBoundingClientRect().height,
    label: parseFloat(getComputedStyle(plot(".plot .y")).fontSize), linear: shown(plot(".plot:not(.log)")), log: shown(plot(".plot.log")) };
  const svg = plot(".plot:not(.log) svg"), edge = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent("pointermove", { clientX: edge.left + edge.width, clientY: edge.top + 5 }));
  facts.value = plot(".value").textContent;
  plot(".switch input").click();
  Object.assign(facts, { switchedLinear: shown(plot(".plot:not(.log)")), switchedLog: shown(plot(".plot.log")) });
  parent.postMessage(JSON.stringify(facts), "*");
});
</script>"""


def framed(folder, file, width, height):
    """A page that shows the file in a window so wide, and keeps what the probe in it tells. Browsers have no window as narrow
    as a phone."""
    probed = folder / f"probed-{file.parent.name}.html"
    probed.write_text(file.read_text(encoding="utf-8") + PROBE, encoding="utf-8")
    page = folder / f"framed-{file.parent.name}-{width}.html"
    page.write_text(f"""<!DOCTYPE html><html><body><script>
addEventListener("message", (event) => {{ document.body.dataset.facts = event.data; }});
</script><iframe src="{probed.name}" style="border:0;width:{width}px;height:{height}px"></iframe></body></html>""")
    return page


def check_sized(page, steps, wide, faults):
    """What a reader of a report of so many steps sees."""
    told = re.search(r'data-facts="([^"]*)"', page.html)
    if told is None:
        faults.append("the page told nothing")
        return
    facts = json.loads(html.unescape(told[1]))
    expect(not facts["error"], f"script error: {facts['error']}", faults)
    expect(facts["overflow"] <= 0, f"{facts['overflow']} pixels too wide", faults)
    # Until 2026-11-25 the limits were 400, 640, 600 and 1200, of a page whose head was empty.
    expect(facts["about"] < (400 if wide else 760), f"job, date and outcome reach down to {facts['about']}", faults)
    expect(facts["chart"] < (700 if wide else 1600), f"the first chart begins at {facts['chart']}", faults)
    expect(facts["height"] >= 180 and facts["label"] >= 10, f"a chart {facts['height']} high, its labels {facts['label']}", faults)
    expect(facts["linear"] and not facts["log"], "both axes, or none, at first", faults)
    expect(facts["switchedLog"] and not facts["switchedLinear"], "the switch shows no logarithmic axis", faults)
    expect(facts["value"].startswith(f"step {steps}: "), f"at the last step the pointer reads '{facts['value']}'", faults)


def train_briefly(binary, folder):
    """A run of two steps: what its folder says of job, machine, layout and outcome is real."""
    data, run = folder / "data", folder / "brief"
    subprocess.run([binary, "data", "make", str(data), "--samples", "40"], check=True, capture_output=True, timeout=60)
    subprocess.run([binary, "train", str(DEMO), f'data.sources=[{{json="{data}/samples.json"}}]', f"job.run_dir={run}", "train.steps=2"],
                   check=True, capture_output=True, timeout=120)
    return run


def make_long_report(binary, folder, brief, steps):
    """A run of so many steps, as a job that trained for long leaves it, with all that its first screen can hold: a long
    command, events, bad samples for many reasons."""
    run = folder / f"long-{steps}"
    run.mkdir()
    for name in ("resolved.toml", "plan.json"):
        shutil.copy(brief / name, run / name)
    (run / "events.jsonl").write_text("".join(json.dumps(
        {"time": "2026-11-23T05:22:33Z", "step": steps // 10 * n, "generation": n + 1, "kind": "lost" if n % 2 else "joined", "nodes": [n],
         "why": "the connection to it was lost", "detect_ms": 1.0, "decide_ms": 0.3, "connect_ms": 2.0, "copy_ms": 30.0, "copy_bytes": 4000000,
         "rebuild_ms": 3.0, "replay_ms": 200.0, "tolerance_left": 1}) + "\n" for n in range(1, 9)))
    facts = json.loads((brief / "run.json").read_text(encoding="utf-8"))
    facts["command"] = facts["command"] + " modules.vision.freeze=true balancer.policy=deferral-exchange scheduler.schedule=eager-zero-bubble"
    (run / "run.json").write_text(json.dumps({**facts, "steps": steps}))
    (run / "bad_samples.jsonl").write_text("".join(json.dumps(
        {"id": f"s{n}", "kind": kind, "file": f"images/{n}.jpg", "where": f"samples.json:{n}", "reason": f"{kind} of the {n}-th",
         "fix": "take it out"}) + "\n" for n, kind in enumerate(["missing file", "too long", "text", "unreadable media", "no encoder"] * 3)))
    with open(run / "metrics.jsonl", "w", encoding="utf-8") as file:
        for n in range(1, steps + 1):
            wave = math.sin(n) * math.sin(0.37 * n)
            file.write(json.dumps({**METRICS[0], "step": n, "loss": 1 + 5 / (1 + 20 * n / steps) + 0.1 * wave,
                                   "grad_norm": 2 + wave, "step_ms": 200 + 20 * wave, "bubble": 0.3 + 0.1 * wave,
                                   "imbalance": 1.5 + 0.2 * wave, "data_wait_ms": 1 + wave}) + "\n")
    subprocess.run([binary, "report", str(run)], check=True, capture_output=True, timeout=60)
    size = (run / "report.html").stat().st_size
    if size > 1_500_000:
        raise RuntimeError(f"the report of {steps} steps has {size} bytes")
    return run / "report.html"


def check_report(page, faults):
    expect("error" not in page.root, f"script error: {page.root.get('error')}", faults)
    expect(page.titles == ["Step 1, predicted", "Step 1, measured"], f"timelines: {page.titles}", faults)
    drawn = ['<path class="mark m-lost" d="M' in section for section in page.timelines]
    expect(drawn == [False, True] and "it was killed" in page.timelines[1], f"marks of what was lost: {drawn}", faults)
    for title in ("Loss", "Throughput", "Bubble", "Imbalance", "Memory"):
        expect(title in page.html, f"no chart of {title}", faults)
    expect(int(page.root.get("charts", 0)) >= 8, f"{page.root.get('charts')} charts work", faults)
    loaded = re.findall(r'(?:src|href)="(?!data:)([^"#][^"]*)"|url\((?!#)([^)]*)\)|@import', page.html)
    expect(not loaded, f"the page loads {loaded}", faults)


SIMULATED = """\
[job]
name = "simulated"
[modules.llm]
kind = "llm"
[[data.sources]]
json = "samples.json"
[train]
steps = 1
"""


def simulated_page(binary, folder, stages, microbatches):
    """What `troupe simulate --timeline` writes for a pipeline of so many stages."""
    own = folder / f"simulated-{stages}"
    own.mkdir()
    (own / "job.toml").write_text(SIMULATED)
    (own / "samples.json").write_text(json.dumps([
        {"id": f"s{i}", "conversations": [{"from": "human", "value": "hi " * (1 + 30 * (i % 5))}, {"from": "gpt", "value": "ho"}]}
        for i in range(32)]))
    subprocess.run([binary, "simulate", "job.toml", "--cluster", f"{stages}x1xH100", "--steps", "1", "--timeline", "step.html",
                    f"modules.llm.config.num_hidden_layers={stages - 2}", "parallel.llm.dp=1", f"parallel.llm.pp={stages}",
                    f"train.global_batch_size={microbatches}", f"train.microbatches={microbatches}"],
                   cwd=own, check=True, capture_output=True, timeout=120)
    return own / "step.html"


# As the recorder writes what was lost before step 1, on the way to its first action.
MARK = {"ph": "i", "s": "g", "pid": 1, "tid": 1, "ts": 0.0, "name": "lost: node 2", "cat": "event",
        "args": {"step": 1, "kind": "lost", "why": "it was killed"}}


def make_report(binary, folder, trace):
    run = folder / "run"
    run.mkdir()
    (run / "resolved.toml").write_text("")
    # Every value differs from step to step: what never changes has no chart.
    (run / "metrics.jsonl").write_text("".join(
        json.dumps({**{key: value * (1 + n / 10) for key, value in METRICS[0].items()}, "step": n}) + "\n" for n in (1, 2, 3)))
    shutil.copy(trace, run / "predicted.json")
    (run / "trace.json").write_text(trace.read_text().replace("\n]", f",\n{json.dumps(MARK)}\n]"))
    subprocess.run([binary, "report", str(run), "--step", "1"], check=True, capture_output=True, timeout=60)
    return run / "report.html"


def main(binary, maker):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("SKIPPED: no Chromium here; scripts/setup --browser installs it")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for stages, microbatches in ((4, 8), (64, 128)):
            subprocess.run([maker, folder, str(stages), str(microbatches), "1f1b"], check=True, capture_output=True, timeout=120)
        small, large = folder / "timeline-4.html", folder / "timeline-64.html"
        # The check of errors is itself checked: a page with damaged data must be told from a good one.
        damaged = folder / "damaged.html"
        damaged.write_text(small.read_text().replace('<script type="application/json">{', '<script type="application/json">{{'))
        brief = train_briefly(binary, folder)
        report = make_report(binary, folder, folder / "timeline-4.json")
        simulated = [simulated_page(binary, folder, stages, microbatches) for stages, microbatches in ((4, 8), (64, 128))]
        with ThreadPoolExecutor(2) as pool:
            pages = dict(zip("4 64 damaged report simulated-4 simulated-64".split(),
                             pool.map(lambda file: Page(browser, file), (small, large, damaged, report, *simulated))))
            sized = {(steps, wide): framed(folder, file, *((1400, 1000) if wide else (390, 844))) for steps in (6000, 100_000)
                     for file in [make_long_report(binary, folder, brief, steps)] for wide in (True, False)}
            shown = dict(zip(sized, pool.map(lambda file: Page(browser, file), sized.values())))
    faults = {key: [] for key in pages}
    check_timeline(pages["4"], 4, 8, faults["4"])
    check_timeline(pages["64"], 64, 128, faults["64"])
    check_timeline(pages["simulated-4"], 4, 8, faults["simulated-4"])
    check_timeline(pages["simulated-64"], 64, 128, faults["simulated-64"])
    expect("error" in pages["damaged"].root, "damaged data went unnoticed", faults["damaged"])
    check_report(pages["report"], faults["report"])
    for (steps, wide), page in shown.items():
        name = f"of {steps} steps on a {'desk' if wide else 'phone'}"
        faults[name] = []
        check_sized(page, steps, wide, faults[name])
    for key, found in faults.items():
        print(f"page {key}: " + ("good" if not found else "WRONG\n  " + "\n  ".join(found)))
    return 1 if any(faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main(*(pathlib.Path(word).resolve() for word in sys.argv[1:3])))
