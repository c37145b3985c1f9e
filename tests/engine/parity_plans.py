"""Whether a policy and a schedule did something: what a run recorded, looked at without the planner.

Equal parameters say nothing about a policy that silently falls back to another, or a schedule that runs as another would.
"""

import collections
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from recorded_runs import read_iterations

DEFERRING = {"deferral", "deferral-exchange", "deferral-chain", "balanced-chain"}
SPLIT_PARTS = {"split-1f1b", "eager-1f1b", "zero-bubble", "eager-zero-bubble"}
SPLIT_WEIGHTS = {"zero-bubble", "eager-zero-bubble"}
ENCODERS_FIRST = {"gpipe", "dip", "three-phase"}


def whole(microbatches):
    """The samples of each microbatch, its parts together, ascending."""
    return [sorted(sample for part in microbatch for sample in part) for microbatch in microbatches]


def cut_in_order(pipeline):
    """Whether microbatches are what `in-order` makes: even runs of samples as they came, the same on both sides."""
    encoder, llm = whole(pipeline["encoder"]), whole(pipeline["llm"])
    samples = [sample for microbatch in llm for sample in microbatch]
    sizes = {len(microbatch) for microbatch in llm}
    return encoder == llm and samples == sorted(samples) and max(sizes) - min(sizes) <= 1


def deferred(pipeline):
    """Samples whose llm microbatch is another than their encoder microbatch."""
    places = [{sample: place for place, microbatch in enumerate(whole(pipeline[side])) for sample in microbatch}
              for side in ("encoder", "llm")]
    return [sample for sample, place in places[0].items() if places[1][sample] != place]


def faults_of_policy(steps, policy):
    pipelines = [pipeline for step in steps for pipeline in step["pipelines"] if pipeline["llm"]]
    in_order = sum(map(cut_in_order, pipelines))
    faults = []
    if policy == "in-order" and in_order < len(pipelines):
        faults.append(f"in-order cut {len(pipelines) - in_order} of {len(pipelines)} batches otherwise")
    if policy != "in-order" and 2 * in_order > len(pipelines):
        faults.append(f"{policy} cut {in_order} of {len(pipelines)} batches as in-order would")
    moved = sum(len(deferred(pipeline)) for pipeline in pipelines)
    if policy in DEFERRING and moved == 0:
        faults.append(f"{policy} deferred no sample in {len(steps)} steps")
    if policy not in DEFERRING | {"auto"} and moved:
        faults.append(f"{policy} deferred {moved} samples")
    return faults


def faults_of_parts(steps, schedule):
    """Deferred samples are a part of their own where the schedule runs parts apart, and nowhere else."""
    split, mixed = 0, 0
    for pipeline in (pipeline for step in steps for pipeline in step["pipelines"]):
        moved = set(deferred(pipeline))
        for parts, samples in zip(pipeline["encoder"], whole(pipeline["encoder"])):
            split += len(parts) > 1
            mixed += 0 < len(moved.intersection(samples)) < len(samples)
    # Deferred text needs no part: a few microbatches may defer nothing else.
    if schedule in SPLIT_PARTS and mixed >= 4 and not split:
        return [f"{schedule} split none of the {mixed} microbatches of which samples were deferred"]
    if schedule not in SPLIT_PARTS and split:
        return [f"{schedule} split {split} microbatches"]
    return []


def faults_of_weights(steps, schedule):
    """Weight gradients are actions of their own in the zero-bubble schedules, and some wait for a later input gradient."""
    kinds = collections.Counter(kind for step in steps for kind, *_ in step["backward"])
    if schedule not in SPLIT_WEIGHTS:
        return [f"{schedule} ran {kinds['W']} weight gradients apart"] if kinds["W"] else []
    waited = 0
    for step in steps:
        owed = collections.defaultdict(set)  # Per stage: input gradients whose weight gradient is to come.
        for kind, stage, *what in step["backward"]:
            if kind == "I":
                waited += bool(owed[stage])
                owed[stage].add(tuple(what))
            elif kind == "W":
                owed[stage].discard(tuple(what))
    if kinds["W"] and waited:
        return []
    return [f"{schedule}: {kinds['W']} weight gradients, {waited} input gradients went before an older weight gradient"]


def compute_order(run):
    """{(step, stage): kinds of action in the order they really ran}."""
    with open(run / "trace.json", encoding="utf-8") as file:
        events = [event for event in json.load(file) if event.get("cat") == "compute"]
    orders = collections.defaultdict(list)
    for event in sorted(events, key=lambda event: event["ts"]):
        found = event["args"]
        orders[found["step"], found["stage_id"]].append(found["kind"])
    return orders


def faults_of_order(run, schedule):
    """The first stage of a pipeline has run all forwards before its first backward where the schedule says so, and not else."""
    apart, mixed = 0, 0
    for (_, stage), kinds in compute_order(run).items():
        backward = [place for place, kind in enumerate(kinds) if kind.startswith("backward")]
        if stage != 0 or not backward or kinds.count("forward") < 3:
            continue
        later = kinds[backward[0]:].count("forward")
        apart, mixed = apart + (later == 0), mixed + (later > 0)
    if schedule in ENCODERS_FIRST and mixed:
        return [f"{schedule}: in {mixed} steps the first stage ran a forward after a backward"]
    if schedule in ("1f1b", "split-1f1b") and apart and not mixed:  # A deferred sample lets one forward more go ahead.
        return [f"{schedule}: in all {apart} steps the first stage ran every forward before a backward"]
    return []


def faults_of_plans(run, policy, schedule):
    """What a run's iterations.jsonl and trace.json show that the policy or schedule would not do; empty: all well."""
    steps = read_iterations(run)
    return [*faults_of_policy(steps, policy), *faults_of_parts(steps, schedule),
            *faults_of_weights(steps, schedule), *faults_of_order(run, schedule)]
