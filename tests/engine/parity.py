"""Parity: pipelined runs of node processes over UCX against the reference runs.

Every case trains the same job three times and compares final parameters, losses and first gradients:
the pipelined run; `--reference` (one sample at a time), within a tolerance; and
`--reference --microbatches plan`, to the bit. Recorded plans must show that policy and schedule did something.

    parity.py BINARY                    one case of each kind, and what the commit's hash draws of the rest and of the matrix;
                                        with TROUPE_THOROUGH in the environment all cases below
    parity.py BINARY CASE...            these; `exchange`, `replicas`, `late`, ...: all of that family (FAMILIES)
    parity.py BINARY --slice COMMIT     the slice that this commit draws, 20 steps
    parity.py BINARY --matrix [FILE]    every policy x schedule x freezing, 20 steps: about 40 minutes on two cores. With
                                        FILE, cases that passed with this build are kept there and not run again; CASEs
                                        before it are the only ones. `--record FILE` writes the result to be kept.
    parity.py BINARY --late MS ...      the same, and devices of pipelined runs complete their work up to MS milliseconds late
    parity.py BINARY --device KIND ...  the same, on such devices (cuda; apart: tests/accelerator, whose memory no processor
                                        can reach), which the plan's reference trains on too, but not the oracle

Each prints `N passed, M failed, K skipped` last. The data are made by `data make --uneven`, the job is parity.toml beside
this file; the cases called real-mini-* train configs/real-mini.toml and are skipped where ../shared/data is not there.

Cases of the matrix are called POLICY/SCHEDULE/FREEZING; without arguments short ones cover each schedule and each
freezing, and all cases together each policy and several numbers of microbatches. Cases that train the same on paper
share one run of the oracle, and those of the matrix whose recorded plans are the same one replay. Two cases run at a
time, so that the cores stay busy while a reference, which is one thread, runs.
"""

import argparse
import concurrent.futures
import filecmp
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import exchange_products
import parity_boundary
import parity_encoders
import parity_exchange
import parity_lengths
import parity_matrix
import parity_nccl
import parity_offload
import parity_recompute
import parity_replicas
import parity_rounding
import parity_sources
import parity_trees
import parity_vocabulary
from parity_auto import AUTO_NUMBERS, faults_of_numbers, write_profile
from parity_data import UnevenData
from parity_dealing import ALIKE, DAMAGED_LAYOUTS, faults_of_counts, faults_of_dropped, rows_by_llm, unevenness
from parity_layouts import CHANGING, CHANGING_STEPS, REPLICAS, THREE_STAGES, TWO_DEVICES, faults_of_changes
from parity_matrix import POLICIES, PROJECTORS_ONLY
from parity_plans import DEFERRING, faults_of_plans
from parity_standby import STANDBY, faults_of_standby, faults_of_takeovers
from device_words import device_words
from drawn_cases import commit_here, drawn_here
from recorded_runs import read_lines, read_llm_shares

ROOT = pathlib.Path(__file__).resolve().parents[2]
REAL_MINI = ROOT.parent / "shared" / "data" / "real-mini"
REAL_JOB = ROOT / "configs" / "real-mini.toml"
JOB = pathlib.Path(__file__).with_name("parity.toml")
STEPS = 20
BATCH = 16
AT_A_TIME = 2
SHORT = 3
SHORT_DEFERRING = 8  # Whether a batch is worth a deferral depends on measured costs: not every one is.
DEALING_STEPS = 6
# What is usual is known after 20 steps, a node slow after 16, its share three later; it is fast again after 15 that are.
WHILE_SLOW, WHILE_STEPS = (22, 52), 80
SLOW_STEPS = 20  # A correction waits for two measurements of a shape; on a crowded machine shares moved as late as the twelfth step.
TWICE = ["fp32", "auto/zero-bubble/projectors"]
ALONE_TOO = ["standby-one-pipeline", "standby-bf16", "standby-1-2-frozen", "tree-standby"]  # Devices without a stage would be refused.
REPLAYED = ["standby-layouts", "layouts-split-auto", "auto/zero-bubble/projectors", "deferral-chain/eager-zero-bubble/all"]
AUTO = ["parallel.mode=auto", "parallel.pipelines=[]", "cluster.local_nodes=2"]
MODALITY = ["modules.llm.attention=modality"]
APART = "cluster.device=apart"  # Who forgets where a tensor lies is found: it stands in for a GPU.
LATE = ["debug.delayed_device_ms=0.4"]  # Devices complete work late, on threads of their own: who forgets to wait is found.
LAYOUT = ("parallel.", "cluster.")
FULL_RESOLUTION = ["train.dtype=fp64", "data.max_pixels=1003520", "data.max_seq_len=20000"]

# name: (overrides, which samples, steps)
CASES = {
    "fp64": (["train.dtype=fp64"], "all", STEPS),
    "fp32": (["train.dtype=fp32"], "all", STEPS),
    # Policies that no short case below has ride along.
    "vision-frozen-3-microbatches": (
        ["train.dtype=fp64", "modules.vision.freeze=true", "train.microbatches=3", "balancer.policy=deferral",
         "scheduler.schedule=split-1f1b"], "all", STEPS),
    "projectors-only-1-microbatch": (["train.dtype=fp64", *PROJECTORS_ONLY, "train.microbatches=1"], "all", STEPS),
    "text-only": (["train.dtype=fp64", "balancer.policy=llm-only"], "text", STEPS),
    "text-only-projectors": (["train.dtype=fp32", *PROJECTORS_ONLY], "text", 3),
    "audio-only": (["train.dtype=fp64", "balancer.policy=karmarkar-karp"], "audio", STEPS),
    "tied-head-8-microbatches": (
        ["train.dtype=fp64", "modules.llm.config.tie_word_embeddings=true", "train.microbatches=8",
         "balancer.policy=dflop-search", "scheduler.schedule=eager-1f1b"], "all", STEPS),
    "encoders-cut": (["train.dtype=fp64", THREE_STAGES, "balancer.policy=balanced-chain"], "all", 5),
    "two-devices-per-node": (
        ["train.dtype=fp64", *TWO_DEVICES, "modules.vision.lr=3e-4", "modules.llm.lr=2e-3"], "all", 5),
    # The planner lays out two nodes; both runs find the same profile.
    "auto-layout": (["train.dtype=fp64", *AUTO], "all", 5),
    # It may give module groups numbers of replicas of their own.
    **{name: (overrides, "all", steps) for name, (overrides, steps, _) in AUTO_NUMBERS.items()},
    "bf16": (["train.dtype=bf16"], "all", 5),
    # Logits of a microbatch are cut into chunks.
    **{name: (overrides, "all", 3) for name, overrides in parity_vocabulary.CASES.items()},
    # Layers run forward again in their backward.
    **{name: (overrides, "all", 5) for name, overrides in parity_recompute.CASES.items()},
    # Encoders' activations are in host memory between the phases, or their moments but for the update.
    **{name: (overrides, "all", parity_offload.STEPS.get(name, 5)) for name, overrides in parity_offload.CASES.items()},
    # Rows of media see their own picture or sound alone.
    **{f"modality-{name}": ([*MODALITY, *overrides], samples, steps)
       for name, (overrides, samples, steps) in {
           "fp64": (["train.dtype=fp64"], "all", STEPS),
           "deferral-split": (["train.dtype=fp64", "balancer.policy=deferral", "scheduler.schedule=split-1f1b"], "all",
                              SHORT_DEFERRING),
           "zero-bubble-frozen": (["train.dtype=fp64", *PROJECTORS_ONLY, "balancer.policy=auto",
                                   "scheduler.schedule=zero-bubble"], "all", 5),
           "text": (["train.dtype=fp64"], "text", 5),
           "fp32": (["train.dtype=fp32"], "all", 5),
           "bf16": (["train.dtype=bf16"], "all", 5)}.items()},
    # The layout changes six times while the job runs.
    "layouts-1f1b": (CHANGING, "all", CHANGING_STEPS),
    "layouts-zero-bubble-tied": (
        [*CHANGING, "modules.llm.config.tie_word_embeddings=true", "modules.audio.freeze=true",
         "balancer.policy=deferral", "scheduler.schedule=zero-bubble"], "all", CHANGING_STEPS),
    "layouts-split-auto": (
        [*CHANGING, "balancer.policy=auto", "scheduler.schedule=split-1f1b"], "all", CHANGING_STEPS),
    "layouts-bf16": (["train.dtype=bf16", *CHANGING[1:]], "all", CHANGING_STEPS),
    "layouts-standby": ([*CHANGING, "cluster.fault_tolerance=1"], "all", CHANGING_STEPS),
    # Everything is kept on several nodes.
    **{name: (overrides, "all", steps) for name, (overrides, steps) in STANDBY.items()},
    # Holders of a parameter share nodes: sums are trees.
    **{name: (overrides, "all", steps) for name, (overrides, steps) in parity_trees.CASES.items()},
    # Two vision encoders and two audio encoders.
    **{name: (overrides, "all", 5) for name, overrides in parity_encoders.CASES.items()},
    # Replicas per module group.
    **{name: (overrides, "all", parity_replicas.STEPS) for name, overrides in parity_replicas.CASES.items()},
    # Data that are not on all nodes.
    **{name: (overrides, "sources", parity_sources.STEPS) for name, overrides in parity_sources.CASES.items()},
    # Encoders share a batch out among all their replicas.
    **{name: (parity_exchange.overrides_of(name), "all", parity_exchange.STEPS[name]) for name in parity_exchange.CASES},
    # The way of rows from encoders to the llm is pinned.
    **{name: (overrides, "all", parity_replicas.STEPS) for name, overrides in parity_boundary.CASES.items()},
    **{f"late-{name}": ([*LATE, *overrides], "all", steps)
       for name, overrides, steps in [
           ("1f1b", ["train.dtype=fp64"], 5),
           ("bf16", ["train.dtype=bf16"], 3),
           ("two-devices", ["train.dtype=fp64", *TWO_DEVICES, "balancer.policy=deferral", "scheduler.schedule=split-1f1b"], 5),
           ("replicas-5-3", ["train.dtype=fp64", *REPLICAS["5-3"], "scheduler.schedule=zero-bubble"], 5),
           ("standby", STANDBY["standby-one-pipeline"][0], STANDBY["standby-one-pipeline"][1]),
           ("exchange", parity_exchange.CASES["exchange-3-2-1f1b-all"], 5),
           ("offload", parity_offload.CASES["offload-4-4-all"], 5),
           ("offload-both", parity_offload.CASES["offload-both-4-4"], 5),
           ("offload-all", parity_offload.CASES["offload-all-4-4"], 5),
           ("offload-parameters", parity_offload.CASES["offload-parameters-windows"], 5),
           ("offload-moments-standby", parity_offload.CASES["offload-moments-standby"], 5),
           ("layouts", [*CHANGING, "balancer.policy=auto", "scheduler.schedule=eager-zero-bubble"], CHANGING_STEPS)]},
    **{f"apart-{name}": ([APART, *overrides], samples, steps)
       for name, overrides, samples, steps in [
           ("1f1b", ["train.dtype=fp64"], "all", 5),
           ("fp32", ["train.dtype=fp32", "balancer.policy=auto", "scheduler.schedule=eager-1f1b"], "all", 5),
           ("bf16", ["train.dtype=bf16"], "all", 3),
           ("modality", ["train.dtype=fp64", *MODALITY, "balancer.policy=deferral", "scheduler.schedule=split-1f1b"], "all", 5),
           ("two-devices", ["train.dtype=fp64", *TWO_DEVICES, "scheduler.schedule=zero-bubble"], "all", 5),
           ("text", ["train.dtype=fp64"], "text", 3),
           ("replicas-5-3", ["train.dtype=fp64", *REPLICAS["5-3"], "scheduler.schedule=zero-bubble"], "all", 5),
           ("encoders-twice", parity_encoders.CASES["encoders-twice"], "all", 5),
           ("standby", STANDBY["standby-one-pipeline"][0], "all", STANDBY["standby-one-pipeline"][1]),
           ("exchange", parity_exchange.CASES["exchange-3-2-1f1b-all"], "all", 5),
           ("offload", parity_offload.CASES["offload-4-4-all"], "all", 5),
           ("offload-both", parity_offload.CASES["offload-both-4-4"], "all", 5),
           ("offload-all", parity_offload.CASES["offload-all-4-4"], "all", 5),
           ("offload-parameters", parity_offload.CASES["offload-parameters-windows"], "all", 5),
           ("offload-moments-bf16", parity_offload.CASES["offload-moments-bf16"], "all", 3),
           ("offload-moments-layouts", parity_offload.CASES["offload-moments-layouts"], "all", CHANGING_STEPS),
           ("layouts", [*CHANGING, "balancer.policy=auto", "scheduler.schedule=eager-zero-bubble"], "all", CHANGING_STEPS)]},
    **{name: (overrides, "all", steps) for name, (overrides, steps) in parity_nccl.CASES.items()},
    "full-resolution": (FULL_RESOLUTION, "all", 2),
    "real-mini-fp64": (["train.dtype=fp64"], "real-mini", STEPS),
    "real-mini-fp32": (["train.dtype=fp32"], "real-mini", STEPS),
    "real-mini-full-resolution": (FULL_RESOLUTION, "real-mini", 2),
}

# Short cases: the policies that defer meet the schedules that run parts apart.
COVERING = ["random/gpipe/encoders", "disttrain/dip/projectors", "dflop/three-phase/all",
            "hierarchical/eager-1f1b/all", "deferral-exchange/split-1f1b/all",
            "deferral-chain/eager-zero-bubble/all", "tapered/zero-bubble/encoders", "auto/zero-bubble/projectors"]


# Cases of one kind, and how many of them a run draws. Names that no family has are of every run.
FAMILIES = {
    "auto-numbers": (list(AUTO_NUMBERS), 1), "vocabulary": (list(parity_vocabulary.CASES), 1), "standby": (list(STANDBY), 1),
    "encoders": (list(parity_encoders.CASES), 1), "recompute": (list(parity_recompute.CASES), 1), "offload": (list(parity_offload.CASES), 2), "replicas": (list(parity_replicas.CASES), 2),
    "sources-all": ([name for name in parity_sources.CASES if name not in exchange_products.SOURCES], 1),
    "sources-products": (list(exchange_products.SOURCES), 1), "tree": (list(parity_trees.CASES), 1), "exchange": (list(parity_exchange.CASES), 2),
    "boundary": (list(parity_boundary.CASES), 1), "nccl": ([*parity_nccl.CASES, "nccl-own-order"], 1),
    # Long jobs about one thing.
    "alone": (["zero-bubble", "index", "slow-shapes", "slow-node", "slow-for-a-while", "dealing", "damaged"], 2),
    **{family: ([name for name in CASES if name.startswith(f"{family}-")], number)
       for family, number in (("modality", 1), ("layouts", 1), ("late", 2), ("apart", 1), ("real-mini", 1))}}
ALWAYS = [*(name for name in CASES if not any(name in cases for cases, _ in FAMILIES.values())),
          *COVERING]

# Layers of parity.toml from the first of a module to the loss.
LAYERS_TO_LOSS = {"vision": 6 + 1 + 7, "audio": 4 + 1 + 7, "vision_projector": 1 + 7, "audio_projector": 1 + 7, "llm": 7}


class Failure(Exception):
    pass


class Skipped(Exception):
    pass


class Once:
    """Results that several cases use: whoever asks first makes it, the others wait for it."""

    def __init__(self):
        self.lock, self.results = threading.Lock(), {}

    def get(self, key, make):
        with self.lock:
            first = key not in self.results
            result = self.results.setdefault(key, concurrent.futures.Future())
        if first:
            try:
                result.set_result(make())
            except Exception as failure:  # Theirs too: all that wait for it fail as this one does.
                result.set_exception(failure)
        return result.result()


class Bench:
    """The program, where runs go, the data, and what cases share."""

    def __init__(self, binary, root, late=None, device="cpu"):
        self.binary, self.root, self.shared = binary, root, Once()
        self.late = [] if late is None else [f"debug.delayed_device_ms={late}"]
        self.device = device
        self.data = UnevenData(binary, root / "data")
        self.damaged_data, self.damaged = self.data.damaged()

    def place(self, overrides):
        """What says on which devices a job with these overrides trains."""
        return [*device_words(self.binary, "apart" if APART in overrides else self.device), *parity_nccl.words(self.binary, overrides)]

    def job(self, samples):
        """The job file, and the override that names its data."""
        if samples == "real-mini":
            if not REAL_MINI.is_dir():
                raise Skipped(f"{REAL_MINI} is not there")
            return [str(REAL_JOB)]
        if samples == "all":
            return [str(JOB), self.data.whole]
        if samples == "damaged":
            return [str(JOB), self.damaged_data]
        if samples == "sources":
            return [str(JOB), self.shared.get(samples, lambda: parity_sources.write(self.data))]
        return [str(JOB), self.shared.get(samples, lambda: self.data.subset(samples, STEPS * BATCH))]


class Case:
    """One job to train in several ways."""

    def __init__(self, bench, name, overrides, samples, steps):
        self.bench, self.folder, self.overrides, self.steps = bench, bench.root / name, overrides, steps
        self.job = bench.job(samples)

    def train(self, name, *flags, overrides=None, run=None):
        """Runs the job and returns its run folder, FOLDER@NAME; so all runs share the profiles beside them."""
        run = run or self.folder.parent / f"{self.folder.name}@{name}"
        late = [] if "--reference" in flags else self.bench.late
        place = self.bench.place(self.overrides) if "--microbatches" in flags or "--reference" not in flags else []
        run_and_wait([str(self.bench.binary), "train", *self.job, *(self.overrides if overrides is None else overrides),
                      f"train.steps={self.steps}", f"job.run_dir={run}", "train.dump_gradients=true",
                      "debug.parameter_hashes=true", *late, *place, *flags])
        return run

    def adds_modules(self):
        """Whether the job file's own layout has no place for all modules."""
        return any("={kind=" in override for override in self.overrides)

    def oracle(self, dtype=None):
        """The oracle knows neither policy nor schedule nor microbatches nor nodes: one run serves all that differ in these."""
        ignored = ("balancer.", "scheduler.", "train.microbatches", "data.index", *(() if self.adds_modules() else LAYOUT), "debug.")
        mathematics = [override for override in self.overrides if not override.startswith(ignored) and override != APART]
        if dtype:
            mathematics = [f"train.dtype={dtype}", *(word for word in mathematics if not word.startswith("train.dtype"))]
        key = "-".join(["oracle", *self.job, *mathematics, str(self.steps)])
        run = self.bench.root / f"oracle@{digest(key)}"
        return self.bench.shared.get(key, lambda: self.train("", "--reference", overrides=mathematics, run=run))

    def replay(self, pipelined):
        """The plan reference of what a run recorded; runs that recorded the same share one."""
        record = "".join((pipelined / name).read_text(encoding="utf-8") for name in ("plan.json", "iterations.jsonl"))
        frozen = [override for override in self.overrides if override.endswith("freeze=true")]
        key = "-".join(["replay", *frozen, str(self.steps), digest(record)])
        run = self.bench.root / f"replay@{digest(key)}"
        return self.bench.shared.get(
            key, lambda: self.train("", "--reference", "--microbatches", str(pipelined), run=run))

    def measure_layers(self):
        """Leaves a profile for all runs to find, and says where: two that measure at once would plan from different costs.
        Frozen modules and tied heads cost as others do and share a profile with them."""
        free = ("freeze=true", "tie_word_embeddings=true")
        decisive = [override for override in self.overrides
                    if override.startswith(("train.dtype", "modules.", *(LAYOUT if self.adds_modules() else ())))
                    and not override.endswith(free)]
        command = [str(self.bench.binary), "profile", *self.job, *decisive, *self.bench.place(self.overrides),
                   f"job.run_dir={self.folder.parent}/any",
                   "--budget", "5", "--json"]
        key = "-".join(["profile", self.job[0], *decisive, *self.bench.place(self.overrides)])
        return pathlib.Path(json.loads(self.bench.shared.get(key, lambda: run_and_wait(command)))["file"])


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_and_wait(command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if result.returncode != 0:
        raise Failure(f"{' '.join(command)}\nexit {result.returncode}\n{result.stdout[-1500:]}{result.stderr[-1500:]}")
    return result.stdout


def losses(run):
    return [line["loss"] for line in read_lines(run / "metrics.jsonl")]


def same_bits(a, b, what):
    if not filecmp.cmp(a / "model/model.safetensors", b / "model/model.safetensors", shallow=False):
        raise Failure(f"final parameters differ in their bits: {what}")
    gradients = "gradients/step-1.safetensors"
    if not filecmp.cmp(a / gradients, b / gradients, shallow=False):
        raise Failure(f"gradients of step 1 differ in their bits: {what}")
    if losses(a) != losses(b):
        raise Failure(f"losses differ in their bits: {what}")


def within_rounding(run, oracle):
    """A bf16 run against the fp32 oracle; the bounds are derived in parity_rounding.py."""
    gradients = "gradients/step-1.safetensors"
    faults, figures = parity_rounding.faults_of_gradients(run / gradients, oracle / gradients, LAYERS_TO_LOSS)
    faults += parity_rounding.faults_of_losses(losses(run), losses(oracle))
    rates = [line["lr"] for line in read_lines(run / "metrics.jsonl")]
    parameters = "model/model.safetensors"
    faults += parity_rounding.faults_of_parameters(run / parameters, oracle / parameters, rates)
    if faults:
        raise Failure("further from the fp32 reference than rounding explains:\n" + "\n".join(faults[:8]))
    return f"gradients within rounding of the fp32 reference: {figures}"


def check_audit(run, steps, batch):
    """Every step trained samples, and none twice within the epoch."""
    ids = [identity for line in read_lines(run / "samples.jsonl") for identity in line["ids"]]
    if len(set(ids)) != len(ids) or len(ids) != steps * batch:
        raise Failure(f"{len(ids)} samples in samples.jsonl, {len(set(ids))} different, expected {steps * batch}")


def batch_of(overrides):
    """How many samples a step of a case has."""
    given = [word for word in overrides if word.startswith("train.global_batch_size=")]
    return int(given[-1].partition("=")[2]) if given else BATCH


def run_zero_bubble(bench):
    """Weight gradients that come later are the same bits, where microbatches have one part."""
    case = Case(bench, "zero-bubble", ["train.dtype=fp64"], "all", SHORT)
    case.measure_layers()
    runs = [case.train(schedule, f"scheduler.schedule={schedule}") for schedule in ("1f1b", "zero-bubble")]
    same_bits(*runs, "zero-bubble against 1f1b")
    return "ok"


def run_slow(bench, where):
    """Measured times correct predictions; the run's own record repeats it to the bit."""
    slow = f'debug.slow_shapes=[{{module="llm",max_rows=100000,{where}}}]'
    overrides = ["train.dtype=fp64", "balancer.policy=auto", "balancer.adaptive_correction=true", slow]
    case = Case(bench, f"slow-{digest(where)}", overrides, "all", SLOW_STEPS)
    case.measure_layers()
    run = case.train("slow")
    replayed = case.train("replayed", "--reference", "--microbatches", str(run))
    same_bits(run, replayed, "against its own recorded plans")
    return run


def run_slow_shapes(bench):
    """Where the llm takes four times as long, predictions of equal work grow."""
    run = run_slow(bench, "min_rows=1,factor=4")
    lines = read_lines(run / "metrics.jsonl")
    if not lines[-1]["corrected_shapes"]:
        raise Failure(f"no shape was learned in {len(lines)} steps")
    first, last = [statistics.median(line["calibrated_step_ms"] / line["tokens"] for line in part)
                   for part in (lines[:3], lines[-6:])]
    if last < 1.5 * first:
        raise Failure(f"predictions did not follow: {1000 * first:.0f} us per token, then {1000 * last:.0f}")
    return f"{lines[-1]['corrected_shapes']} shapes learned; {1000 * first:.0f} us per token, then {1000 * last:.0f}"


def run_slow_node(bench):
    """A pipeline whose llm is measured twelve times as slow gets less. Four times, of which it has half of the llm's layers, brought
    1.44 to 1.75 times as much to the other one by the sixteenth step: too near the bound for a busy machine."""
    run = run_slow(bench, "factor=12,node=3")
    dealt = read_llm_shares(run)
    # Dealt by work, so that numbers of samples say less than their rows.
    rows = rows_by_llm(run, bench.data.samples)
    first, last = ([sum(step[pipeline] for step in steps) for pipeline in (0, 1)] for steps in (rows[:3], rows[-6:]))
    line = f"rows per pipeline in the first three steps {first}, in the last six {last}"
    if last[0] * first[1] < 1.5 * first[0] * last[1] or any(sum(step) != BATCH for step in dealt):
        raise Failure(line)
    return line


def run_slow_for_a_while(bench):
    """A node that slows down gets fewer samples until it is as fast again, in any job; parameters are the reference's."""
    first, last = WHILE_SLOW
    slow = f'debug.slow_shapes=[{{module="llm",max_rows=100000,factor=12,node=3,from_step={first},to_step={last}}}]'
    case = Case(bench, "slow-for-a-while", ["train.dtype=fp64", "data.prefetch=2", slow], "all", WHILE_STEPS)
    case.measure_layers()
    run = case.train("slow")
    told = [event["kind"] for event in read_lines(run / "events.jsonl") if event["nodes"] == [3]]
    if told != ["slow", "fast-again"]:
        raise Failure(f"events of node 3: {told}")
    log = (run / "train.log").read_text(encoding="utf-8")
    if "it gets fewer samples until it is as fast again" not in log or "gets as many samples as before" not in log:
        raise Failure("the log does not say what becomes of its samples")
    # Dealt by work, so that numbers of samples say less than their rows.
    rows = rows_by_llm(run, bench.data.samples)
    shares = [sum(step[1] for step in steps) / sum(sum(step) for step in steps)
              for steps in (rows[5:first - 1], rows[last - 9:last], rows[-8:])]
    line = "the slow node's pipeline has " + ", ".join(f"{share:.2f}" for share in shares) + " of the rows before, meanwhile and then"
    if shares[1] > 0.75 * shares[0] or shares[2] < 0.85 * shares[0]:
        raise Failure(line)
    same_bits(run, case.train("replayed", "--reference", "--microbatches", str(run)), "against its own recorded plans")
    check_against_oracle(case, run)
    return line


def run_dealing(bench):
    """By work, pipelines that are alike get much the same, which by count they do not; both give the reference's parameters."""
    uneven = {}
    for dealing in ("count", "work"):
        overrides = ["train.dtype=fp64", ALIKE, "balancer.policy=hierarchical", f"balancer.dealing={dealing}"]
        case = Case(bench, f"dealing-{dealing}", overrides, "all", DEALING_STEPS)
        case.measure_layers()
        run = case.train("pipelined")
        check_audit(run, DEALING_STEPS, BATCH)
        if dealing == "count" and (faults := faults_of_counts(run)):
            raise Failure("\n".join(faults))
        same_bits(run, case.train("by-plan", "--reference", "--microbatches", "plan"), f"dealt by {dealing}")
        check_against_oracle(case, run)
        uneven[dealing] = statistics.mean(unevenness(run, bench.data.samples))
    line = ", ".join(f"{ratio:.3f}x the mean at the fuller pipeline by {dealing}" for dealing, ratio in uneven.items())
    # Looked at by rows; dealt by what small layers take, which is less uneven.
    if uneven["work"] - 1 > 0.75 * (uneven["count"] - 1):
        raise Failure(f"dealing by work evens nothing out: {line}")
    return line


def run_damaged(bench):
    """Samples that a header or only decoding shows to be bad leave pipelines and replicas as they leave the reference."""
    for name, layout in DAMAGED_LAYOUTS.items():
        overrides = ["train.dtype=fp64", *layout, "balancer.policy=deferral", "scheduler.schedule=split-1f1b",
                     "data.max_bad_fraction=0.5"]
        case = Case(bench, f"damaged-{name}", overrides, "damaged", SHORT_DEFERRING)
        case.measure_layers()
        run = case.train("pipelined")
        if faults := faults_of_dropped(run, case.oracle(), bench.damaged):
            raise Failure("\n".join(faults))
        same_bits(run, case.train("by-plan", "--reference", "--microbatches", "plan"), f"damaged samples, {name}")
        check_against_oracle(case, run)
    return f"{len(read_lines(run / 'bad_samples.jsonl'))} samples dropped"


def run_index(bench):
    """Lengths from an index, full or damaged, plan what lengths from the files do."""
    folder = bench.root / "index-folder"
    overrides = ["train.dtype=fp64", "balancer.policy=deferral", "scheduler.schedule=split-1f1b", f"data.index={folder}"]
    case = Case(bench, "index", overrides, "all", SHORT)
    case.measure_layers()
    first, second = case.train("files"), case.train("index")
    if not parity_lengths.damage(folder):
        raise Failure(f"{folder} holds no index")
    third = case.train("damaged")
    if faults := parity_lengths.faults_of_indexes(first, second, third):
        raise Failure("\n".join(faults))
    same_bits(first, second, "lengths from files and from the index")
    same_bits(first, third, "lengths from files and from a damaged index")
    same_bits(second, case.train("by-plan", "--reference", "--microbatches", "plan"), "lengths from the index")
    check_against_oracle(case, second)
    return f"{parity_lengths.counts(second)[1]} lengths from the index"


def run_nccl_own_order(bench):
    """In NCCL's own order sums are off by rounding alone, and the log says so."""
    case = Case(bench, "nccl-own-order", ["train.dtype=fp32", parity_nccl.OWN], "all", SHORT)
    case.measure_layers()
    run = case.train("pipelined")
    if faults := parity_nccl.faults_of_calls(run, "nccl"):
        raise Failure("\n".join(faults))
    if "in its own order" not in (run / "train.log").read_text(encoding="utf-8"):
        raise Failure("the log does not say that NCCL orders the sums")
    check_audit(run, SHORT, BATCH)
    return check_against_oracle(case, run)


ALONE = {"zero-bubble": run_zero_bubble, "index": run_index, "slow-shapes": run_slow_shapes, "slow-node": run_slow_node,
         "slow-for-a-while": run_slow_for_a_while, "dealing": run_dealing, "damaged": run_damaged, "nccl-own-order": run_nccl_own_order}


def check_against_oracle(case, pipelined):
    if "train.dtype=bf16" in case.overrides:
        return within_rounding(pipelined, case.oracle("fp32"))
    tolerances = (["--rtol", "1e-10", "--loss-rtol", "1e-10", "--gradient-rtol", "1e-10"]
                  if "train.dtype=fp64" in case.overrides else ["--loss-rtol", "1e-5", "--gradient-rtol", "1e-5"])
    run_and_wait([str(case.bench.binary), "compare", str(pipelined), str(case.oracle()), *tolerances])
    return "ok"


def run_case(bench, name, steps):
    """Trains and compares; `steps` counts for cases of the matrix."""
    if name in ALONE:
        return ALONE[name](bench)
    of_matrix = "/" in name
    overrides, samples, steps = (parity_matrix.overrides_of(name), "all", steps) if of_matrix else CASES[name]
    case = Case(bench, f"{name.replace('/', '-')}-{steps}", overrides, samples, steps)
    measured, profile = case.measure_layers(), bench.root / f"{name.replace('/', '-')}.json"
    if name in AUTO_NUMBERS:
        write_profile(bench.root / "profiles", profile)
    if name in parity_nccl.CHOICES:
        parity_nccl.write_profile(measured, profile, name)
    if profile.is_file():
        case.overrides = [*overrides, f"scheduler.profile={profile}"]
    pipelined = case.train("pipelined")
    if APART in overrides and "because deterministic operators: " not in (pipelined / "train.log").read_text(encoding="utf-8"):
        raise Failure("the log does not say which operators the job allows on its devices")
    if name in AUTO_NUMBERS and (faults := faults_of_numbers(pipelined, name)):
        raise Failure("\n".join(faults))
    if name in parity_exchange.CASES and (faults := parity_exchange.faults_of_exchange(pipelined, overrides)):
        raise Failure("\n".join(faults))
    if name in parity_boundary.CASES and (faults := parity_boundary.faults_of_boundary(pipelined, name)):
        raise Failure("\n".join(faults))
    if name in parity_replicas.CASES and (faults := parity_replicas.faults_of_replicas(pipelined, name)):
        raise Failure("\n".join(faults))
    if name in parity_vocabulary.CASES and (faults := parity_vocabulary.faults_of_logits(pipelined)):
        raise Failure("\n".join(faults))
    if name in parity_sources.CASES and (faults := parity_sources.faults_of_sources(pipelined, overrides)):
        raise Failure("\n".join(faults))
    if name in parity_sources.ALL_MOVE and (faults := parity_sources.faults_of_bytes(pipelined, bench.binary, case.job, bench.data)):
        raise Failure("\n".join(faults))
    changing = CHANGING[-1] in overrides
    check_audit(pipelined, steps, batch_of(overrides))
    if changing and (faults := faults_of_changes(pipelined)):
        raise Failure("\n".join(faults))
    if name == "layouts-standby" and (faults := faults_of_takeovers(pipelined, overrides)):
        raise Failure("\n".join(faults))
    if name in STANDBY and (faults := faults_of_standby(pipelined, overrides)):
        raise Failure("\n".join(faults))
    if name in parity_trees.CASES and (faults := parity_trees.faults_of_trees(pipelined, name)):
        raise Failure("\n".join(faults))
    if name in parity_nccl.CASES and (faults := parity_nccl.faults_of_sums(pipelined, name)):
        raise Failure("\n".join(faults))
    if of_matrix and (faults := faults_of_plans(pipelined, *name.split("/")[:2])):
        raise Failure("\n".join(faults))
    if (of_matrix and steps == STEPS) or name == parity_exchange.MEASURED:
        same_bits(pipelined, case.replay(pipelined), "pipelined against the reference of its recorded plans")
    else:
        by_plan = case.train("by-plan", "--reference", "--microbatches", "plan")
        same_bits(pipelined, by_plan, "pipelined against --reference --microbatches plan")
    line = check_against_oracle(case, pipelined)
    if name in TWICE:
        same_bits(pipelined, case.train("again"), "the same run twice")
    if name in parity_recompute.CASES:
        keeping = case.train("keeping", "--reference", "--microbatches", str(pipelined), parity_recompute.KEEPING)
        same_bits(pipelined, keeping, "with and without recomputing")
        if faults := parity_recompute.faults_of_memory(pipelined, case.train("plain", parity_recompute.KEEPING)):
            raise Failure("\n".join(faults))
    if parity_offload.OFFLOADING & set(overrides):
        keeping = case.train("keeping", parity_offload.KEEPING)
        same_bits(pipelined, keeping, "with and without offloading")
        if faults := parity_offload.faults_of_offload(pipelined, keeping, name, overrides):
            raise Failure("\n".join(faults))
    if name in ALONE_TOO:
        same_bits(pipelined, case.train("alone", "cluster.fault_tolerance=0"), "with and without standby holders")
    if name in REPLAYED:
        same_bits(pipelined, case.replay(pipelined), "the recorded plans replayed")
    return line


def run_and_report(bench, ledger, name, steps):
    """`passed`, `failed` or `skipped`; prints the case's line, with the seconds it took beside another case."""
    if steps == STEPS and "/" in name and ledger.passed(name):
        print(f"{name}: passed before", flush=True)
        return "passed"
    begin = time.monotonic()
    try:
        line, verdict = run_case(bench, name, steps), "passed"
    except Skipped as why:
        line, verdict = f"skipped: {why}", "skipped"
    except Exception as failure:  # Of whatever kind: the other cases and the last line still come.
        line, verdict = f"FAILED\n{type(failure).__name__}: {failure}", "failed"
    finally:
        for run in bench.root.glob(f"{name.replace('/', '-')}-{steps}@*"):
            shutil.rmtree(run, ignore_errors=True)
    seconds = time.monotonic() - begin
    print(f"{name} ({seconds:.0f} s): {line}", flush=True)
    if steps == STEPS and "/" in name:
        ledger.add(name, verdict == "passed", seconds, "" if verdict == "passed" else line)
    return verdict


def policy_of(name):
    """The balancing policy of a case."""
    if "/" in name:
        return name.split("/")[0]
    given = [override for override in CASES.get(name, ([],))[0] if override.startswith("balancer.policy=")]
    return given[0].partition("=")[2] if given else "in-order"


def check_lists(binary, names):
    """Ends the test where a case has an unknown name, or where the program has a policy that nothing here runs."""
    for name in names:
        if name not in ALWAYS and name not in CASES and name not in ALONE and name not in parity_matrix.all_cases():
            sys.exit(f"no case is called '{name}' (known: {', '.join([*FAMILIES, *ALWAYS, *CASES])}, or POLICY/SCHEDULE/FREEZING)")
    schema = subprocess.run([str(binary), "solve", "--schema", "simulate"], capture_output=True, text=True, timeout=60,
                            check=True).stdout
    known = re.findall(r'"([^"]+)"', re.search(r'"policy": ((?:"[^"]+"[\s|]*)+)', schema)[1])
    if sorted(known) != sorted(POLICIES):
        sys.exit(f"policies of the program and of this test differ: {sorted(set(known) ^ set(POLICIES))}")
    if missing := set(POLICIES) - {policy_of(name) for name in ALWAYS}:
        sys.exit(f"no case of every run trains with {', '.join(sorted(missing))}")


def chosen_cases(arguments):
    """Names and steps of what is to run."""
    if arguments.matrix is not None:
        return [(name, STEPS) for name in arguments.cases or parity_matrix.all_cases()]
    cases = [(name, SHORT) for word in arguments.cases for name in FAMILIES.get(word, ([word],))[0]]
    if not cases and arguments.slice is None:
        # The fake NCCL reads host memory.
        skipped = ("late-", "nccl-") if arguments.device != "cpu" else "apart-" if arguments.late is not None else "-"
        kinds = [drawn_here(names, number) for names, number in FAMILIES.values()]
        cases = [(name, SHORT_DEFERRING if policy_of(name) in DEFERRING else SHORT) for name in itertools.chain(ALWAYS, *kinds)
                 if not name.startswith(skipped)]
        print(f"{sum(map(len, kinds))} of the {sum(len(names) for names, _ in FAMILIES.values())} cases of families", flush=True)
    if not arguments.cases:
        commit = arguments.slice or commit_here()
        of_matrix = parity_matrix.slice_of(commit)
        print(f"slice of the matrix: {len(of_matrix)} of {len(parity_matrix.all_cases())} cases at {STEPS} steps, drawn by "
              f"commit {commit}: {' '.join(of_matrix)}", flush=True)
        cases += [(name, STEPS) for name in of_matrix]
    return cases


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda word: pathlib.Path(word).resolve())
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--slice", metavar="COMMIT")
    parser.add_argument("--matrix", nargs="?", const="", metavar="FILE")
    parser.add_argument("--record", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--late", type=float, metavar="MS")
    parser.add_argument("--device", default="cpu", metavar="KIND")
    arguments = parser.parse_args(words)
    if arguments.late is not None and arguments.device != "cpu":
        parser.error("--late is of CPUs")
    if arguments.record and arguments.matrix is None:
        parser.error("--record needs --matrix")
    if arguments.slice is not None and (arguments.cases or arguments.matrix is not None):
        parser.error("--slice goes alone")
    if arguments.matrix is not None and any("/" not in name for name in arguments.cases):
        parser.error("with --matrix, name cases as POLICY/SCHEDULE/FREEZING")
    return arguments


def words_of_devices(arguments):
    """What was said of the devices of pipelined runs; nothing of prompt CPUs."""
    late = [] if arguments.late is None else ["--late", f"{arguments.late:g}"]
    return late if arguments.device == "cpu" else ["--device", arguments.device]


def main():
    arguments = parse(sys.argv[1:])
    os.environ["OMP_NUM_THREADS"] = "1"
    cases = chosen_cases(arguments)
    check_lists(arguments.binary, [name for name, _ in cases])
    ledger = parity_matrix.Ledger(arguments.binary, pathlib.Path(arguments.matrix) if arguments.matrix else None,
                                  words_of_devices(arguments))
    root = pathlib.Path(tempfile.mkdtemp(prefix="troupe-parity-"))
    parity_nccl.use_fake(arguments.binary, root)
    begin = time.monotonic()
    try:
        bench = Bench(arguments.binary, root, arguments.late, arguments.device)
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            verdicts = list(pool.map(lambda case: run_and_report(bench, ledger, *case), cases))
    finally:
        shutil.rmtree(root, ignore_errors=True)
        if arguments.record:
            ledger.record(arguments.record, STEPS, time.monotonic() - begin)
    print(", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("passed", "failed", "skipped")))
    return 1 if "failed" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
