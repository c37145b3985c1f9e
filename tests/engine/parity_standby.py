"""Jobs of the parity test that keep everything on several nodes, and what their runs must show: who keeps what, and that
standby holders took every step."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from parity_layouts import BOTH, ENCODERS, LLM, by_replicas
from recorded_runs import read_lines

TIED = "modules.llm.config.tie_word_embeddings=true"


def one_pipeline(nodes, losses, *words):
    """A pipeline on nodes 0 and 1 of so many, that may lose so many of them."""
    return ['parallel.pipelines=[{stages=[{node=0,vision="all",audio="all",llm=[0,2]},{node=1,llm=[2,7]}]}]',
            f"cluster.local_nodes={nodes}", f"cluster.fault_tolerance={losses}", *words]


# All three nodes keep everything: the standby holder takes all stages over, then gives them back in another order.
TAKEN_OVER = {
    4: 'pipelines=[{stages=[{node=2,vision="all",audio="all",llm="all"}]}]',
    7: 'pipelines=[{stages=[{node=1,vision="all",audio="all",llm=[0,4]},{node=0,llm=[4,7]}]}]',
}

# name: (overrides, steps)
STANDBY = {
    "standby-one-pipeline": (["train.dtype=fp64", *one_pipeline(2, 1)], 5),
    "standby-bf16": (["train.dtype=bf16", *one_pipeline(2, 1, TIED)], 5),
    # Node 2 has no stage, only devices that stand by.
    "standby-spare-tied": (["train.dtype=fp64", *one_pipeline(3, 2, TIED, "scheduler.schedule=zero-bubble")], 5),
    "standby-1-2-frozen": (
        ["train.dtype=fp64", *by_replicas((BOTH, ENCODERS), ('"llm"', LLM, LLM)), "cluster.fault_tolerance=1",
         "modules.vision.freeze=true"], 5),
    "standby-layouts": (
        ["train.dtype=fp64", *one_pipeline(3, 2, TIED), "debug.layouts=[" +
         ",".join(f"{{from_step={step},{layout}}}" for step, layout in TAKEN_OVER.items()) + "]"], 10),
}


def plans_of(run):
    """{epoch number: plan}"""
    plans = [json.loads(path.read_text(encoding="utf-8")) for path in run.glob("plan*.json")]
    return {plan["epoch_number"]: plan for plan in plans}


def node_of(plan, device):
    return plan["devices"][device]["node"]


def holders(plan):
    """{what: nodes that keep it}, by stages and by standbys: the own parameters of layers, and tied ones by name."""
    users = {}
    for stage in plan["stages"]:
        for run in stage["runs"]:
            for layer in range(*run["layers"]):
                users.setdefault((run["module"], layer), set()).add(node_of(plan, stage["devices"][0]))
    kept = {layer: set(nodes) for layer, nodes in users.items()}
    for tied in plan["tied"]:
        kept[tied["name"]] = set().union(*(users[user["module"], user["layer"]] for user in tied["layers"]))
    for standby in plan["standbys"]:
        kept[standby["tied"] or (standby["module"], standby["layer"])].add(node_of(plan, standby["device"]))
    # A layer of which nothing is its own needs no holder.
    empty = {(module["name"], index) for module in plan["modules"] for index, layer in enumerate(module["layers"])
             if layer["parameter_elements"] + layer["constant_elements"] == 0}
    return {what: nodes for what, nodes in kept.items() if what not in empty}


def updaters(plan):
    """Nodes that stand by for something that trains."""
    frozen = {module["name"] for module in plan["modules"] if module["freeze"]}
    return {node_of(plan, standby["device"]) for standby in plan["standbys"] if standby["module"] not in frozen}


def losses_of(overrides):
    return next(int(word.partition("=")[2]) for word in overrides if word.startswith("cluster.fault_tolerance="))


def faults_of_holders(plans, losses):
    """What so many losses could take the last copy of."""
    return [f"layout {epoch}: {what} is on nodes {nodes} alone" for epoch, plan in plans.items()
            for what, nodes in holders(plan).items() if len(nodes) <= losses]


def faults_of_updates(run, plans):
    """Steps in which others than those who stand by for something updated it, or computed."""
    faults = []
    with open(run / "trace.json", encoding="utf-8") as file:
        events = [event for event in json.load(file) if event.get("ph") == "X"]
    updates, computing = {}, {}
    for event in events:
        found = event["args"]
        key = found["step"], found["epoch_number"]
        if found["kind"] == "optimizer_step" and "stage_id" not in found:
            updates.setdefault(key, set()).add(event["pid"] - 1)
        if event["cat"] == "compute":
            computing.setdefault(key, set()).add(event["pid"] - 1)
    for line in read_lines(run / "iterations.jsonl"):
        key = line["step"], line["epoch_number"]
        plan = plans[line["epoch_number"]]
        if updates.get(key, set()) != updaters(plan):
            faults.append(f"step {key[0]}: nodes {updates.get(key)} updated what they keep on standby, not {updaters(plan)}")
        stages = {node_of(plan, stage["devices"][0]) for stage in plan["stages"]}
        if not computing.get(key, set()) <= stages:
            faults.append(f"step {key[0]}: nodes {computing[key]} computed, stages are on {stages}")
    return faults


def in_stages(plan, node):
    return {(run["module"], layer) for stage in plan["stages"] if node_of(plan, stage["devices"][0]) == node
            for run in stage["runs"] for layer in range(*run["layers"])}


def faults_of_takeovers(run, overrides):
    """What a job with changing layouts does not show of its standby holders: everything is on several nodes in each layout,
    they update what they stand by for, and now and then one takes a layer over that it only stood by for."""
    plans = plans_of(run)
    taken = 0
    for before, after in zip(sorted(plans), sorted(plans)[1:]):
        for standby in plans[before]["standbys"]:
            node, layer = node_of(plans[before], standby["device"]), (standby["module"], standby["layer"])
            taken += layer not in in_stages(plans[before], node) and layer in in_stages(plans[after], node)
    faults = faults_of_holders(plans, losses_of(overrides)) + faults_of_updates(run, plans)
    return faults + ([] if taken else ["no standby holder ever took a layer over"])


def faults_of_standby(run, overrides):
    """What is not as a job with `cluster.fault_tolerance` promises; empty: all well."""
    losses = losses_of(overrides)
    plans = plans_of(run)
    faults = [f"layout {epoch} has no standby holder" for epoch, plan in plans.items() if not plan["standbys"]]
    faults += faults_of_holders(plans, losses) + faults_of_updates(run, plans)
    events = run / "events.jsonl"  # Where something happened.
    for event in read_lines(events) if events.exists() else []:
        if event["kind"] == "layout" and (event["copy_bytes"] or event["tolerance_left"] != losses):
            faults.append(f"layout of step {event['step']}: {event['copy_bytes']} bytes sent, although a holder took over; "
                          f"{event['tolerance_left']} losses left")
    return faults
