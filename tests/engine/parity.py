"""Parity: pipelined runs of node processes over UCX against the reference runs.

Every case trains the same job three times and compares final parameters, losses and first gradients:
the pipelined run; `--reference` (one sample at a time), within a tolerance; and
`--reference --microbatches plan`, to the bit. Uses ../shared/data/real-mini; skips without it.

    parity.py BINARY [CASE...]          prints `N passed, M failed, K skipped` last
    parity.py BINARY --matrix [FILE]    every policy x schedule x freezing, 20 steps in fp64: takes hours; cases that
                                        passed are kept in FILE and not run again (start anew after a change of code)

Cases of the matrix are called POLICY/SCHEDULE/FREEZING; without arguments short ones cover each schedule and each
freezing, and all cases together each policy and several numbers of microbatches. Cases that train the same on paper
share one run of the oracle. Two cases run at a time, so that the cores stay busy while a reference, which is one
thread, runs.
"""

import concurrent.futures
import filecmp
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
REAL_MINI = ROOT.parent / "shared" / "data" / "real-mini"
JOB = ROOT / "configs" / "real-mini.toml"
STEPS = 20
AT_A_TIME = 2
SUBSET_MAX = 120  # The shortest samples: long texts say nothing more and take minutes.

PROJECTORS_ONLY = ["modules.vision.freeze=true", "modules.audio.freeze=true", "modules.llm.freeze=true"]
THREE_STAGES = (
    "parallel.pipelines=[{stages=["
    '{node=0,vision=[0,3],audio="all"},{node=1,vision=[3,6],llm=[0,2]},{node=1,llm=[2,7]}]},'
    '{stages=[{node=2,vision="all"},{node=3,audio="all",llm=[0,4]},{node=2,llm=[4,7]}]}]'
)

# Two executors in each of two processes.
TWO_DEVICES = [
    "cluster.local_nodes=2", "cluster.devices_per_node=2",
    "parallel.pipelines=[{stages=["
    '{node=0,device=0,vision=[0,3],audio="all"},{node=0,device=1,vision=[3,6],llm=[0,2]},{node=1,device=0,llm=[2,7]}]},'
    '{stages=[{node=1,device=1,vision="all"},{node=0,device=1,audio="all",llm=[0,4]},{node=1,device=1,llm=[4,7]}]}]',
]

POLICIES = ["in-order", "random", "disttrain", "llm-only", "karmarkar-karp", "dflop", "hierarchical", "deferral",
            "dflop-search", "deferral-exchange", "deferral-chain", "balanced-chain", "tapered", "auto"]
SCHEDULES = ["1f1b", "eager-1f1b", "split-1f1b", "zero-bubble", "eager-zero-bubble", "gpipe", "dip", "three-phase"]
FREEZINGS = {
    "all": [],
    "encoders": ["modules.vision.freeze=true", "modules.audio.freeze=true"],
    "projectors": PROJECTORS_ONLY,
}
SHORT = 3
SLOW_STEPS = 16  # A correction waits for two measurements of a shape.
TWICE = ["fp32", "auto/zero-bubble/projectors"]
REPLAYED = ["auto/zero-bubble/projectors", "deferral-chain/eager-zero-bubble/all"]
AUTO = ["parallel.mode=auto", "parallel.pipelines=[]", "cluster.local_nodes=2"]

# name: (overrides, which samples, steps)
CASES = {
    "fp64": (["train.dtype=fp64"], None, STEPS),
    "fp32": (["train.dtype=fp32"], None, STEPS),
    # Policies that no short case below has ride along.
    "vision-frozen-3-microbatches": (
        ["train.dtype=fp64", "modules.vision.freeze=true", "train.microbatches=3", "balancer.policy=deferral",
         "scheduler.schedule=split-1f1b"], None, STEPS),
    "projectors-only-1-microbatch": (["train.dtype=fp64", *PROJECTORS_ONLY, "train.microbatches=1"], None, STEPS),
    "text-only": (["train.dtype=fp64", "balancer.policy=llm-only"], "text", STEPS),
    "text-only-projectors": (["train.dtype=fp32", *PROJECTORS_ONLY], "text", 3),
    "audio-only": (["train.dtype=fp64", "balancer.policy=karmarkar-karp"], "audio", STEPS),
    "tied-head-8-microbatches": (
        ["train.dtype=fp64", "modules.llm.config.tie_word_embeddings=true", "train.microbatches=8",
         "balancer.policy=dflop-search", "scheduler.schedule=eager-1f1b"], None, STEPS),
    "encoders-cut": (["train.dtype=fp64", THREE_STAGES, "balancer.policy=balanced-chain"], None, 5),
    "two-devices-per-node": (
        ["train.dtype=fp64", *TWO_DEVICES, "modules.vision.lr=3e-4", "modules.llm.lr=2e-3"], None, 5),
    # The planner lays out two nodes; both runs find the same profile.
    "auto-layout": (["train.dtype=fp64", *AUTO], None, 5),
    "bf16": (["train.dtype=bf16"], None, 5),
    "full-resolution": (["train.dtype=fp64", "data.max_pixels=1003520", "data.max_seq_len=20000"], None, 2),
}


def matrix_case(name, steps):
    policy, schedule, freezing = name.split("/")
    overrides = ["train.dtype=fp64", *FREEZINGS[freezing], f"balancer.policy={policy}",
                 f"scheduler.schedule={schedule}", "balancer.evaluations=40"]
    return overrides, None, steps


def matrix():
    return [f"{policy}/{schedule}/{freezing}" for freezing in FREEZINGS for policy in POLICIES
            for schedule in SCHEDULES]


# Short cases: the policies that defer meet the schedules that run parts apart.
COVERING = ["random/gpipe/encoders", "disttrain/dip/projectors", "dflop/three-phase/all",
            "hierarchical/eager-1f1b/all", "deferral-exchange/split-1f1b/all",
            "deferral-chain/eager-zero-bubble/all", "tapered/zero-bubble/encoders", "auto/zero-bubble/projectors"]


DEFAULT = [*CASES, "zero-bubble", "slow-shapes", "slow-node", *COVERING]


class Failure(Exception):
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


def train(binary, folder, name, overrides, steps, *flags):
    """Runs a job and returns its run folder, FOLDER@NAME; so all runs share the profiles beside them."""
    run = folder.parent / f"{folder.name}@{name}"
    command = [str(binary), "train", str(JOB), *overrides, f"train.steps={steps}", f"job.run_dir={run}",
               "train.dump_gradients=true", "debug.parameter_hashes=true", *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if result.returncode != 0:
        raise Failure(f"{' '.join(command)}\nexit {result.returncode}\n{result.stdout[-1500:]}{result.stderr[-1500:]}")
    return run


def losses(run):
    with open(run / "metrics.jsonl", encoding="utf-8") as file:
        return [json.loads(line)["loss"] for line in file]


def same_bits(a, b, what):
    if not filecmp.cmp(a / "model/model.safetensors", b / "model/model.safetensors", shallow=False):
        raise Failure(f"final parameters differ in their bits: {what}")
    gradients = "gradients/step-1.safetensors"
    if not filecmp.cmp(a / gradients, b / gradients, shallow=False):
        raise Failure(f"gradients of step 1 differ in their bits: {what}")
    if losses(a) != losses(b):
        raise Failure(f"losses differ in their bits: {what}")


def within(binary, a, b, *tolerances):
    result = subprocess.run([str(binary), "compare", str(a), str(b), *tolerances], capture_output=True, text=True)
    if result.returncode != 0:
        raise Failure(f"compare {' '.join(tolerances)}\n{result.stdout}{result.stderr}")
    return result.stdout


def check_audit(run, steps):
    """Every step trained samples, and none twice within the epoch."""
    with open(run / "samples.jsonl", encoding="utf-8") as file:
        ids = [identity for line in file for identity in json.loads(line)["ids"]]
    if len(set(ids)) != len(ids) or len(ids) != steps * 16:
        raise Failure(f"{len(ids)} samples in samples.jsonl, {len(set(ids))} different, expected {steps * 16}")


def subset(folder, kind):
    """Writes the samples that have only text, or only audio, to a data set of their own."""
    with open(REAL_MINI / "samples.json", encoding="utf-8") as file:
        samples = json.load(file)
    wanted = {"text": lambda s: "image" not in s and "audio" not in s,
              "audio": lambda s: "audio" in s and "image" not in s}[kind]
    chosen = [sample for sample in samples if wanted(sample)]
    chosen = sorted(chosen, key=lambda s: sum(len(turn["value"]) for turn in s["conversations"]))[:SUBSET_MAX]
    copies = -(-STEPS * 16 // len(chosen))
    chosen = [dict(sample, id=f"{sample['id']}-{copy}") for copy in range(copies) for sample in chosen]
    path = folder / f"{kind}.json"
    path.write_text(json.dumps(chosen), encoding="utf-8")
    return f'data.sources=[{{format="llava",json="{path}",media="{REAL_MINI}"}}]'


def oracle_run(binary, folder, shared, overrides, steps):
    """The oracle knows neither policy nor schedule nor microbatches nor nodes: one run serves all that differ in these."""
    ignored = ("balancer.", "scheduler.", "train.microbatches", "parallel.", "cluster.")
    mathematics = [override for override in overrides if not override.startswith(ignored)]
    key = "-".join(["oracle", *mathematics, str(steps)])
    name = f"{abs(hash(key))}"
    return shared.get(key, lambda: train(binary, folder.parent / "oracle", name, mathematics, steps, "--reference"))


def measure_layers(binary, folder, shared, overrides):
    """Leaves a profile for all runs to find: two that measure at once would plan from different costs."""
    decisive = [override for override in overrides
                if override.startswith(("train.dtype", "modules.")) and not override.endswith("freeze=true")]
    command = [str(binary), "profile", str(JOB), *decisive, f"job.run_dir={folder.parent}/any", "--budget", "5"]

    def measure():
        result = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if result.returncode != 0:
            raise Failure(f"{' '.join(command)}\nexit {result.returncode}\n{result.stderr[-1500:]}")

    shared.get("-".join(["profile", *decisive]), measure)


def run_zero_bubble(binary, folder):
    """Weight gradients that come later are the same bits, where microbatches have one part."""
    runs = [train(binary, folder, schedule, ["train.dtype=fp64", f"scheduler.schedule={schedule}"], SHORT)
            for schedule in ("1f1b", "zero-bubble")]
    same_bits(*runs, "zero-bubble against 1f1b")
    return "ok"


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def run_slow(binary, folder, where):
    """Measured times correct predictions; the run's own record repeats it to the bit."""
    slow = f'debug.slow_shapes=[{{module="llm",max_rows=100000,{where}}}]'
    overrides = ["train.dtype=fp64", "balancer.policy=auto", "balancer.adaptive_correction=true", slow]
    run = train(binary, folder, "slow", overrides, SLOW_STEPS)
    replayed = train(binary, folder, "replayed", overrides, SLOW_STEPS, "--reference", "--microbatches", str(run))
    same_bits(run, replayed, "against its own recorded plans")
    return run


def run_slow_shapes(binary, folder):
    """Where the llm takes four times as long, predictions of equal work grow."""
    run = run_slow(binary, folder, "min_rows=1,factor=4")
    lines = read_lines(run / "metrics.jsonl")
    if not lines[-1]["corrected_shapes"]:
        raise Failure(f"no shape was learned in {len(lines)} steps")
    first, last = [statistics.median(line["predicted_step_ms"] / line["tokens"] for line in part)
                   for part in (lines[:3], lines[-6:])]
    if last < 1.5 * first:
        raise Failure(f"predictions did not follow: {1000 * first:.0f} us per token, then {1000 * last:.0f}")
    return f"{lines[-1]['corrected_shapes']} shapes learned; {1000 * first:.0f} us per token, then {1000 * last:.0f}"


def run_slow_node(binary, folder):
    """A pipeline whose llm is measured four times as slow gets fewer samples."""
    run = run_slow(binary, folder, "factor=4,node=3")
    dealt = [[sum(len(part) for microbatch in pipeline["llm"] for part in microbatch) for pipeline in line["pipelines"]]
             for line in read_lines(run / "iterations.jsonl")]
    first, last = dealt[0], dealt[-1]
    if first[0] - first[1] > 2 or last[0] < 1.5 * last[1] or sum(last) != 16:
        raise Failure(f"samples per pipeline at first {first}, at the end {last}")
    return f"samples per pipeline at first {first}, at the end {last}"


ALONE = {"zero-bubble": run_zero_bubble, "slow-shapes": run_slow_shapes, "slow-node": run_slow_node}


def run_case(binary, folder, name, shared, matrix_steps=SHORT):
    if name in ALONE:
        measure_layers(binary, folder, shared, ["train.dtype=fp64"])
        return ALONE[name](binary, folder)
    overrides, kind, steps = matrix_case(name, matrix_steps) if "/" in name else CASES[name]
    measure_layers(binary, folder, shared, overrides)
    if kind:
        overrides = [*overrides, subset(folder, kind)]
    pipelined = train(binary, folder, "pipelined", overrides, steps)
    check_audit(pipelined, steps)
    by_plan = train(binary, folder, "by-plan", overrides, steps, "--reference", "--microbatches", "plan")
    same_bits(pipelined, by_plan, "pipelined against --reference --microbatches plan")
    if "train.dtype=bf16" in overrides:
        return "to the bit against the plan's microbatches"
    oracle = oracle_run(binary, folder, shared, overrides, steps)
    if "train.dtype=fp64" in overrides:
        within(binary, pipelined, oracle, "--rtol", "1e-10", "--loss-rtol", "1e-10", "--gradient-rtol", "1e-10")
    else:
        within(binary, pipelined, oracle, "--loss-rtol", "1e-5", "--gradient-rtol", "1e-5")
    if name in TWICE:
        again = train(binary, folder, "again", overrides, steps)
        same_bits(pipelined, again, "the same run twice")
    if name in REPLAYED:
        replayed = train(binary, folder, "replayed", overrides, steps, "--reference", "--microbatches",
                         str(pipelined))
        same_bits(pipelined, replayed, "the recorded plans replayed")
    return "ok"


def run_and_report(binary, root, name, shared, steps, passed_before):
    """Whether the case passed; its line, with the seconds it took beside another case."""
    if passed_before and passed_before.is_file() and name in passed_before.read_text(encoding="utf-8").split():
        print(f"{name}: passed before", flush=True)
        return True
    folder = root / name.replace("/", "-")
    folder.mkdir()
    begin = time.monotonic()
    try:
        line, good = run_case(binary, folder, name, shared, steps), True
    except Exception as failure:  # Of whatever kind: the other cases and the last line still come.
        line, good = f"FAILED\n{type(failure).__name__}: {failure}", False
    finally:
        for run in [folder, *root.glob(f"{folder.name}@*")]:
            shutil.rmtree(run, ignore_errors=True)
    print(f"{name} ({time.monotonic() - begin:.0f} s): {line}", flush=True)
    if good and passed_before:
        with open(passed_before, "a", encoding="utf-8") as file:
            file.write(name + "\n")
    return good


def policy_of(name):
    """The balancing policy of a case."""
    if "/" in name:
        return name.split("/")[0]
    given = [override for override in CASES.get(name, ([],))[0] if override.startswith("balancer.policy=")]
    return given[0].partition("=")[2] if given else "in-order"


def check_lists(binary, names):
    """Ends the test where a case has an unknown name, or where the program has a policy that nothing here runs."""
    for name in names:
        if name not in DEFAULT and name not in matrix():
            sys.exit(f"no case is called '{name}' (known: {', '.join(DEFAULT)}, or POLICY/SCHEDULE/FREEZING)")
    schema = subprocess.run([str(binary), "solve", "--schema", "simulate"], capture_output=True, text=True, timeout=60,
                            check=True).stdout
    known = re.findall(r'"([^"]+)"', re.search(r'"policy": ((?:"[^"]+"[\s|]*)+)', schema)[1])
    if sorted(known) != sorted(POLICIES):
        sys.exit(f"policies of the program and of this test differ: {sorted(set(known) ^ set(POLICIES))}")
    if missing := set(POLICIES) - {policy_of(name) for name in DEFAULT}:
        sys.exit(f"no case trains with {', '.join(sorted(missing))}")


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    names = sys.argv[2:] or DEFAULT
    steps, passed_before = SHORT, None
    if names[0] == "--matrix" and len(names) <= 2:
        passed_before = pathlib.Path(names[1]) if len(names) == 2 else None
        names, steps = matrix(), STEPS
    if not REAL_MINI.is_dir():
        print(f"skipped: {REAL_MINI} is not there")
        print(f"0 passed, 0 failed, {len(names)} skipped")
        return 0
    os.environ["OMP_NUM_THREADS"] = "1"
    check_lists(binary, names)
    root = pathlib.Path(tempfile.mkdtemp(prefix="troupe-parity-"))
    shared = Once()
    try:
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            passed = sum(pool.map(lambda name: run_and_report(binary, root, name, shared, steps, passed_before),
                                  names))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"{passed} passed, {len(names) - passed} failed, 0 skipped")
    return 0 if passed == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
