"""Cases of parity.py whose encoders share a batch out among all their replicas (`balancer.exchange`), and what their runs
must show."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from parity_layouts import REPLICAS
from parity_plans import compute_order
from recorded_runs import read_lines, sample_of


def colocated(llm_stages):
    """Four nodes with an encoder replica each, and llm replicas over `llm_stages` of them."""
    cuts = {1: ["[0,7]"], 2: ["[0,3]", "[3,7]"]}[llm_stages]
    encoders = [f'{{modules=["vision","audio"],stages=[{{node={node},vision="all",audio="all"}}]}}' for node in range(4)]
    llms = ['{modules=["llm"],stages=[' + ",".join(
        f"{{node={first + place},llm={cut}}}" for place, cut in enumerate(cuts)) + "]}" for first in range(0, 4, llm_stages)]
    return [f"parallel.replicas=[{','.join(encoders + llms)}]", "parallel.pipelines=[]", "cluster.local_nodes=4"]


def on_uneven_nodes():
    """Two nodes of two devices with an llm replica on each: both of the first have an encoder, and one of the second."""
    tables = [f'{{modules=["vision","audio"],stages=[{{node={node},device={device},vision="all",audio="all"}}]}}'
              for node, device in ((0, 0), (0, 1), (1, 0))]
    tables += [f'{{modules=["llm"],stages=[{{node={node},device={device},llm="all"}}]}}' for node in range(2) for device in range(2)]
    return [f"parallel.replicas=[{','.join(tables)}]", "parallel.pipelines=[]", "cluster.local_nodes=2", "cluster.devices_per_node=2"]


LAYOUTS = {"3-2": REPLICAS["3-2"], "5-3": REPLICAS["5-3"], "1-4": REPLICAS["1-4"], "4-4": colocated(1), "4-2": colocated(2),
           "pipelines": []}
SCHEDULES = {"1f1b": ("1f1b", "hierarchical"), "split": ("split-1f1b", "deferral"), "zero-bubble": ("zero-bubble", "dflop"),
             "three-phase": ("three-phase", "in-order")}
FREEZING = {"all": [], "encoders": ["modules.vision.freeze=true", "modules.audio.freeze=true"]}

# name: overrides
CASES = {f"exchange-{layout}-{schedule}-{freezing}":
         ["train.dtype=fp64", *LAYOUTS[layout], "balancer.exchange=per-phase", f"scheduler.schedule={SCHEDULES[schedule][0]}",
          f"balancer.policy={SCHEDULES[schedule][1]}", *FREEZING[freezing]]
         for layout in LAYOUTS for schedule in SCHEDULES for freezing in FREEZING}
CASES["exchange-3-2-zero-bubble-whole"] = [*CASES["exchange-3-2-zero-bubble-all"], "balancer.items=whole"]
# Numbers of encoders per node differ.
CASES["exchange-uneven-nodes"] = ["train.dtype=fp64", *on_uneven_nodes(), "balancer.exchange=per-phase", "scheduler.schedule=three-phase",
                                  "balancer.policy=in-order"]
# Phases over two microbatches at a time, for want of room for four.
WINDOW = 2
CASES["exchange-4-4-three-phase-windows"] = [*CASES["exchange-4-4-three-phase-all"], "train.microbatches=4", f"scheduler.max_in_flight={WINDOW}"]
CASES["exchange-pipelines-three-phase-modality"] = [*CASES["exchange-pipelines-three-phase-all"], "modules.llm.attention=modality"]

# The first encoder takes twelve times as long as its profile says: it gets less once that was measured, and steps enough to tell.
MEASURED = "exchange-3-2-1f1b-measured"
CASES[MEASURED] = [*CASES["exchange-3-2-1f1b-all"], "balancer.adaptive_correction=true",
                   'debug.slow_shapes=[{module="vision",min_rows=1,max_rows=100000,factor=12,node=0}]']
# Samples in pieces, whose parts run their backwards apart.
PIECES = "exchange-3-2-split-pieces"
CASES[PIECES] = CASES["exchange-3-2-split-all"]
STEPS = {name: 20 if name == MEASURED else 5 for name in CASES}

# Rounds of all replicas are as many as the largest sample allows (K_eff): of a batch of 16 over four encoders or five that is one, and
# an llm replica with one microbatch has nowhere to defer to. Of 48 there are two at least, but for the batch that has the longest clip.
DEFERRING_BATCH = "train.global_batch_size=48"


def overrides_of(name):
    """What parity.py says of a case; other scripts have batches of their own. The policy must show that it defers."""
    defers = "-split-" in name and name != PIECES
    return [*CASES[name], *([DEFERRING_BATCH] if defers else [])]


def faults_of_nodes(run, plan):
    """Where each node has an encoder and an llm, fewer rows leave their node than if it did not matter who encodes what."""
    def nodes_of(is_llm):
        stages = {stage for replica in plan["replicas"] if (replica["group"] == len(plan["module_groups"]) - 1) == is_llm
                  for stage in replica["stages"][:1]}
        return {plan["devices"][plan["stages"][stage]["devices"][0]]["node"] for stage in stages}
    nodes = nodes_of(True)
    if nodes_of(False) != nodes or len(plan["module_groups"]) != 2:
        return []
    group = plan["module_groups"][0]["name"]
    figures = [line["phases"][group] for line in read_lines(run / "metrics.jsonl")]
    far, least = (sum(each[key] for each in figures) / len(figures)
                  for key in ("rows_between_nodes", "rows_between_nodes_bound"))
    # Phases with a giant are not even, and may send less than the least of even ones.
    at_random = 1 - 1 / len(nodes)
    if far > least + 0.6 * (at_random - least):
        return [f"{far:.2f} of the rows leave their node; {least:.2f} must, {at_random:.2f} would at random"]
    return []


def faults_of_pieces(run, overrides, encoders):
    """Samples with many items must be shared among encoder replicas, unless the job wants them whole."""
    shared = pieces = 0
    for line in read_lines(run / "iterations.jsonl"):
        pieces += len(line.get("pieces", []))
        encoded_by = {}
        for place in encoders:
            for unit in {unit for microbatch in line["replicas"][place] for part in microbatch for unit in part}:
                if unit >= len(line["ids"]):
                    encoded_by.setdefault(sample_of(line, unit), set()).add(place)
        shared += sum(len(places) > 1 for places in encoded_by.values())
    if "balancer.items=whole" in overrides:
        return [f"{pieces} pieces of samples that were to stay whole"] if pieces else []
    return [] if shared or len(encoders) < 2 else [f"no sample was shared among encoder replicas; there were {pieces} pieces"]


def deferred_apart(line, encoders, llms):
    """Samples of a step that were deferred, in a part of their own. All that an encoder microbatch works on is of one round, so who is
    trained in a later microbatch of the same llm replica than others of it was deferred."""
    trained_in = {sample: (place, number) for place in llms for number, microbatch in enumerate(line["replicas"][place])
                  for part in microbatch for sample in part}
    found = set()
    for microbatch in (microbatch for place in encoders for microbatch in line["replicas"][place]):
        first = {}
        for place, number in (trained_in[sample_of(line, unit)] for part in microbatch for unit in part):
            first[place] = min(number, first.get(place, number))
        for sample in (sample_of(line, unit) for part in microbatch[1:] for unit in part):
            place, number = trained_in[sample]
            if number > first[place]:
                found.add(sample)
    return found


def faults_of_deferral(run, encoders, llms):
    """Some samples must wait for a later microbatch of the llm than others of their encoder's."""
    deferred = sum(len(deferred_apart(line, encoders, llms)) for line in read_lines(run / "iterations.jsonl"))
    if deferred > 0:
        return []
    planned = sum(line["deferred_samples"] for line in read_lines(run / "metrics.jsonl"))
    return [f"no sample was deferred in a part of its own; {planned} were to be deferred"]


def faults_of_measured(run, group):
    """Where one encoder is slow, their phase takes as long as that one's share at first, and is more even when speeds are known."""
    uneven = [line["phases"][group]["imbalance"] for line in read_lines(run / "metrics.jsonl")]
    first, last = (sum(part) / len(part) for part in (uneven[:3], uneven[-6:]))
    # With equal shares twelve times as long is 2.6 times the mean of three; on busy machines and for vision alone, less.
    return [] if last < 0.8 * first else [f"the slowest encoder took {first:.2f}x the mean at first, {last:.2f}x in the end"]


def first_encoders(plan):
    """Stages of the first module group."""
    return {stage for replica in plan["replicas"] if replica["group"] == 0 for stage in replica["stages"]}


def faults_of_schedule(run, plan, schedule):
    """Weight gradients are apart under `zero-bubble` alone; under `three-phase` no forward of an encoder comes behind a backward."""
    apart = sum(kind == "W" for line in read_lines(run / "iterations.jsonl") for kind, *_ in line["backward"])
    faults = [] if (apart > 0) == (schedule == "zero-bubble") else [f"{schedule} ran {apart} weight gradients apart"]
    if schedule == "three-phase":
        encoders = first_encoders(plan)
        late = [place for place, kinds in compute_order(run).items() if place[1] in encoders and "backward" in kinds
                and "forward" in kinds[kinds.index("backward"):]]
        if late:
            faults.append(f"three-phase ran a forward behind a backward of an encoder: (step, stage) {late[:3]}")
    return faults


def faults_of_windows(run, plan):
    """Encoders run as many forwards before a backward as a window has microbatches, and go on with the next window behind it."""
    encoders = first_encoders(plan)
    longest = later = 0
    for (_, stage), kinds in compute_order(run).items():
        if stage not in encoders:
            continue
        runs = "".join("F" if kind == "forward" else "B" for kind in kinds).split("B")
        longest, later = max(longest, *map(len, runs)), later + (any(runs[1:]))
    return [] if longest == WINDOW and later else [f"encoders ran {longest} forwards in a row; in {later} steps one behind a backward"]


def faults_of_exchange(run, overrides):
    """Encoder replicas must feed several llm replicas, all of them work, and no phase may be less even than as drawn."""
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    groups = [replica["group"] for replica in plan["replicas"]]
    llms = [place for place, group in enumerate(groups) if group == len(plan["module_groups"]) - 1]
    mixed, busy = 0, set()
    for line in read_lines(run / "iterations.jsonl"):
        llm_of = {sample: place for place in llms for microbatch in line["replicas"][place] for part in microbatch
                  for sample in part}
        for place, lists in enumerate(line["replicas"]):
            if place in llms:
                continue
            if lists:
                busy.add(place)
            mixed += sum(len({llm_of[sample_of(line, unit)] for part in microbatch for unit in part}) > 1 for microbatch in lists)
    encoders = sorted(set(range(len(groups))) - set(llms))
    # Many samples are shared out evenly enough as they are.
    faults = faults_of_deferral(run, encoders, llms) if DEFERRING_BATCH in overrides else faults_of_pieces(run, overrides, encoders)
    if len(groups) - len(llms) > 1 and mixed == 0:
        faults.append("no encoder microbatch has samples of two llm replicas")
    if idle := sorted(set(range(len(groups))) - set(llms) - busy):
        faults.append(f"replicas {idle} never had anything to encode")
    several = any(groups.count(group) > 1 for group in set(groups) - {len(plan["module_groups"]) - 1})
    told = {line.get("exchanged") for line in read_lines(run / "metrics.jsonl")}
    if (True in told) != several or (None in told) == several:
        faults.append(f"metrics say of steps that they were exchanged: {told}")
    faults += faults_of_nodes(run, plan)
    if f"scheduler.max_in_flight={WINDOW}" in overrides:
        faults += faults_of_windows(run, plan)
    else:
        faults += faults_of_schedule(run, plan, next(word for word in overrides if word.startswith("scheduler.schedule=")).partition("=")[2])
    if "balancer.adaptive_correction=true" in overrides:
        faults += faults_of_measured(run, plan["module_groups"][0]["name"])
    for group in plan["module_groups"]:
        figures = [line["phases"][group["name"]] for line in read_lines(run / "metrics.jsonl")]
        planned, drawn = (sum(each[key] for each in figures) / len(figures) for key in ("imbalance_planned", "imbalance_drawn"))
        if planned > drawn + 1e-9:
            faults.append(f"{group['name']}: {planned:.3f}x the mean as planned, {drawn:.3f}x as drawn")
    return faults
