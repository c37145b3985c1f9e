"""Cases of parity.py whose encoders' activations are in host memory between the phases (`scheduler.offload_encoders`), and what
their runs must show: the bits of a run that keeps them, bytes that went and came back, and less on the devices."""

import collections
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from parity_exchange import FREEZING, WINDOW, colocated
from recorded_runs import read_lines

OFFLOAD, KEEPING = "scheduler.offload_encoders=activations", "scheduler.offload_encoders=off"
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


def moves_of(run):
    """Per device and step what its trace says in order: (kind, stage, microbatch, part, bytes)."""
    with open(run / "trace.json", encoding="utf-8") as file:
        events = [event for event in json.load(file) if event.get("cat") in ("compute", "offload")]
    moves = collections.defaultdict(list)
    for event in sorted(events, key=lambda event: event["ts"]):
        found = event["args"]
        moves[event["pid"], event["tid"], found["step"]].append(
            (found["kind"], found["stage_id"], found.get("microbatch"), found.get("part", 0), found.get("bytes", 0)))
    return moves


def faults_of_moves(run):
    """What goes to host memory comes back, as many bytes, between the forward and the backward of its part."""
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
    if (told, peak) != (moved, most):
        faults.append(f"the trace has {moved} bytes moved and {most} at a time, the metrics {told} and {peak}")
    return faults[:6], moved


def faults_of_offload(run, plain, name):
    """Of a run and of one of the same job that keeps everything on its devices."""
    faults, moved = faults_of_moves(run)
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
