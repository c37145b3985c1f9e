"""Cases of parity.py whose data are not on all nodes: pictures on one, which begins no encoder, sounds on two, text on all.
What the trace tells of it."""

import json

from parity_layouts import REPLICAS

PICTURES, SOUNDS = [1], [0, 3]
STEPS = 5
EXCHANGE = ["balancer.exchange=per-phase", "balancer.policy=hierarchical"]

# name: overrides; of the data called `sources`.
CASES = {
    "sources": ["train.dtype=fp64"],
    "sources-deferral": ["train.dtype=fp64", "balancer.policy=deferral", "scheduler.schedule=split-1f1b"],
    "sources-exchange": ["train.dtype=fp64", *EXCHANGE],
    "sources-replicas": ["train.dtype=fp64", *REPLICAS["3-2"], "scheduler.schedule=zero-bubble"],
    "sources-late": ["train.dtype=fp64", "debug.delayed_device_ms=0.4"],
}


def by_medium(samples):
    """Samples with a picture, those of the rest with a sound, and the others."""
    lists = [[], [], []]
    for sample in samples:
        lists[0 if "image" in sample else 1 if "audio" in sample else 2].append(sample)
    return lists


def write(data):
    """Writes a list for each; returns the override that names them, and who sees them."""
    tables = []
    for name, samples, nodes in zip(("pictures", "sounds", "text"), by_medium(data.samples), (PICTURES, SOUNDS, None)):
        path = data.folder / f"source-{name}.json"  # Subsets of the data have files of their own names.
        path.write_text(json.dumps(samples), encoding="utf-8")
        tables.append(f'{{json="{path}"' + (f",nodes={nodes}" if nodes else "") + "}")
    return f"data.sources=[{','.join(tables)}]"


def deliveries(run):
    """What the trace tells of content that was sent and received: {kind: {node: [bytes, ...]}}."""
    found = {"send_content": {}, "receive_content": {}}
    for line in (run / "trace.json").read_text(encoding="utf-8").splitlines():
        if "_content" not in line:
            continue
        entry = json.loads(line.rstrip(","))
        if entry["ph"] == "X":
            found[entry["args"]["kind"]].setdefault(entry["pid"] - 1, []).append(entry["args"]["bytes"])
    return found


def faults_of_sources(run):
    """Who sees a source sends, who does not receives, and all that is sent arrives."""
    sent, received = deliveries(run).values()
    faults = []
    if not {1} < set(sent) <= {*PICTURES, *SOUNDS}:
        faults.append(f"content is sent by nodes {sorted(sent)}")
    if 2 not in received:
        faults.append(f"content comes to nodes {sorted(received)}")
    every = [sorted(size for sizes in nodes.values() for size in sizes) for nodes in (sent, received)]
    if every[0] != every[1] or not every[0]:
        faults.append(f"{sum(every[0])} bytes are sent, {sum(every[1])} come")
    return faults
