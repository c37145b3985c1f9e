"""Cases of parity.py whose encoders have activations or parameters in host memory between the phases, or moments but for
their update (`scheduler.offload_encoders`), and what their runs must show: the bits of a run that keeps them, bytes that went and came back,
and less on the devices."""

import collections
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from parity_exchange import FREEZING, WINDOW, colocated
from parity_layouts import CHANGING, CHANGING_STEPS
from parity_standby import STANDBY
from recorded_runs import read_lines

OFFLOAD, KEEPING = "scheduler.offload_encoders=activations", "scheduler.offload_encoders=off"
MOMENTS, BOTH = "scheduler.offload_encoders=moments", "scheduler.offload_encoders=both"
PARAMETERS, ALL = "scheduler.offload_encoders=parameters", "scheduler.offload_encoders=all"
OFFLOADING = {OFFLOAD, MOMENTS, BOTH, PARAMETERS, ALL}
# Bytes of an element's master and moments.
MOMENT_BYTES = {"train.dtype=fp64": 16, "train.dtype=bf16": 12}
THREE_PHASE = ["scheduler.schedule=three-phase", OFFLOAD]
LAYOUTS = {"4-4": colocated(1), "4-2": colocated(2)}
LESS = 0.9  # At most so much of what is held without; where the llm's part is as large as the encoders', there is less to gain.
ALL_FROZEN = [*FREEZING["encoders"], "modules.vision_projector.freeze=true", "modules.audio_projector.freeze=true"]
CASES = {f"offload-{layout}-{freezing}": ["train.dtype=fp64", *LAYOUTS[layout], *THREE_PHASE, *FREEZING[freezing]]
         for layout in LAYOUTS for freezing in FREEZING}
for layout, placed in LAYOUTS.items():
    CASES[f"offload-{layout}-windows"] = ["train.dtype=fp64", *placed, *THREE_PHASE, "train.microbatches=4", f"scheduler.max_in_flight={WINDOW}"]
    CASES[f"offload-{layout}-deferral"] = ["train.dtype=fp64", *placed, *THREE_PHASE, "balancer.policy=deferral"]
    CASES[f"offload-{layout}-exchange"] = ["train.dtype=fp64", *placed, *THREE_PHASE, "balancer.exchange=per-phase"]
CASES["offload-dip-cut"] = ["train.dtype=fp64", "scheduler.schedule=dip", OFFLOAD]
CASES["offload-recomputed"] = ["train.dtype=fp64", *LAYOUTS["4-4"], *THREE_PHASE, "train.recompute=true"]
CASES["offload-bf16"] = ["train.dtype=bf16", *LAYOUTS["4-4"], *THREE_PHASE]
CASES["offload-nothing-kept"] = ["train.dtype=fp64", *LAYOUTS["4-4"], *THREE_PHASE, *ALL_FROZEN]
# Cases of moments, which wait for no phases, and how many steps they take where these are not five.
CASES |= {
    "offload-moments-pipelines": ["train.dtype=fp64", MOMENTS],
    "offload-moments-bf16": ["train.dtype=bf16", *LAYOUTS["4-4"], "scheduler.schedule=three-phase", MOMENTS],
    "offload-moments-4-2-exchange": ["train.dtype=fp64", *LAYOUTS["4-2"], "scheduler.schedule=three-phase",
                                     "balancer.exchange=per-phase", MOMENTS],
    "offload-moments-zero-bubble-encoders": ["train.dtype=fp64", "scheduler.schedule=zero-bubble", *FREEZING["encoders"], MOMENTS],
    "offload-moments-frozen": ["train.dtype=fp64", *ALL_FROZEN, MOMENTS],
    "offload-moments-standby": [*STANDBY["standby-spare-tied"][0], MOMENTS],
    "offload-moments-standby-layouts": [*STANDBY["standby-layouts"][0], MOMENTS],
    "offload-moments-layouts": [*CHANGING, MOMENTS],
    "offload-both-4-4": ["train.dtype=fp64", *LAYOUTS["4-4"], "scheduler.schedule=three-phase", BOTH],
    "offload-both-bf16": ["train.dtype=bf16", *LAYOUTS["4-4"], "scheduler.schedule=three-phase", BOTH]}
# Cases of parameters, and of all three.
GIVING = ["scheduler.schedule=three-phase", PARAMETERS]
CASES |= {
    "offload-parameters-4-4": ["train.dtype=fp64", *LAYOUTS["4-4"], *GIVING],
    "offload-parameters-4-2-exchange": ["train.dtype=fp64", *LAYOUTS["4-2"], *GIVING, "balancer.exchange=per-phase"],
    "offload-parameters-windows": ["train.dtype=fp64", *LAYOUTS["4-4"], *GIVING, "train.microbatches=4", f"scheduler.max_in_flight={WINDOW}"],
    "offload-parameters-deferral": ["train.dtype=fp64", *LAYOUTS["4-4"], *GIVING, "balancer.policy=deferral"],
    "offload-parameters-frozen": ["train.dtype=fp64", *LAYOUTS["4-4"], *GIVING, *ALL_FROZEN],
    "offload-parameters-encoders": ["train.dtype=fp64", *LAYOUTS["4-2"], *GIVING, *FREEZING["encoders"]],
    "offload-parameters-bf16": ["train.dtype=bf16", *LAYOUTS["4-4"], *GIVING],
    "offload-parameters-dip": ["train.dtype=fp64", *LAYOUTS["4-4"], "scheduler.schedule=dip", PARAMETERS],
    "offload-parameters-recomputed": ["train.dtype=fp64", *LAYOUTS["4-4"], *GIVING, "train.recompute=true"],
    "offload-parameters-standby": [*STANDBY["standby-one-pipeline"][0], *GIVING],
    "offload-parameters-layouts": [*CHANGING, *GIVING],
    "offload-all-4-4": ["train.dtype=fp64", *LAYOUTS["4-4"], "scheduler.schedule=three-phase", ALL],
    "offload-all-bf16": ["train.dtype=bf16", *LAYOUTS["4-2"], "scheduler.schedule=three-phase", ALL]}
STEPS = {"offload-parameters-layouts": CHANGING_STEPS, "offload-moments-standby-layouts": STANDBY["standby-layouts"][1], "offload-moments-layouts": CHANGING_STEPS}


def moves_of(run):
    """Per device and step what its trace says in order: (kind, stage, microbatch, part, bytes)."""
    with open(run / "trace.json", encoding="utf-8") as file:
        events = [event for event in json.load(file) if event.get("cat") in ("compute", "offload")]
    moves = collections.defaultdict(list)
    for event in sorted(events, key=lambda event: event["ts"]):
        found = event["args"]
        moves[event["pid"], event["tid"], found["step"]].append(
            (found["kind"], found.get("stage_id"), found.get("microbatch"), found.get("part", 0), found.get("bytes", 0)))
    return moves


def updates_of(run):
    """Per device and step what its trace says behind commit, in order: (kind, group or nothing, bytes)."""
    with open(run / "trace.json", encoding="utf-8") as file:
        events = [event for event in json.load(file) if event.get("cat") in ("update", "offload")]
    updates = collections.defaultdict(list)
    for event in sorted(events, key=lambda event: event["ts"]):
        found = event["args"]
        if found["kind"] in ("fetch_state", "optimizer_step", "offload_state"):
            updates[event["pid"], event["tid"], found["step"], found["epoch_number"]].append(
                (found["kind"], found.get("group"), found.get("bytes", 0)))
    return updates


def elements_in_host(run):
    """{epoch number: {group: elements}} of groups whose moments must be in host memory: what trains in encoders and projectors."""
    plans = [json.loads(path.read_text(encoding="utf-8")) for path in run.glob("plan*.json")]
    return {plan["epoch_number"]: {layer["name"]: layer["parameter_elements"] for module in plan["modules"]
                                   if module["kind"] != "llm" and not module["freeze"] for layer in module["layers"]
                                   if layer["parameter_elements"]} for plan in plans}


def faults_of_moments(run, overrides):
    """Moments of encoders come before their update and go back behind it, all of their bytes, one group at a time; no others move.
    Returns with the faults bytes that went, and the most that one device has there."""
    faults, moved, most, wanted = [], 0, 0, elements_in_host(run)
    each = next(count for dtype, count in MOMENT_BYTES.items() if dtype in overrides)
    seen = collections.defaultdict(set)
    for place, actions in updates_of(run).items():
        groups, here = wanted[place[3]], None
        for kind, group, count in actions:
            if kind == "optimizer_step" and group is None:
                continue
            if group not in groups or (kind != "optimizer_step" and count != each * groups[group]):
                faults.append(f"{place}: {kind} of {group}, {count} bytes")
            if (here is None) != (kind == "fetch_state") or here not in (None, group):
                faults.append(f"{place}: {kind} of {group} while {here} is there")
            here = group if kind == "fetch_state" else None if kind == "offload_state" else here
            seen[place[2:]].add(group)
        went = [count for kind, _, count in actions if kind == "offload_state"]
        moved, most = moved + sum(went), max(most, sum(went))
        if here is not None:
            faults.append(f"{place}: {here} never went back")
    faults += [f"step {step}: moments of {sorted(wanted[epoch] - groups)} never came" for (step, epoch), groups in seen.items()
               if wanted[epoch].keys() - groups]
    return faults, moved, most


def encoders_of(run):
    """{epoch number: stages that are no llm's}"""
    plans = [json.loads(path.read_text(encoding="utf-8")) for path in run.glob("plan*.json")]
    return {plan["epoch_number"]: {number for number, stage in enumerate(plan["stages"]) if stage["runs"][0]["module"] != "llm"}
            for plan in plans}


def events_of_parameters(run):
    """Per device and step, in order: (kind, stage, bytes) of what computes and of parameters that move."""
    with open(run / "trace.json", encoding="utf-8") as file:
        events = [event for event in json.load(file) if event.get("cat") in ("compute", "offload")]
    found = collections.defaultdict(list)
    for event in sorted(events, key=lambda event: event["ts"]):
        args = event["args"]
        if event["cat"] == "compute" or args["kind"].endswith("_parameters"):
            found[event["pid"], event["tid"], args["step"], args["epoch_number"]].append((args["kind"], args["stage_id"], args.get("bytes", 0)))
    return found


def faults_of_parameters(run, overrides):
    """Parameters of encoders are away while an llm computes on their device, there when they compute, and there in the end; what
    trains is copied once a step, frozen ones once a layout. Returns with the faults bytes that went, and the most that one
    device has there."""
    faults, moved, most, encoders = [], 0, 0, encoders_of(run)
    frozen = all(word in overrides for word in ALL_FROZEN)
    copied = set()  # (device, epoch number, stage): frozen ones.
    for place, actions in sorted(events_of_parameters(run).items(), key=lambda entry: entry[0][2]):
        node, device, _, epoch = place
        away, sizes, changed = set(), {}, set()
        here = {stage for _, stage, _ in actions if stage in encoders[epoch]}
        for kind, stage, count in actions:
            if kind == "evict_parameters":
                again = stage in changed or (frozen and (node, device, epoch, stage) in copied)
                if stage not in encoders[epoch] or stage in away or (count > 0) == again:
                    faults.append(f"{place}: {count} bytes of stage {stage} went to host memory")
                away.add(stage)
                changed.add(stage)
                copied.add((node, device, epoch, stage))
                moved += count
            elif kind == "fetch_parameters":
                if stage not in away or count <= 0 or sizes.setdefault(stage, count) != count:
                    faults.append(f"{place}: {count} bytes of stage {stage} came back")
                away.discard(stage)
            elif stage in away:
                faults.append(f"{place}: {kind} of stage {stage}, whose parameters are away")
            elif stage not in encoders[epoch] and away != here:
                faults.append(f"{place}: {kind} of the llm beside parameters of encoders")
        if away:
            faults.append(f"{place}: {away} never came back")
        most = max(most, sum(sizes.values()))
    if moved == 0:
        faults.append("no parameters went to host memory")
    return faults, moved, most


def faults_of_moves(run, beside=(0, 0)):
    """What goes to host memory comes back, as many bytes, between the forward and the backward of its part. `beside`: bytes of
    moments that went, and that a device has there."""
    faults, moved, most = [], 0, 0
    for place, actions in moves_of(run).items():
        away, held = {}, 0
        forwards = set()
        for kind, *part, count in actions:
            part = tuple(part)
            if kind == "forward":
                forwards.add(part)
            elif kind == "offload":
                if part not in forwards or count <= 0:
                    faults.append(f"{place}: {count} bytes of {part} went to host memory")
                away[part], moved, held = count, moved + count, held + count
            elif kind == "fetch":
                if away.pop(part, None) != count:
                    faults.append(f"{place}: {count} bytes of {part} came back")
                held -= count
            elif part in away:
                faults.append(f"{place}: {kind} of {part}, which is in host memory")
            most = max(most, held)
        if away:
            faults.append(f"{place}: {len(away)} parts never came back")
    lines = read_lines(run / "metrics.jsonl")
    told, peak = sum(line.get("moved_to_host_bytes", 0) for line in lines), max(line.get("offloaded_bytes", 0) for line in lines)
    # Where activations move as well all devices have as many moments there.
    if (told, peak) != (moved + beside[0], most + beside[1]):
        faults.append(f"the trace has {moved} + {beside[0]} bytes moved and {most} + {beside[1]} at a time, "
                      f"the metrics {told} and {peak}")
    return faults[:6], moved


def faults_of_offload(run, plain, name, overrides):
    """Of a run and of one of the same job that keeps everything on its devices."""
    faults, beside = [], (0, 0)
    if {MOMENTS, BOTH, ALL} & set(overrides):
        faults, *beside = faults_of_moments(run, overrides)
        if (beside[0] > 0) == (name == "offload-moments-frozen"):
            faults.append(f"{beside[0]} bytes of moments went to host memory")
    if {PARAMETERS, ALL} & set(overrides):
        more, *parameters = faults_of_parameters(run, overrides)
        faults += more
        beside = tuple(map(sum, zip(beside, parameters)))
    more, moved = faults_of_moves(run, beside)
    faults += more
    if {MOMENTS, PARAMETERS} & set(overrides):
        return faults[:6] + ([f"{moved} bytes of activations were moved"] if moved else [])
    held, whole = (max(line["activation_bytes"] for line in read_lines(of / "metrics.jsonl")) for of in (run, plain))
    if name == "offload-nothing-kept":
        return faults + ([f"{moved} bytes were moved"] if moved else [])
    if not moved:
        faults.append("nothing was moved")
    # Where an llm has a device of its own, that one may hold most. Of frozen encoders the projectors alone keep something.
    if held > (1 if name == "offload-dip-cut" else LESS) * whole and not (name.endswith("-encoders") and held < whole):
        faults.append(f"{held / 1e6:.2f} MB of activations were held, {whole / 1e6:.2f} MB without offloading")
    if any(line.get("moved_to_host_bytes") or line["offload_ms"] for line in read_lines(plain / "metrics.jsonl")):
        faults.append("a run that keeps everything moved something")
    return faults
