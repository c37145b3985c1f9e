"""Going on from a checkpoint equals never having stopped.

    checkpoints.py BINARY [CASE...]     prints `N passed, M failed, K skipped` last
    checkpoints.py BINARY --pairs N     N random pairs of layouts instead of a few

A pair trains on one layout, goes back to a checkpoint in the middle of an epoch, and goes on in another one: other cuts,
numbers of nodes, devices and replicas, another schedule and policy. Data are made by `data make --uneven`, some of them
spoilt; the job is parity.toml.
"""

import argparse
import filecmp
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "engine"))

from parity_data import UnevenData  # noqa: E402
import exchange_products  # noqa: E402
import parity_exchange  # noqa: E402
from parity_layouts import REPLICAS, THREE_STAGES, TWO_DEVICES  # noqa: E402
from parity_matrix import POLICIES, SCHEDULES  # noqa: E402
from parity_standby import one_pipeline  # noqa: E402
from tests.support.device_words import device_words  # noqa: E402
from tests.support.drawn_cases import named_or_third  # noqa: E402
from tests.support.recorded_runs import read_lines, read_lines_so_far  # noqa: E402
from tests.support.run_cases import Failure, expect, run_cases  # noqa: E402

JOB = ROOT / "tests" / "engine" / "parity.toml"
STEPS, SAVED, BATCH, RECORDS = 6, 3, 8, 40  # Five steps are an epoch.
FP64 = "train.dtype=fp64"
ALONE = ["cluster.local_nodes=1", 'parallel.pipelines=[{stages=[{node=0,vision="all",audio="all",llm="all"}]}]']
CUT = ["cluster.local_nodes=3", 'parallel.pipelines=[{stages=[{node=0,vision="all",audio="all"},{node=1,llm=[0,3]},'
       '{node=2,llm=[3,7]}]}]']
LAYOUTS = {"two-pipelines": [], "three-stages": [THREE_STAGES], "two-devices": TWO_DEVICES, "alone": ALONE, "cut": CUT,
           "standby": one_pipeline(3, 2),  # Node 2 has no stage and keeps everything.
           **{f"replicas-{name}": words for name, words in REPLICAS.items()}}
PRODUCTS_AT_A_TIME = 1  # Each trains four jobs of four to eight nodes.
# What the model trains: its state has other shards.
MODELS = {"all": [], "vision-frozen": ["modules.vision.freeze=true"],
          "projectors": ["modules.vision.freeze=true", "modules.audio.freeze=true", "modules.llm.freeze=true"],
          "tied": ["modules.llm.config.tie_word_embeddings=true"]}
PAIRS, SEED = 20 if os.environ.get("TROUPE_CHAOS") else 5, 20


class Bench:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        data = UnevenData(binary, folder / "data")
        chosen = random.Random(3).sample(data.samples, RECORDS)
        for index in (2, 21, 33):  # Of the first batches and of later ones.
            chosen[index] = dict(chosen[index], id=f"spoilt-{index}", image="is-not-there.png")
        self.data, self.samples = data, chosen
        self.job = [data.write("some", chosen), f"train.steps={STEPS}", f"train.global_batch_size={BATCH}",
                    "train.microbatches=2", "data.max_bad_fraction=1"]
        self.references = {}

    def popen(self, words):
        return subprocess.Popen([str(self.binary), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, "OMP_NUM_THREADS": "1"})

    def run(self, words, code=0, timeout=300):
        process = self.popen(words)
        try:
            output = process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failure(f"{' '.join(words)}\ntakes more than {timeout} s\n{process.communicate()[0][-1500:]}") from None
        expect(process.returncode == code,
               f"{' '.join(words)}\nexit {process.returncode} instead of {code}\n{output[-2500:]}")
        return output

    def path(self, name):
        return self.folder / name

    def train(self, name, *words, code=0):
        return self.run(["train", str(JOB), *self.job, f"job.run_dir={self.path(name)}", *words], code)

    def reference(self, model):
        if model not in self.references:
            name = f"reference-{model}"
            self.train(name, FP64, "--reference", *{**MODELS, **parity_exchange.FREEZING}[model])
            self.references[model] = self.path(name)
        return self.references[model]

    def back_to(self, name, copy, step=SAVED):
        """A copy of a run as it was when it had saved this step, and what it has written since."""
        shutil.copytree(self.path(name), self.path(copy))
        expect((self.path(copy) / f"checkpoints/step-{step}").is_dir(), f"{name} has no checkpoint of step {step}")
        for folder in self.path(copy).glob("checkpoints/step-*"):
            if folder.name != f"step-{step}":
                shutil.rmtree(folder)
        facts = json.loads((self.path(copy) / "run.json").read_text(encoding="utf-8"))
        for key in ("ended", "exit_code", "message"):  # It was killed.
            facts.pop(key)
        (self.path(copy) / "run.json").write_text(json.dumps(facts), encoding="utf-8")

    def equal(self, a, b, rtol):
        self.run(["compare", str(a), str(b), "--rtol", str(rtol), "--loss-rtol", str(rtol)])


def same_bits(a, b):
    expect(filecmp.cmp(a / "model/model.safetensors", b / "model/model.safetensors", shallow=False),
           f"{a.name} and {b.name} end with other parameters")


def steps_of(run, file="metrics.jsonl"):
    return [line["step"] for line in read_lines_so_far(run / file)]


def expect_continued(whole, run, generation=2):
    """Files of a run that went back and on are those of one that never stopped."""
    for file in ("metrics.jsonl", "samples.jsonl", "iterations.jsonl"):
        expect(steps_of(run, file) == list(range(1, STEPS + 1)), f"steps of {file}: {steps_of(run, file)}")
    samples = [sorted(line["ids"]) for line in read_lines(run / "samples.jsonl")]
    expect(samples == [sorted(line["ids"]) for line in read_lines(whole / "samples.jsonl")], "other samples were trained")
    bad = [sorted(line["id"] for line in read_lines(of / "bad_samples.jsonl")) for of in (whole, run)]
    expect(bad[0] == bad[1] and bad[0], f"bad samples: {bad}")
    generations = [line["generation"] for line in read_lines(run / "metrics.jsonl")]
    expect(generations == [1] * SAVED + [generation] * (STEPS - SAVED), f"generations {generations}")
    expect(any(line["kind"] == "resumed" for line in read_lines(run / "events.jsonl")), "no event tells of it")


# ---- cases ----------------------------------------------------------------------------------------

def go_on_to_the_bit(bench, name, words):
    """A run that is taken back to its checkpoint and goes on as it was; returns it."""
    whole, back = f"whole-{name}", f"back-{name}"
    bench.train(whole, *words, f"checkpoint.every_steps={SAVED}")
    bench.back_to(whole, back)
    output = bench.train(back, *words, f"checkpoint.every_steps={SAVED}")
    expect(f"going on after step {SAVED}" in output, f"it did not go on:\n{output[:600]}")
    same_bits(bench.path(whole), bench.path(back))
    expect_continued(bench.path(whole), bench.path(back))
    expect(steps_of(bench.path(back) / "superseded", "metrics-1.jsonl") == [4, 5, 6], "superseded steps")
    return bench.path(back)


def the_same_layout_goes_on_to_the_bit(bench):
    for layout, words in {"two-pipelines": ["scheduler.schedule=zero-bubble", "balancer.policy=deferral"],
                          "replicas-2-1-3": ["balancer.policy=dflop", *MODELS["vision-frozen"]],
                          "standby": MODELS["tied"]}.items():
        for dtype in ("fp64", "bf16"):
            go_on_to_the_bit(bench, f"{layout}-{dtype}", [*LAYOUTS[layout], *words, f"train.dtype={dtype}"])


def goes_on_exchanged(bench, cell):
    """A job that shares its phases out over all replicas, with samples in pieces, does so behind its checkpoint too."""
    for dtype in ("fp64", "bf16"):
        back = go_on_to_the_bit(bench, f"{cell.name}-{dtype}", [*cell.words, f"train.dtype={dtype}"])
        if dtype == "fp64":
            bench.equal(bench.reference(cell.freezing), back, 1e-10)
        told = {line.get("exchanged") for line in read_lines(back / "metrics.jsonl") if line["step"] > SAVED}
        # One encoder has nobody to share with.
        expect(told == {None} if cell.layout == "1-4" else True in told, f"steps behind the checkpoint were exchanged: {told}")


def moments_in_host_memory_go_on_to_the_bit(bench):
    """They are saved from where they lie, and read to where the job that goes on has them."""
    for dtype in ("fp64", "bf16"):
        words = [*LAYOUTS["standby"], f"train.dtype={dtype}"]
        whole = f"whole-moments-{dtype}"
        bench.train(whole, *words, f"checkpoint.every_steps={SAVED}", "scheduler.offload_encoders=moments")
        for what in ("moments", "off"):
            back = f"back-{what}-{dtype}"
            bench.back_to(whole, back)
            output = bench.train(back, *words, f"checkpoint.every_steps={SAVED}", f"scheduler.offload_encoders={what}")
            expect(f"going on after step {SAVED}" in output, f"it did not go on:\n{output[:600]}")
            same_bits(bench.path(whole), bench.path(back))
            expect_continued(bench.path(whole), bench.path(back))
            moved = [line.get("moved_to_host_bytes", 0) > 0 for line in read_lines(bench.path(back) / "metrics.jsonl")]
            expect(moved == [True] * SAVED + [what == "moments"] * (STEPS - SAVED), f"moments were moved in steps {moved}")


def parameters_in_host_memory_go_on_to_the_bit(bench):
    """A checkpoint is ordered in the middle of a step, when they may be away: it has them all the same."""
    words = [*LAYOUTS["standby"], "train.dtype=fp64", "scheduler.schedule=three-phase", f"checkpoint.every_steps={SAVED}"]
    bench.train("whole-parameters", *words, "scheduler.offload_encoders=all")
    for what in ("all", "off"):
        back = f"back-parameters-{what}"
        bench.back_to("whole-parameters", back)
        output = bench.train(back, *words, f"scheduler.offload_encoders={what}")
        expect(f"going on after step {SAVED}" in output, f"it did not go on:\n{output[:600]}")
        same_bits(bench.path("whole-parameters"), bench.path(back))


def random_pairs_of_layouts(bench):
    draw = random.Random(SEED)
    names = list(LAYOUTS)
    policies = [policy for policy in POLICIES if policy != "auto"] + ["auto"]
    runs = {}
    for number in range(bench.pairs):
        before, after = draw.sample(names, 2)
        model = list(MODELS)[number % len(MODELS)]
        words = [FP64, *MODELS[model]]
        if (before, model) not in runs:
            runs[before, model] = f"from-{before}-{model}"
            bench.train(runs[before, model], *words, *LAYOUTS[before], f"checkpoint.every_steps={SAVED}")
        schedule, policy = SCHEDULES[number % len(SCHEDULES)], policies[number % len(policies)]
        back = f"pair-{number}"
        bench.back_to(runs[before, model], back)
        print(f"  {before} -> {after}, {model}, {schedule}, {policy}", flush=True)
        output = bench.train(back, *words, *LAYOUTS[after], f"scheduler.schedule={schedule}", f"balancer.policy={policy}")
        expect("changed since then: " in output, "what changed is not told")
        bench.equal(bench.reference(model), bench.path(back), 1e-10)
        expect_continued(bench.reference(model), bench.path(back))


def references_save_and_go_on(bench):
    """Each kind of reference goes on from a job's checkpoint, and a job from theirs."""
    bench.train("saved-by-job", FP64, *CUT, f"checkpoint.every_steps={SAVED}")
    bench.back_to("saved-by-job", "reference-goes-on")
    bench.train("reference-goes-on", FP64, "--reference")
    bench.equal(bench.reference("all"), bench.path("reference-goes-on"), 1e-10)
    bench.back_to("saved-by-job", "plan-goes-on")
    bench.train("plan-goes-on", FP64, *CUT, "--reference", "--microbatches", "plan")
    same_bits(bench.path("saved-by-job"), bench.path("plan-goes-on"))
    bench.train("saved-by-reference", FP64, "--reference", f"checkpoint.every_steps={SAVED}")
    bench.back_to("saved-by-reference", "job-goes-on")
    bench.train("job-goes-on", FP64, *LAYOUTS["replicas-1-4"])
    bench.equal(bench.reference("all"), bench.path("job-goes-on"), 1e-10)


def what_was_learned_goes_on(bench):
    """The first step after a resume is planned by what was measured before: in the same layout by all of it, in another one
    by what is the module's."""
    slow = ['debug.slow_shapes=[{module="llm",min_rows=1,max_rows=100000,factor=4}]', FP64, "train.steps=8"]
    save = ["checkpoint.every_steps=6"]

    def first_after(name, *words):
        bench.back_to(name.split("-")[0], name, 6)
        bench.train(name, *slow, *words)
        line = read_lines(bench.path(name) / "metrics.jsonl")[6]
        expect(line["step"] == 7, str(line))
        return line["corrected_shapes"], line["calibrated_step_ms"] / line["profile_step_ms"]

    adaptive = "balancer.adaptive_correction=true"
    bench.train("corrected", *slow, *save, *CUT, adaptive)
    shapes, ratio = first_after("corrected-same", *CUT, adaptive)
    expect(shapes > 0 and ratio > 2, f"same layout: {shapes} shapes corrected, {ratio:.2f} times the profile")
    told = f"{ratio:.1f} times the profile in the same layout"
    shapes, ratio = first_after("corrected-other", adaptive)  # Two pipelines.
    expect(shapes > 0 and ratio > 2, f"other layout: {shapes} shapes corrected, {ratio:.2f} times the profile")
    bench.train("plain", *slow, *save, *CUT)
    shapes, speed = first_after("plain-same", *CUT)
    expect(shapes == 0 and speed > 2, f"same layout: stages {speed:.2f} times as slow as the profile")
    shapes, speed = first_after("plain-other")
    expect(speed == 1, f"other layout: stages {speed:.2f} times as slow as the profile")
    same_bits(bench.path("plain"), bench.path("plain-same"))
    print(f"  {told}, {ratio:.1f} in another one", flush=True)


def data_that_grew_are_taken_up_at_the_next_epoch(bench):
    """Two sources grow while the job is stopped: the running epoch ends as it would have, the next one trains all. Twice."""
    sources = [bench.samples[:24], bench.samples[24:36]]  # Five batches of 8, the last one smaller.
    known = {sample["id"] for sample in bench.samples}
    more = [sample for sample in bench.data.samples if sample["id"] not in known][:14]
    names = ["grows-a", "grows-b"]

    def write(a, b):
        files = [bench.data.write(name, [*samples, *added])[len("data.sources=["):-1]
                 for name, samples, added in zip(names, sources, (a, b))]
        rest = [word for word in bench.job[1:] if not word.startswith("train.steps")]
        return [*rest, f"data.sources=[{','.join(files)}]", FP64, "train.epochs=3"]

    def train(name, job, *words, code=0):
        return bench.run(["train", str(JOB), *job, f"job.run_dir={bench.path(name)}", *words], code)

    def ids(name, first, last):
        return sorted(identity for line in read_lines(bench.path(name) / "samples.jsonl")
                      if first <= line["step"] <= last for identity in line["ids"])

    def audit(name, steps):
        told = json.loads(bench.run(["data", "audit", str(bench.path(name)), "--json"]))
        expect(told["trained_twice"] == [] and told["never"] == [] and told["steps"] == steps, f"{name}: {told}")

    train("small", write([], []), *CUT, f"checkpoint.every_steps={SAVED}", "checkpoint.keep_last=0")
    expect(steps_of(bench.path("small"))[-1] == 15, f"three epochs of five batches: {steps_of(bench.path('small'))}")
    job = write(more[:5], more[5:8])  # 44 records: six batches.
    audit("small", 15)  # What it trained, though there is more now.
    # Ends of both kinds of reference, and of jobs on two layouts, all from the same checkpoint.
    bench.back_to("small", "grown-reference")
    train("grown-reference", job, "--reference", f"checkpoint.every_steps={SAVED}")
    for name, words in {"grown-cut": CUT, "grown-pipelines": [], "grown-replicas": LAYOUTS["replicas-2-1-3"]}.items():
        bench.back_to("small", name)
        output = train(name, job, *words, "checkpoint.every_steps=7")
        expect("8 samples were appended to the data; they are trained from epoch 2" in output, output[:900])
        bench.equal(bench.path("grown-reference"), bench.path(name), 1e-10)
        audit(name, 17)
        expect(ids(name, 1, 5) == ids("small", 1, 5), f"{name}: the running epoch trained other samples")
        good = sorted(sample["id"] for sample in [*bench.samples[:36], *more[:8]] if "spoilt" not in sample["id"])
        expect(ids(name, 6, 11) == good, f"{name}: the next epoch is {ids(name, 6, 11)}")
    bench.back_to("small", "grown-plan")
    train("grown-plan", job, *CUT, "--reference", "--microbatches", "plan")
    same_bits(bench.path("grown-cut"), bench.path("grown-plan"))
    # They grow again while the second epoch trains: seven batches from the third on.
    job = write(more[:5] + more[8:11], more[5:8] + more[11:14])
    for name, words in {"again-reference": ["--reference"], "again-cut": CUT}.items():
        bench.back_to("grown-pipelines", name, 7)
        train(name, job, *words)
        audit(name, 18)
        expect(ids(name, 6, 11) == ids("grown-pipelines", 6, 11), f"{name}: the running epoch trained other samples")
    bench.equal(bench.path("again-reference"), bench.path("again-cut"), 1e-10)
    shown = json.loads(bench.run(["checkpoint", "show", str(bench.path("grown-pipelines")), "--json"]))
    expect((shown["step"], shown["epoch"], shown["batch_of_epoch"]) == (17, 4, 0), f"shown: {shown}")
    # Another beginning.
    sources[1][0] = dict(sources[1][0], id="another")
    bench.back_to("small", "other-beginning")
    output = train("other-beginning", write(more[:5], []), *CUT, code=2)
    expect("data.sources" in output and "the first 36 are not the same" in output, output)


def a_job_killed_again_and_again_comes_to_its_end(bench):
    words = [FP64, *CUT, "checkpoint.every_steps=1", "checkpoint.keep_last=2", "train.steps=40"]
    bench.train("undisturbed", *words)
    draw, kills, patience, saved = random.Random(8), 0, 1, set()
    while True:
        process = bench.popen(["train", str(JOB), *bench.job, f"job.run_dir={bench.path('killed')}", *words])
        try:
            output = process.communicate(timeout=patience * (1.2 + draw.random()))[0]
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            expect(kills < 60, "it makes no progress")
        # Where a start alone takes that long (a busy machine, a slow one), the next has more time.
        before, saved = saved, {path.name for path in bench.path("killed").glob("checkpoints/step-*")}
        patience = patience * 1.5 if saved == before else max(1, patience / 1.5)
    expect(process.returncode == 0, output[-1500:])
    expect(kills >= 2, f"it was killed {kills} times only")
    print(f"  killed {kills} times", flush=True)
    same_bits(bench.path("undisturbed"), bench.path("killed"))
    for file in ("metrics.jsonl", "samples.jsonl"):
        expect(steps_of(bench.path("killed"), file) == list(range(1, 41)), f"steps of {file}")
    audit = json.loads(bench.run(["data", "audit", str(bench.path("killed")), "--json"]))
    expect(audit["trained_twice"] == [] and audit["never"] == [] and audit["steps"] == 40, f"audit: {audit}")
    expect(audit["generations"] >= 2, f"{audit['generations']} generations")
    lost_and_doubled(bench)
    left = sorted(path.name for path in (bench.path("killed") / "checkpoints").iterdir() if path.name != "superseded")
    # One that is due while another is still being written is left out.
    expect(len(left) == 2 and left[-1] == "step-40", f"checkpoints: {left}")


def lost_and_doubled(bench):
    """The audit finds what is not as it should be."""
    file = bench.path("undisturbed") / "samples.jsonl"
    lines = read_lines(file)
    lost = lines[4]["ids"].pop()
    doubled = lines[7]["ids"][0]
    lines[6]["ids"].append(doubled)
    del lines[20:22]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    audit = json.loads(bench.run(["data", "audit", str(bench.path("undisturbed")), "--json"], code=1))
    expect(audit["trained_twice"] == [doubled] and audit["never"] == [lost], f"{audit}; {doubled}, {lost}")
    expect(audit["missing_steps"] == [21, 22], f"{audit['missing_steps']}")


def signals_save(bench):
    run = bench.path("signals")
    words = ["train", str(JOB), *bench.job, f"job.run_dir={run}", FP64, *CUT, "train.steps=100000"]
    process = bench.popen(words)
    wait_for(lambda: len(read_lines_so_far(run / "metrics.jsonl")) >= 2, process)
    process.send_signal(signal.SIGUSR1)
    wait_for(lambda: list(run.glob("checkpoints/step-*/manifest.json")), process)
    first = max(int(path.name[5:]) for path in run.glob("checkpoints/step-*"))
    wait_for(lambda: len(read_lines_so_far(run / "metrics.jsonl")) > first + 2, process)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=30)[0]
    expect(process.returncode == 75, f"exit {process.returncode}\n{output[-800:]}")
    last = max(int(path.name[5:]) for path in run.glob("checkpoints/step-*"))
    expect(last > first and f"step {last} is saved: the same command goes on" in output, output[-800:])
    expect(steps_of(run)[-1] == last, "a finished step is not saved")
    output = bench.run([*words[:-1], f"train.steps={last + 2}"])
    expect(f"going on after step {last}" in output and "train.steps 100000 -> " in output, output[:800])
    expect(steps_of(run) == list(range(1, last + 3)), "steps")


def wait_for(done, process, within=60):
    deadline = time.monotonic() + within
    while not done():
        expect(process.poll() is None, f"it ended: {process.stdout.read()[-800:] if process.poll() is not None else ''}")
        expect(time.monotonic() < deadline, "it takes too long")
        time.sleep(0.02)


def flip(path):
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(bytes(data))


def a_damaged_checkpoint_is_passed_over(bench):
    words = [FP64, *CUT]
    bench.train("damage", *words, "checkpoint.every_steps=2")
    damages = {"flipped": lambda folder: flip(folder / "state-0.0.safetensors"),
               "cut": lambda folder: os.truncate(folder / "state-1.0.safetensors", 1000),
               "torn": lambda folder: os.truncate(folder / "manifest.json", 1000),
               "foreign": lambda folder: (folder / "manifest.json").write_text('{"format": 1}', encoding="utf-8"),
               "of-another-job": lambda folder: (shutil.rmtree(folder), shutil.copytree(
                   bench.path("another-job") / "checkpoints/step-4", folder))}
    bench.train("another-job", *words, *MODELS["tied"], "train.steps=4", "checkpoint.every_steps=4")
    for name, damage in damages.items():
        bench.back_to("damage", name, 4)
        shutil.copytree(bench.path("damage") / "checkpoints/step-2", bench.path(name) / "checkpoints/step-2")
        damage(bench.path(name) / "checkpoints/step-4")
        output = bench.train(name, *words)
        expect("going on after step 2" in output, output[:800])
        expect("warning" in output and "step-4" in output, f"the damaged one is not named:\n{output[:800]}")
        same_bits(bench.path("damage"), bench.path(name))
        expect((name == "of-another-job") == ("another model" in output), output[:800])
        expect((bench.path(name) / "checkpoints/superseded").is_dir(), "the damaged one still stands among the others")
    bench.back_to("damage", "none-good", 4)
    flip(bench.path("none-good") / "checkpoints/step-4/resolved.toml")
    output = bench.train("none-good", *words, code=3)
    expect("no checkpoint of this run is whole" in output and "--fresh" in output, output)
    bench.run(["checkpoint", "verify", str(bench.path("none-good"))], code=3)
    output = bench.train("none-good", *words, "--fresh")
    expect("an older run was moved to" in output, output[:600])
    same_bits(bench.path("damage"), bench.path("none-good"))


def a_job_that_begins_has_no_checkpoints_yet(bench):
    """Those of an older job in the same folder are laid aside: neither kept for its own nor gone on from."""
    folder = bench.path("shared-checkpoints")
    words = [FP64, *CUT, f"checkpoint.dir={folder}", "checkpoint.keep_last=2"]
    bench.train("older", *words, "checkpoint.every_steps=2")
    saved = sorted(path.name for path in folder.glob("step-*"))
    expect(saved == ["step-4", "step-6"], f"{saved}")
    output = bench.train("another", *words, code=2)
    expect("the newest of step 6" in output and "--resume" in output and "--fresh" in output, output)
    output = bench.train("older", *words, "checkpoint.every_steps=1", "train.steps=2", "--fresh")
    expect("checkpoints of an older run were moved to" in output and str(folder / "superseded") in output, output[:1200])
    saved = sorted(path.name for path in folder.glob("step-*"))
    expect(saved == ["step-1", "step-2"], f"{saved}")
    aside = sorted(path.name for path in (folder / "superseded").iterdir())
    expect(aside == ["step-4-0", "step-6-0"], f"{aside}")
    bench.train("older", *words, "checkpoint.every_steps=1", "--resume")
    bench.equal(bench.reference("all"), bench.path("older"), 1e-10)
    # What a job that begins would move is no place to begin from.
    for name, values in (("another", folder / "step-6"), ("older", bench.path("older"))):
        output = bench.train(name, *words, f"modules.vision.init={values}", "--fresh", code=2)
        expect("modules.vision.init" in output and "moves when it begins" in output, output)
    expect((bench.path("older") / "model/model.safetensors").is_file(), "the older run is gone")


def what_cannot_be_saved_does_not_stop_training(bench):
    (bench.folder / "a-file").write_text("in the way", encoding="utf-8")
    words = [FP64, *CUT, "checkpoint.every_steps=2", f"checkpoint.dir={bench.folder / 'a-file' / 'checkpoints'}"]
    output = bench.train("unsaved", *words)
    expect(output.count("no checkpoint of step") == 3 and "training goes on" in output, output[-2000:])
    bench.equal(bench.reference("all"), bench.path("unsaved"), 1e-10)


def what_may_not_change_is_refused(bench):
    bench.train("refusals", FP64, *CUT, f"checkpoint.every_steps={SAVED}")
    bench.back_to("refusals", "refused")
    before = {path: path.read_bytes() for path in bench.path("refused").rglob("*") if path.is_file()}
    for words, key in {"modules.vision.freeze=true": "modules.vision.freeze", "job.seed=7": "job.seed",
                       "modules.llm.config.intermediate_size=80": "modules.llm", "train.global_batch_size=4":
                       "train.global_batch_size"}.items():
        output = bench.train("refused", FP64, *CUT, words, code=2)
        expect(key in output and "cannot go on" in output and "--fresh" in output, output)
    after = {path: path.read_bytes() for path in bench.path("refused").rglob("*") if path.is_file()}
    expect(before == after, "a refused job has changed the run")
    output = bench.train("refused", FP64, *CUT, "--resume", f"train.steps={STEPS + 1}")
    expect(f"going on after step {SAVED}" in output, output[:600])
    for words in (["--resume", "--fresh"], ["--resume", str(bench.folder / "nothing")]):
        bench.run(["train", *words], code=2)


def another_type_goes_on(bench):
    for before, after in (("fp32", "bf16"), ("bf16", "fp32"), ("fp32", "fp64")):
        name = f"{before}-{after}"
        bench.train(name, f"train.dtype={before}", *CUT, f"checkpoint.every_steps={SAVED}")
        bench.back_to(name, f"{name}-on")
        bench.train(f"{name}-on", f"train.dtype={after}", *CUT)
        losses = [[line["loss"] for line in read_lines(bench.path(run) / "metrics.jsonl")]
                  for run in (name, f"{name}-on")]
        expect(losses[0][:SAVED] == losses[1][:SAVED], "what was trained before has changed")
        gap = max(abs(a - b) / abs(a) for a, b in zip(*losses))
        expect(0 < gap < 0.01, f"{name}: losses are {gap:.2e} apart")


def another_kind_of_device_goes_on(bench):
    """A checkpoint does not know where its tensors lay."""
    apart = device_words(bench.binary, "apart")
    for name, before, after in (("to-apart", [], apart), ("from-apart", apart, ["plugins.libraries=[]", "cluster.device=cpu"])):
        bench.train(name, FP64, *CUT, *before, f"checkpoint.every_steps={SAVED}")
        bench.back_to(name, f"{name}-on")
        bench.train(f"{name}-on", FP64, *CUT, *after)
        expect_continued(bench.path(name), bench.path(f"{name}-on"))
        for run in (name, f"{name}-on"):
            bench.equal(bench.path(run), bench.reference("all"), 1e-10)


def values_of(path):
    """Bytes of each tensor of a safetensors file."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    return {name: data[end + entry["data_offsets"][0]:end + entry["data_offsets"][1]]
            for name, entry in header.items() if name != "__metadata__"}


def first_values_come_from_another_job(bench):
    """An encoder of a run, frozen, another one of a checkpoint, behind an llm of another size; as the oracles have it."""
    bench.train("teacher", FP64, *CUT, f"checkpoint.every_steps={SAVED}")
    words = [f"modules.vision.init={bench.path('teacher')}", "modules.vision.freeze=true",
             f"modules.audio.init={bench.path('teacher') / 'checkpoints' / f'step-{SAVED}'}",
             "modules.llm.config.intermediate_size=80"]
    bench.train("pupil", FP64, *CUT, *words)
    bench.train("pupil-reference", FP64, "--reference", *words)
    bench.equal(bench.path("pupil-reference"), bench.path("pupil"), 1e-10)
    teacher, pupil = (values_of(bench.path(run) / "model/model.safetensors") for run in ("teacher", "pupil"))
    frozen = [name for name in teacher if name.startswith("vision.")]
    expect(frozen and all(pupil[name] == teacher[name] for name in frozen), "the frozen encoder is not the teacher's")
    words[1] = "modules.vision.freeze=false"
    bench.train("pupil-bf16", "train.dtype=bf16", *LAYOUTS["replicas-2-1-3"], *words)
    bench.train("pupil-plan", "train.dtype=bf16", *LAYOUTS["replicas-2-1-3"], *words, "--reference", "--microbatches", "plan")
    same_bits(bench.path("pupil-bf16"), bench.path("pupil-plan"))
    # Of one that has not come to its end the newest checkpoint, wherever it writes them.
    apart = bench.path("apart")
    bench.train("halfway", FP64, *CUT, f"checkpoint.every_steps={SAVED}", f"checkpoint.dir={apart}")
    shutil.rmtree(bench.path("halfway") / "model")
    resolved = bench.run(["train", str(JOB), *bench.job, f"job.run_dir={bench.path('from-apart')}", FP64, *CUT, *words[1:],
                          f"modules.vision.init={bench.path('halfway')}"])
    record = (bench.path("from-apart") / "resolved.toml").read_text()
    expect(f'"{apart}/step-' in record, f"not from {apart}:\n{resolved[-600:]}\n{record[:1500]}")
    # An interrupted one goes on from its own state, not from the teacher's.
    bench.train("pupil-saved", FP64, *CUT, *words, f"checkpoint.every_steps={SAVED}")
    bench.back_to("pupil-saved", "pupil-back")
    output = bench.train("pupil-back", FP64, *CUT, *words, f"checkpoint.every_steps={SAVED}")
    expect("nothing changed" in output, output[:600])
    same_bits(bench.path("pupil-saved"), bench.path("pupil-back"))

    wrong = ["modules.llm.config.num_hidden_layers=6", "parallel.mode=auto", "parallel.pipelines=[]"]
    for command in ("train", "validate"):
        output = bench.run([command, str(JOB), *bench.job, f"job.run_dir={bench.path('wrong')}",
                            f"modules.llm.init={bench.path('teacher')}", *wrong], code=2)
        expect("modules.llm.init" in output and "lacks llm." in output, output)
    wrong[0] = "modules.llm.config.num_hidden_layers=4"
    output = bench.train("fewer", f"modules.llm.init={bench.path('teacher')}", *wrong)
    expect("which the module has no place for" in output, output[:900])


CASES = [the_same_layout_goes_on_to_the_bit, moments_in_host_memory_go_on_to_the_bit,
         parameters_in_host_memory_go_on_to_the_bit, random_pairs_of_layouts, references_save_and_go_on, what_was_learned_goes_on,
         data_that_grew_are_taken_up_at_the_next_epoch,
         a_job_killed_again_and_again_comes_to_its_end, signals_save, a_damaged_checkpoint_is_passed_over,
         a_job_that_begins_has_no_checkpoints_yet, what_cannot_be_saved_does_not_stop_training, what_may_not_change_is_refused, another_type_goes_on,
         another_kind_of_device_goes_on,
         first_values_come_from_another_job]
PRODUCTS = exchange_products.checkpoint_cases(goes_on_exchanged)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    arguments = parser.parse_args()
    cases = named_or_third(CASES, arguments.cases, PRODUCTS, PRODUCTS_AT_A_TIME)
    with tempfile.TemporaryDirectory(prefix="troupe-checkpoints-") as name:
        bench = Bench(arguments.binary.resolve(), pathlib.Path(name))
        bench.pairs = arguments.pairs
        return run_cases(cases, lambda case: case(bench))


if __name__ == "__main__":
    sys.exit(main())
