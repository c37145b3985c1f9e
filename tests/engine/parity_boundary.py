"""Cases of parity.py that pin the way of rows from encoders to the llm (`scheduler.boundary`), and what their runs must show."""

import collections
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from parity_layouts import REPLICAS
from recorded_runs import read_lines

# way: (schedule, policy)
WAYS = {"1f1b": ("1f1b", "in-order"), "deferral": ("split-1f1b", "deferral"), "zero-bubble": ("eager-zero-bubble", "deferral")}
FROZEN = ["modules.vision.freeze=true", "modules.vision_projector.freeze=true", "modules.audio.freeze=true",
          "modules.audio_projector.freeze=true"]

# name: overrides
CASES = {f"boundary-{layout}-{way}":
         ["train.dtype=fp64", *REPLICAS[layout], "scheduler.boundary=gather-scatter", f"scheduler.schedule={schedule}",
          f"balancer.policy={policy}"]
         for layout in ("3-2", "5-3", "1-4", "2-1-3") for way, (schedule, policy) in WAYS.items()}
CASES["boundary-3-2-exchange"] = [*CASES["boundary-3-2-deferral"], "balancer.exchange=per-phase"]
CASES["boundary-3-2-frozen"] = [*CASES["boundary-3-2-deferral"], *FROZEN]
CASES["boundary-3-2-bf16"] = ["train.dtype=bf16", *CASES["boundary-3-2-1f1b"][1:]]
# One device each way: the leader of a stage is its only rank.
CASES["boundary-3-2-leader"] = [*CASES["boundary-3-2-deferral"][:-3], "scheduler.boundary=leader", *CASES["boundary-3-2-deferral"][-2:]]


def relays_of(run):
    """{kind: {device: actions}} of the trace."""
    found = collections.defaultdict(collections.Counter)
    with open(run / "trace.json", encoding="utf-8") as file:
        for event in json.load(file):
            kind = event.get("args", {}).get("kind")
            if kind in ("relay", "relay_gradient"):
                found[kind][event["pid"] - 1, event["tid"] - 1] += 1
    return found


def first_devices(plan):
    """Where the rows of each group of encoders are gathered: (node, device) of the first replica's last stage that has them."""
    devices, several = set(), False
    for group in range(len(plan["module_groups"]) - 1):
        replicas = [replica for replica in plan["replicas"] if replica["group"] == group]
        several |= len(replicas) > 1
        for stage in replicas[0]["stages"]:
            device = plan["devices"][plan["stages"][stage]["devices"][0]]
            devices.add((device["node"], device["local_index"]))
    return devices, several


def faults_of_boundary(run, name):
    """The route must be the pinned one in every step, and rows of later replicas must have passed through the first one's device."""
    overrides = CASES[name]
    wanted = next(word.partition("=")[2] for word in overrides if word.startswith("scheduler.boundary="))
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    faults = []
    for line in read_lines(run / "iterations.jsonl"):
        routes = {(route, pinned) for _, _, route, pinned in line.get("boundaries", [])}
        if routes != {(wanted, True)}:
            faults.append(f"step {line['step']} took {routes or 'no route'}, {wanted} was pinned")
    relays = relays_of(run)
    hubs, several = first_devices(plan)
    counts = {kind: sum(relays[kind].values()) for kind in ("relay", "relay_gradient")}
    due = several and wanted == "gather-scatter"
    if bool(counts["relay"]) != due:
        faults.append(f"{counts['relay']} relays of rows")
    if bool(counts["relay_gradient"]) != (due and not set(FROZEN) <= set(overrides)):
        faults.append(f"{counts['relay_gradient']} relays of gradients")
    for kind, devices in relays.items():
        if not set(devices) <= hubs:
            faults.append(f"{kind} on {sorted(set(devices) - hubs)}; rows are gathered on {sorted(hubs)}")
    return faults
