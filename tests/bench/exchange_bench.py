#!/usr/bin/python3
"""Encoders that share a batch out among all their replicas, live, beside other ways to share it out.

    exchange_bench.py [--folder DIR] [--rounds N] [--steps N] [--schedule NAME] [--real-mini] [WAY...]

Four node processes, each with a replica of both encoders and one of the llm, as data-parallel ranks have them. Two cores are
too few for four devices, so stages are paced: they sleep `FACTOR` times what they compute (`debug.slow_shapes`), and the
planner has a profile with these times. Mixed data (`data make --uneven`: text alone, large pictures, long clips, interleaved)
and even data (its samples with one small picture). With --real-mini ../shared/data/real-mini as it is, mixed data whose samples
are several of its own (text alone, pictures, sounds, both in turn), and its samples with one picture. Ways take turns within a round; of each step the least disturbed round
counts, over the steps behind the first two; beside it what the profile says of the very same steps, and how even the work of
each phase was: largest over mean of its replicas, predicted and measured.

The schedule is three-phase, which is made for devices with a replica of each: under 1f1b, the first form of this bench, even
phases leave devices waiting for one another between two microbatches (tests/bench/RESULTS.md). At random no device waits for
another, and the schedule makes no difference.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench")]

from checkpoint_bench import lines, report  # noqa: E402

BINARY = pathlib.Path(os.environ.get("TROUPE_BINARY", ROOT / "build/release/troupe")).resolve()
REAL_MINI = ROOT.parent / "shared" / "data" / "real-mini"
FACTOR, NODES, WARM_UP, BATCH = 12, 4, 2, 32
SAMPLES = 512  # Of a set that is made from others'.
PACED = "debug.slow_shapes=[%s]" % ",".join(
    f'{{module="{module}",min_rows=1,max_rows=1000000,factor={FACTOR}}}' for module in ("vision", "audio", "llm"))
JOB = f"""
[job]
name = "exchange-bench"
[modules.vision]
kind = "encoder"
family = "qwen2-vl"
next = "vision_projector"
config = {{ depth = 3, embed_dim = 128, num_heads = 4, hidden_size = 128 }}
[modules.vision_projector]
kind = "projector"
next = "llm"
[modules.audio]
kind = "encoder"
family = "whisper"
next = "audio_projector"
config = {{ encoder_layers = 2, d_model = 96, encoder_attention_heads = 4, encoder_ffn_dim = 192 }}
[modules.audio_projector]
kind = "projector"
next = "llm"
[modules.llm]
kind = "llm"
config = {{ num_hidden_layers = 2, hidden_size = 128, intermediate_size = 256, num_attention_heads = 4, \
num_key_value_heads = 2, vocab_size = 1024 }}
[data]
max_pixels = 50176
max_seq_len = 1500
max_bad_fraction = 1.0
[train]
global_batch_size = {BATCH}
microbatches = 2
[cluster]
local_nodes = {NODES}
"""
REPLICAS = "parallel.replicas=[%s]" % ",".join(
    [f'{{modules=["vision"],stages=[{{node={node},vision="all"}}]}}' for node in range(NODES)]
    + [f'{{modules=["audio"],stages=[{{node={node},audio="all"}}]}}' for node in range(NODES)]
    + [f'{{modules=["llm"],stages=[{{node={node},llm="all"}}]}}' for node in range(NODES)])
# Data are shuffled: runs of samples as they come are samples at random.
WAYS = {
    "random": ["balancer.dealing=count", "balancer.policy=in-order"],
    "llm only": ["balancer.dealing=work", "balancer.policy=llm-only"],
    "count, balanced within": ["balancer.dealing=count", "balancer.policy=hierarchical"],
    "both workloads": ["balancer.dealing=work", "balancer.policy=hierarchical"],
    "per phase": ["balancer.dealing=work", "balancer.policy=hierarchical", "balancer.exchange=per-phase"],
    "per phase, whole samples": ["balancer.dealing=work", "balancer.policy=hierarchical", "balancer.exchange=per-phase",
                                 "balancer.items=whole"],
    "auto": ["balancer.dealing=work", "balancer.policy=hierarchical", "balancer.exchange=auto"],
}


def troupe(folder, *words):
    answer = subprocess.run([str(BINARY), *words], cwd=folder, capture_output=True, text=True, timeout=600)
    if answer.returncode != 0:
        sys.exit(f"troupe {' '.join(words)}: exit {answer.returncode}\n{answer.stdout[-800:]}{answer.stderr[-800:]}")
    return answer.stdout


def one_picture(samples):
    """Those with one picture and no sound, as often as makes a set."""
    alike = [sample for sample in samples if isinstance(sample.get("image"), str) and "audio" not in sample]
    return [dict(sample, id=f"{sample['id']}-{copy}") for copy in range(-(-SAMPLES // len(alike))) for sample in alike]


def made_data(folder):
    """{name: override}"""
    troupe(folder, "data", "make", "mixed", "--uneven")
    troupe(folder, "data", "make", "even")
    samples = json.loads((folder / "even/samples.json").read_text())
    (folder / "even/alike.json").write_text(json.dumps(one_picture(samples)))
    return {name: f'data.sources=[{{json="{name}/{file}.json"}}]' for name, file in (("mixed", "samples"), ("even", "alike"))}


def listed(media):
    return [media] if isinstance(media, str) else list(media or [])


def joined(identity, samples):
    """Turns of all, one behind the other, with their media."""
    whole = {"id": identity, "conversations": [turn for sample in samples for turn in sample["conversations"]]}
    for medium in ("image", "audio"):
        if files := [file for sample in samples for file in listed(sample.get(medium))]:
            whole[medium] = files
    return whole


def mixed_of(samples):
    """As many samples of text alone, with many pictures, with many sounds, and with both in turn, made from several of these each."""
    kinds = {medium: [sample for sample in samples if {"image", "audio"} & set(sample) == {medium}] for medium in ("image", "audio")}
    texts = [sample for sample in samples if not {"image", "audio"} & set(sample)]
    draw, made = random.Random(1), []
    for number in range(SAMPLES // 4):
        turns = zip(draw.sample(kinds["image"], 3), draw.sample(kinds["audio"], 3), strict=True)
        made += [joined(f"{kind}-{number}", parts) for kind, parts in (
            ("text", draw.sample(texts, 2)), ("pictures", draw.sample(kinds["image"], draw.randint(2, 6))),
            ("sounds", draw.sample(kinds["audio"], draw.randint(1, 4))), ("both", [sample for pair in turns for sample in pair]))]
    draw.shuffle(made)
    return made


def real_data(folder):
    """{name: override}"""
    if not REAL_MINI.is_dir():
        sys.exit(f"{REAL_MINI} is not there")
    samples = json.loads((REAL_MINI / "samples.json").read_text())
    for name, list_ in (("mixed", mixed_of(samples)), ("even", one_picture(samples))):
        (folder / f"{name}.json").write_text(json.dumps(list_))
    files = {"real-mini": REAL_MINI / "samples.json", "mixed": folder / "mixed.json", "even": folder / "even.json"}
    return {name: f'data.sources=[{{json="{file.resolve()}",media="{REAL_MINI}"}}]' for name, file in files.items()}


def prepare(folder, sources):
    """The data sets, and a profile whose times are those of paced stages."""
    (folder / "job.toml").write_text(JOB)
    data = sources(folder)
    troupe(folder, "profile", "job.toml", data["mixed"], "train.steps=1", "--budget", "8")
    profile = json.loads(next((folder / "runs/profiles").glob("exchange-bench-*.json")).read_text())
    for kind in profile["kinds"]:
        for point in kind["points"]:
            for part in ("linear", "attention"):
                point[part] = [FACTOR * ms for ms in point[part][:3]] + point[part][3:]
    (folder / "paced.json").write_text(json.dumps(profile))
    return data


def run(folder, name, words, steps):
    troupe(folder, "train", "job.toml", "--fresh", REPLICAS, *words, PACED, "parallel.mode=manual", "scheduler.profile=paced.json",
           f"train.steps={steps}", f"job.run_dir={name}")
    return lines(folder / name / "metrics.jsonl")[WARM_UP:]


def compare(folder, words, ways, rounds, steps):
    """{way: milliseconds of a step (least disturbed round, by the profile), and figures of phases}."""
    taken = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            taken[way].append(run(folder, way.replace(" ", "-").replace(",", ""), [*WAYS[way], *words], steps))
    figures = {}
    for way, runs in taken.items():
        steps_ms = [min(each) for each in zip(*[[line["step_ms"] for line in one] for one in runs], strict=True)]
        phases = {group: {key: statistics.mean(line["phases"][group][key] for one in runs for line in one)
                          for key in ("imbalance_drawn", "imbalance_planned", "imbalance_bound", "imbalance",
                                      "rows_between_nodes", "rows_between_nodes_bound")}
                  for group in runs[0][0]["phases"]}
        figures[way] = {"live": statistics.mean(steps_ms), "phases": phases,
                        "profile": statistics.mean(line["profile_step_ms"] for line in runs[0]),
                        "median": statistics.median(statistics.mean(line["step_ms"] for line in one) for one in runs),
                        "plan_ms": max(line["plan_ms"] for one in runs for line in one),
                        "plan_wait_ms": max(line["plan_wait_ms"] for one in runs for line in one)}
    return figures


def tell(name, figures, size):
    base = figures["random"]
    for way, found in figures.items():
        if way == "random":
            continue
        goal = {"mixed": 1.3, "even": 0.98}.get(name) if way == "per phase" else None
        report(f"{name}: step at random / {way}", base["live"] / found["live"], "x", size, "higher", goal)
        report(f"{name}: the same, medians of rounds", base["median"] / found["median"], "x", size, "higher")
        report(f"{name}: the same, by the profile", base["profile"] / found["profile"], "x", size, "higher")
    for way in figures:
        for group, phase in figures[way]["phases"].items():
            report(f"{name}: {way}, {group}: largest / mean, planned", phase["imbalance_planned"], "x", size)
            report(f"{name}: {way}, {group}: the same, measured", phase["imbalance"], "x", size)
    if "per phase" not in figures:
        return
    for group, phase in figures["per phase"]["phases"].items():
        report(f"{name}: {group}: no deal is below", phase["imbalance_bound"], "x", size)
        if phase["rows_between_nodes_bound"] > 0:
            report(f"{name}: {group}: rows between nodes / the linear program's, were samples divisible",
                   phase["rows_between_nodes"] / phase["rows_between_nodes_bound"], "x", size, "lower", 1.05)
    report(f"{name}: longest wait for a plan, per phase", figures["per phase"]["plan_wait_ms"], "ms", size)
    report(f"{name}: longest planning, per phase", figures["per phase"]["plan_ms"], "ms", size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--schedule", default="three-phase", metavar="NAME")
    parser.add_argument("--real-mini", action="store_true")
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"beside `random`; of {'; '.join(list(WAYS)[1:])} (default all)")
    arguments = parser.parse_args()
    if unknown := [way for way in arguments.ways if way not in WAYS]:
        parser.error(f"no way is called {unknown[0]!r}: {'; '.join(WAYS)}")
    ways = [way for way in WAYS if way == "random" or not arguments.ways or way in arguments.ways]
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in prepare(folder, real_data if arguments.real_mini else made_data).items():
            size = (f"{'of real-mini, ' if arguments.real_mini else ''}{BATCH} samples in 2 microbatches, {arguments.schedule}, {NODES} nodes paced {FACTOR}x, "
                    f"{arguments.rounds} x {arguments.steps} steps")
            words = [data, f"scheduler.schedule={arguments.schedule}"]
            tell(name, compare(folder, words, ways, arguments.rounds, arguments.steps), size)


if __name__ == "__main__":
    main()
