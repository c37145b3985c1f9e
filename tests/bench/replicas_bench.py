#!/usr/bin/python3
"""Numbers of replicas of their own against one number for all, and samples shared out by workload against by count: live,
on uneven data, on the same devices.

    replicas_bench.py [--folder DIR] [--rounds N] [--steps N]

Five node processes, a vision encoder and an llm that no device can hold together with what is in flight. Stages are paced:
they sleep `FACTOR` times what they compute (`debug.slow_shapes`), so that two cores serve five devices, and the planner is
given a profile with these times. It prefers numbers of its own here; against it stands the best layout with one number,
found by pinning each. Then, by hand, two encoders and two llms as replicas of one pipeline, whose samples are shared out by
workload, beside the same stages as two pipelines, whose samples are dealt by count. Layouts take turns; of each step the
least disturbed round counts, over the steps behind the first two; what the profile says of the very same steps stands
beside it. A stage that waits for a core counts the wait `FACTOR` times: on a busy host only the profile's words mean much.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench")]

from checkpoint_bench import lines, report  # noqa: E402

BINARY = pathlib.Path(os.environ.get("TROUPE_BINARY", ROOT / "build/release/troupe")).resolve()
FACTOR, NODES, WARM_UP = 20, 5, 2
PACED = "debug.slow_shapes=[%s]" % ",".join(
    f'{{module="{module}",min_rows=1,max_rows=1000000,factor={FACTOR}}}' for module in ("vision", "llm"))
CASES = {"8 samples": (8, 2, 0.035)}  # Batch, microbatches, GiB of a device.
JOB = """
[job]
name = "replicas-bench"
[modules.vision]
kind = "encoder"
family = "qwen2-vl"
config = { depth = 2, embed_dim = 128, num_heads = 4, hidden_size = 128 }
[modules.vision_projector]
kind = "projector"
[modules.llm]
kind = "llm"
config = { num_hidden_layers = 1, hidden_size = 128, intermediate_size = 256, num_attention_heads = 4, \
num_key_value_heads = 2, vocab_size = 4096 }
[[data.sources]]
json = "data/pictures.json"
[data]
max_pixels = 25088
[train]
steps = 10
[balancer]
policy = "hierarchical"
"""
STAGES = ['vision="all"', 'llm="all"']


def troupe(folder, *words):
    answer = subprocess.run([str(BINARY), *words], cwd=folder, capture_output=True, text=True, timeout=300)
    if answer.returncode != 0:
        sys.exit(f"troupe {' '.join(words)}: exit {answer.returncode}\n{answer.stdout[-800:]}{answer.stderr[-800:]}")
    return answer.stdout


def prepare(folder):
    """Data without sounds, and a profile whose times are those of paced stages."""
    (folder / "job.toml").write_text(JOB)
    troupe(folder, "data", "make", "data", "--uneven")
    samples = json.loads((folder / "data/samples.json").read_text())
    pictures = [sample for sample in samples if "audio" not in json.dumps(sample)]
    (folder / "data/pictures.json").write_text(json.dumps(pictures))
    write_paced_profile(folder, "replicas-bench", FACTOR)


def write_paced_profile(folder, job, factor):
    """paced.json: what layers of job.toml take here, `factor` times as long."""
    troupe(folder, "profile", "job.toml", "--budget", "5")
    profile = json.loads(next((folder / "runs/profiles").glob(f"{job}-*.json")).read_text())
    for kind in profile["kinds"]:
        for point in kind["points"]:
            for part in ("linear", "attention"):
                point[part] = [factor * ms for ms in point[part][:3]] + point[part][3:]
    (folder / "paced.json").write_text(json.dumps(profile))


def best_pins(folder, words):
    """Pins of the best layout with one number for all, and its predicted ratio to the planner's choice."""
    best = None
    for number in range(1, NODES + 1):
        pins = [f"parallel.vision.dp={number}", f"parallel.llm.dp={number}"]
        answer = subprocess.run([str(BINARY), "plan", "job.toml", *words, *pins, "--json"], cwd=folder, capture_output=True,
                                text=True, timeout=300)
        if answer.returncode != 0:
            continue
        plan = json.loads(answer.stdout)
        mean = (plan["step_ms_min"] + plan["step_ms_max"]) / 2
        if best is None or mean < best[0]:
            best = (mean, pins, f"{number} of all")
    return best[1:]


def steps_of(folder, name, words, steps):
    troupe(folder, "train", "job.toml", "--fresh", *words, PACED, f"train.steps={steps}", f"job.run_dir={name}")
    trained = lines(folder / name / "metrics.jsonl")[WARM_UP:]
    return [line["step_ms"] for line in trained], [line["profile_step_ms"] for line in trained]


def compare(folder, layouts, rounds, steps):
    """Mean step of each layout: of the least disturbed rounds, the median of rounds, and as the profile says."""
    taken, profiled = {name: [] for name in layouts}, {}
    for _ in range(rounds):
        for name, words in layouts.items():
            run, predicted = steps_of(folder, name.replace(" ", "-"), words, steps)
            taken[name].append(run)
            profiled[name] = statistics.mean(predicted)
    least = {name: sum(map(min, zip(*runs, strict=True))) / len(runs[0]) for name, runs in taken.items()}
    median = {name: statistics.median(statistics.mean(run) for run in runs) for name, runs in taken.items()}
    return least, median, profiled


def numbers(plan):
    return " : ".join(f"{count} {name}" for name, count in sorted(plan["replicas"].items(), reverse=True))


def measure_choice(folder, size, rounds, steps):
    batch, microbatches, gib = CASES[size]
    words = [f"cluster.local_nodes={NODES}", f"train.global_batch_size={batch}", f"train.microbatches={microbatches}",
             f"cluster.device_memory_gib={gib}", "scheduler.profile=paced.json"]
    plan = json.loads(troupe(folder, "plan", "job.toml", *words, "--json"))
    if "one_number_ratio" not in plan:
        print(f"{size}: the planner prefers one number here: {numbers(plan)}")
        return
    pins, one = best_pins(folder, words)
    least, median, profiled = compare(folder, {"own": words, "one": [*words, *pins]}, rounds, steps)
    label = f"{size}, {numbers(plan)} against {one}"
    report("step, numbers of their own", least["own"], "ms", label)
    report("step, one number for all", least["one"], "ms", label)
    report("one number / own, live", least["one"] / least["own"], "x", label, "higher")
    report("one number / own, live, medians of rounds", median["one"] / median["own"], "x", label, "higher")
    report("one number / own, by the profile, these steps", profiled["one"] / profiled["own"], "x", label, "higher")
    report("one number / own, as the planner compared them", plan["one_number_ratio"], "x", label, "higher")


def measure_sharing(folder, rounds, steps):
    """Two encoders and two llms: samples shared out by workload, or dealt by count."""
    words = ["cluster.local_nodes=4", "train.global_batch_size=16", "train.microbatches=4", "scheduler.profile=paced.json"]
    tables = [f'{{modules=["{part.partition("=")[0]}"],stages=[{{node={node},{part}}}]}}'
              for node, part in enumerate(part for part in STAGES for _ in range(2))]
    pipelines = [f'{{stages=[{{node={p},{STAGES[0]}}},{{node={p + 2},{STAGES[1]}}}]}}' for p in range(2)]
    least, median, profiled = compare(folder, {
        "by workload": [*words, f"parallel.replicas=[{','.join(tables)}]"],
        "by count": [*words, f"parallel.pipelines=[{','.join(pipelines)}]", "balancer.dealing=count"]}, rounds, steps)
    label = "2 vision : 2 llm, 16 samples"
    report("step, samples shared out by workload", least["by workload"], "ms", label)
    report("step, samples dealt by count", least["by count"], "ms", label)
    report("by count / by workload, live", least["by count"] / least["by workload"], "x", label, "higher")
    report("by count / by workload, live, medians of rounds", median["by count"] / median["by workload"], "x", label,
           "higher")
    report("by count / by workload, by the profile, these steps", profiled["by count"] / profiled["by workload"], "x", label,
           "higher")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as made:
        folder = (arguments.folder or pathlib.Path(made)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        prepare(folder)
        for size in CASES:
            measure_choice(folder, size, arguments.rounds, arguments.steps)
        measure_sharing(folder, arguments.rounds, arguments.steps)


if __name__ == "__main__":
    main()
