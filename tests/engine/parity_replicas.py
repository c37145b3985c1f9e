"""Cases of parity.py whose module groups have numbers of replicas of their own, and what their runs must show.

Four layouts, whose numbers do not divide each other, by six ways to cut and to order: 24 cases.
"""

import json

from parity_layouts import REPLICAS
from parity_plans import DEFERRING, SPLIT_PARTS, faults_of_weights
from recorded_runs import read_lines, sample_of

NUMBERS = {
    "3-2": {"vision+audio": 3, "llm": 2},
    "1-4": {"vision+audio": 1, "llm": 4},
    "5-3": {"vision+audio": 5, "llm": 3},
    "2-1-3": {"vision": 2, "audio": 1, "llm": 3},
}
# way: (schedule, policy)
WAYS = {
    "1f1b": ("1f1b", "in-order"),
    "eager-1f1b": ("eager-1f1b", "dflop"),
    "split-1f1b": ("split-1f1b", "deferral"),
    "zero-bubble": ("zero-bubble", "hierarchical"),
    "deferral": ("eager-zero-bubble", "deferral"),
    "auto": ("eager-1f1b", "auto"),
}
STEPS = 5

# name: (layout, way)
PLACES = {f"replicas-{layout}-{way}": (layout, way) for layout in NUMBERS for way in WAYS}
# name: overrides
CASES = {name: ["train.dtype=fp64", *REPLICAS[layout], f"scheduler.schedule={WAYS[way][0]}", f"balancer.policy={WAYS[way][1]}"]
         for name, (layout, way) in PLACES.items()}


def samples_of(line, microbatch):
    """The samples of a microbatch, or that pieces in it are of."""
    return {sample_of(line, unit) for part in microbatch for unit in part}


def cut_in_order(microbatches):
    """Whether an llm replica's microbatches are even runs of its samples as they came."""
    whole = [sorted(sample for part in microbatch for sample in part) for microbatch in microbatches]
    samples = [sample for microbatch in whole for sample in microbatch]
    sizes = {len(microbatch) for microbatch in whole}
    return samples == sorted(samples) and max(sizes) - min(sizes) <= 1


def faults_of_parts(schedule, mixed, split):
    """Deferred samples are a part of their own where the schedule runs parts apart, and nowhere else."""
    if schedule not in SPLIT_PARTS:
        return [f"{schedule} split {split} microbatches"] if split else []
    # Deferred text needs no part: a few microbatches may defer nothing else.
    return [f"{schedule} split none of the {mixed} microbatches of which samples were deferred"] if mixed >= 4 and not split else []


def faults_of_cuts(policy, lists, in_order, mixed):
    if policy == "in-order":
        return [] if in_order == lists and not mixed else [f"in-order cut {lists - in_order} of {lists} batches otherwise"]
    # A few samples that are cut into as many microbatches look in order whoever cut them.
    faults = [f"{policy} cut all {lists} batches as in-order would"] if in_order == lists else []
    if policy in DEFERRING and not mixed:
        faults.append(f"{policy} deferred no sample")
    if policy not in DEFERRING | {"auto"} and mixed:
        faults.append(f"{policy} deferred samples of {mixed} microbatches")
    return faults


def faults_of_replicas(run, name):
    """What a run's plans show that neither its layout nor its policy nor its schedule would make; empty: all well."""
    layout, way = PLACES[name]
    schedule, policy = WAYS[way]
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    groups = [plan["module_groups"][replica["group"]]["name"] for replica in plan["replicas"]]
    numbers = {group: groups.count(group) for group in groups}
    faults = [] if numbers == NUMBERS[layout] else [f"replicas {numbers} instead of {NUMBERS[layout]}"]
    lines = read_lines(run / "iterations.jsonl")
    idle = [place for place in range(len(groups)) if not any(line["replicas"][place] for line in lines)]
    if idle:
        faults.append(f"replicas {idle} never had anything to do")
    lists = in_order = mixed = split = 0
    for line in lines:
        llms = [made for made, group in zip(line["replicas"], groups) if group == "llm" and made]
        lists += len(llms)
        in_order += sum(map(cut_in_order, llms))
        microbatch_of = {sample: (replica, place) for replica, made in enumerate(llms)
                         for place, microbatch in enumerate(made) for sample in samples_of(line, microbatch)}
        for made, group in zip(line["replicas"], groups):
            if group != "llm":
                mixed += sum(len({microbatch_of[sample] for sample in samples_of(line, microbatch)}) > 1 for microbatch in made)
                split += sum(len(microbatch) > 1 for microbatch in made)
    return [*faults, *faults_of_cuts(policy, lists, in_order, mixed), *faults_of_parts(schedule, mixed, split),
            *faults_of_weights(lines, schedule)]
