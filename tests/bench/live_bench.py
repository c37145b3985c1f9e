#!/usr/bin/python3
"""Step time of real training under the policies of balancer/: real-mini in two layouts of two stages, and even data.

    live_bench.py [--runs N] [--steps N] [CONFIGURATION...]

Two processes with one thread each. Every configuration trains with every policy, the policies taking turns, three
times over; the value is the median over runs of a run's mean step (all train the same batches, which differ in
work). Beside each stands the work of the busiest device (its forwards, backwards and update in the trace): no order
of the same work can be faster. Steps are wall-clock, so this wants an otherwise idle machine with two cores.
Skipped (exit 77) where the data set is absent.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import typing

BINARY = pathlib.Path(os.environ.get("TROUPE_BINARY", "build/release/troupe")).resolve()
JOB = pathlib.Path("configs/real-mini.toml").resolve()
MEDIA = pathlib.Path("../shared/data/real-mini").resolve()
WARM_UP = 2
DATA = ("uneven", "even")
POLICIES = {  # Name in the table: policy and schedule.
    "random": ("random", "1f1b"),
    "disttrain": ("disttrain", "1f1b"),
    "dflop": ("dflop", "1f1b"),
    "hierarchical": ("hierarchical", "1f1b"),
    "hierarchical with deferral": ("deferral", "split-1f1b"),
    "auto": ("auto", "1f1b"),
    "auto, eager and split": ("auto", "eager-1f1b"),
}
COMMON = ["cluster.local_nodes=2", "train.global_batch_size=16", "train.microbatches=16"]


class Model(typing.NamedTuple):
    """Encoders on the first device, the llm on the second, or cut: the peer builds the same."""
    max_pixels: int
    depth: int  # Of the vision encoder.
    layers: int  # Of the llm.
    first_layers: int  # Of them beside the encoders; 0: not even the token embedding is there.

    def overrides(self):
        all_layers = self.layers + 2  # With embedding and head.
        cut = self.first_layers + 1 if self.first_layers else 0
        first = f",llm=[0,{cut}]" if cut else ""
        return [f'parallel.pipelines=[{{stages=[{{node=0,vision="all",audio="all"{first}}},'
                f'{{node=1,llm=[{cut},{all_layers}]}}]}}]',
                f"data.max_pixels={self.max_pixels}", f"modules.vision.config.depth={self.depth}",
                f"modules.llm.config.num_hidden_layers={self.layers}"]


MODELS = {  # One sample per microbatch, as with the long samples of larger models.
    "encoder-heavy": Model(max_pixels=401408, depth=2, layers=5, first_layers=0),
    "llm-heavy": Model(max_pixels=200704, depth=1, layers=8, first_layers=3),
}


def even_data(folder):
    """One sample with a picture, again and again under other names."""
    samples = json.loads((MEDIA / "samples.json").read_text(encoding="utf-8"))
    one = next(sample for sample in samples if "image" in sample and "audio" not in sample)
    path = pathlib.Path(folder) / "even.json"
    path.write_text(json.dumps([{**one, "id": f"even-{i}"} for i in range(512)]), encoding="utf-8")
    return f'data.sources=[{{format="llava",json="{path}",media="{MEDIA}"}}]'


def label(name, data):
    return f"{name}, {data} data"


def chosen(arguments, folder):
    """(name, label, overrides) of each configuration that the command line asks for; data go below `folder`."""
    more = {"uneven": [], "even": [even_data(folder)]}
    for name, model in MODELS.items():
        for data in DATA:
            if label(name, data) in arguments.configurations:
                yield name, label(name, data), [*model.overrides(), *more[data]]


def read_arguments():
    """The command line, which the peer shares."""
    parser = argparse.ArgumentParser()
    labels = [label(name, data) for name in MODELS for data in DATA]
    parser.add_argument("configurations", nargs="*", default=[], help="; ".join(labels))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    arguments = parser.parse_args()
    for unknown in set(arguments.configurations) - set(labels):
        parser.error(f"no configuration '{unknown}' (known: {'; '.join(labels)})")
    if arguments.runs < 1 or arguments.steps <= WARM_UP:
        parser.error(f"--runs must be 1 or more and --steps more than {WARM_UP}, which warm up")
    arguments.configurations = arguments.configurations or labels
    return arguments


def train(folder, overrides, steps, policy, schedule):
    """Of one run: mean step in ms, mean work of the busiest device in ms, predicted / measured step, the same by the
    profile alone, the longest wait for a plan in ms, and activation memory, the peak over what was promised (of the
    fullest device, and of the one that exceeds its promise most), furthest from 1."""
    run = pathlib.Path(folder) / "run"
    subprocess.run([str(BINARY), "train", str(JOB), *COMMON, *overrides, f"balancer.policy={policy}",
                    f"scheduler.schedule={schedule}", f"train.steps={steps}", f"job.run_dir={run}"],
                   check=True, stdout=subprocess.DEVNULL, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    work = collections.defaultdict(lambda: collections.defaultdict(float))
    for event in json.loads((run / "trace.json").read_text(encoding="utf-8")):
        if event["ph"] == "X" and event.get("cat") in ("compute", "update"):
            work[event["args"]["step"]][event["pid"], event["tid"]] += event["dur"] / 1e3
    kept = metrics[WARM_UP:]
    step_ms, predicted_ms, profile_ms = (sum(line[key] for line in kept)
                                         for key in ("step_ms", "predicted_step_ms", "profile_step_ms"))
    busiest_ms = sum(max(work[line["step"]].values(), default=0) for line in kept)
    wait_ms = max(line["plan_wait_ms"] for line in kept)
    memory = [line["activation_bytes"] / line["promised_activation_bytes"] for line in kept]
    memory += [line["activations_over_promise"] for line in kept]
    furthest = max(memory, key=lambda share: abs(share - 1))
    return step_ms / len(kept), busiest_ms / len(kept), predicted_ms / step_ms, profile_ms / step_ms, wait_ms, furthest


def measure(folder, name, overrides, runs, steps):
    results = collections.defaultdict(list)
    for _ in range(runs):
        for policy, job in POLICIES.items():
            results[policy].append(train(folder, overrides, steps, *job))
    random_ms = statistics.median(row[0] for row in results["random"])
    for policy, rows in results.items():
        step, bound, predicted, profile, _, _ = (statistics.median(column) for column in zip(*rows))
        wait_ms = max(row[4] for row in rows)
        memory = max((row[5] for row in rows), key=lambda share: abs(share - 1))
        print(json.dumps({"measure": f"step, {name}, {policy}", "value": step, "unit": "ms", "bound": bound,
                          "better": "lower", "size": f"{runs} runs of {steps} steps; {random_ms / step:.2f}x over random "
                                                     f"order; predicted / measured {predicted:.2f}, by the profile "
                                                     f"alone {profile:.2f}; longest wait for a plan {wait_ms:.0f} ms; "
                                                     f"peak / promised activations at worst {memory:.2f}"}), flush=True)


def main():
    arguments = read_arguments()
    if not MEDIA.is_dir():
        print(f"skipped: no {MEDIA}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory(prefix="troupe-live-") as folder:
        for _, name, overrides in chosen(arguments, folder):
            measure(folder, name, overrides, arguments.runs, arguments.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
