"""Cases of parity.py whose data are not on all nodes: pictures on one, which begins no encoder, sounds on two, text on all.
What the trace tells of it."""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import exchange_products
from parity_layouts import REPLICAS
from recorded_runs import read_lines

PICTURES, SOUNDS = [1], [0, 3]
STEPS = 5
PATCH_BYTES = 3 * 14 * 14  # The 8-bit pixels of a patch, of one of its two equal frames.
FRAME_BYTES = 4 * 80  # The log-mel values of 10 ms, in fp32.
TOKEN_BYTES = 4
EXCHANGE = ["balancer.exchange=per-phase", "balancer.policy=hierarchical"]

# name: overrides; of the data called `sources`.
CASES = {
    "sources": ["train.dtype=fp64"],
    "sources-deferral": ["train.dtype=fp64", "balancer.policy=deferral", "scheduler.schedule=split-1f1b"],
    "sources-exchange": ["train.dtype=fp64", *EXCHANGE],
    "sources-replicas": ["train.dtype=fp64", *REPLICAS["3-2"], "scheduler.schedule=zero-bubble"],
    "sources-late": ["train.dtype=fp64", "debug.delayed_device_ms=0.4"],
    # And with every exchange.
    **exchange_products.SOURCES,
}
# Those whose every vision encoder is on a node that has no picture.
ALL_MOVE = ["sources", "sources-deferral", "sources-exchange", "sources-late"]


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


def trained_of(run, samples):
    """Those of these samples that a run has trained, as often as it has, by ids of their own."""
    by_id = {str(sample["id"]): sample for sample in samples}
    trained = [by_id[name] for line in read_lines(run / "iterations.jsonl") for name in line["ids"] if name in by_id]
    return [dict(sample, id=f"trained-{number}") for number, sample in enumerate(trained)]


def measured(binary, job, path, samples):
    """Patches, frames and llm tokens that `data check` finds in the files of samples. `path`: for a list of them, beside their media."""
    path.write_text(json.dumps(samples), encoding="utf-8")
    words = [word for word in job if not word.startswith("data.sources")]
    done = subprocess.run([str(binary), "data", "check", *words, f'data.sources=[{{json="{path}"}}]', "data.index=off", "--json"], capture_output=True, text=True,
                          timeout=120, check=True)
    told = json.loads(done.stdout)
    return tuple(told[key]["sum"] for key in ("patches_per_image", "frames_per_clip", "llm_tokens"))


def faults_of_bytes(run, binary, job, data):
    """Where no encoder's node sees pictures: node 1 sends each once, as the pixels of one frame, sounds beside them as they are
    read, and their text to the ends of the llm, two at most."""
    pictures, *_ = by_medium(data.samples)
    sent = sum(deliveries(run)["send_content"].get(PICTURES[0], []))
    patches, frames, tokens = measured(binary, job, data.folder / f"moved-{run.name}.json", trained_of(run, pictures))
    media = PATCH_BYTES * patches + FRAME_BYTES * frames
    if patches > 0 and media <= sent <= media + 2 * TOKEN_BYTES * tokens:
        return []
    return [f"{sent} bytes are sent of {patches} patches, {frames} frames and {tokens} tokens: {media} for media, and text"]


def faults_of_sharing(metrics, overrides):
    """With an exchange some phase of some step must be exchanged, not only planned to be; but for one encoder, which has nobody to share with."""
    exchanged = sorted({name for line in metrics for name, phase in line["phases"].items() if phase.get("exchanged")})
    if EXCHANGE[0] in overrides and bool(exchanged) == (REPLICAS["1-4"][0] in overrides):
        return [f"metrics say of {len(metrics)} steps that these phases were exchanged: {exchanged}"]
    return []


def faults_of_sources(run, overrides):
    """Who sees a source sends, who does not receives, and all that is sent arrives; and as `faults_of_sharing`."""
    sent, received = deliveries(run).values()
    faults = faults_of_sharing(read_lines(run / "metrics.jsonl"), overrides)
    if not {1} < set(sent) <= {*PICTURES, *SOUNDS}:
        faults.append(f"content is sent by nodes {sorted(sent)}")
    if 2 not in received:
        faults.append(f"content comes to nodes {sorted(received)}")
    every = [sorted(size for sizes in nodes.values() for size in sizes) for nodes in (sent, received)]
    if every[0] != every[1] or not every[0]:
        faults.append(f"{sum(every[0])} bytes are sent, {sum(every[1])} come")
    return faults
