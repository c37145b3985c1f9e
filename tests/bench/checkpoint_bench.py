#!/usr/bin/python3
"""Checkpoints of about 1 GB of state, saved by 1, 2 and 4 local nodes beside training, and read again.

    checkpoint_bench.py [--folder DIR] [--saves N]

A text-only llm of 85 M parameters in fp32 (value and two moments: 1.02 GB) trains a few samples a step and saves every
third one. Per number of nodes: GB/s from the order to the complete checkpoint beside `dd` with fsync of as many bytes
into the same folder, right before and after (the goal is 0.8 of it); the longest wait of an optimizer step for a copy;
and the seconds from the start of a run that goes on to its first step, less those of a run that begins. Medians over
the saves. A file's SHA-256 is computed while it is written, which `dd` does not do.

Beside it, where `scripts/setup --reference` has installed it, torch.distributed.checkpoint (checkpoint_dcp.py): as many
bytes from as many processes. Both have nothing else to do then: ours is the save of a job that is stopped. One after
the other, `--saves` times; the goal is 1.5 times its speed.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

from kept_results import emit

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("TROUPE_BINARY", ROOT / "build/release/troupe")).resolve()
LAYERS = 10  # With embedding and head.
GOAL_DD, GOAL_DCP = 0.8, 1.5  # Shares of their speeds.
JOB = """
[job]
name = "checkpoint-bench"
[modules.llm]
kind = "llm"
config = { num_hidden_layers = 8, hidden_size = 896, intermediate_size = 2560, num_attention_heads = 8, \
num_key_value_heads = 8, vocab_size = 512 }
[[data.sources]]
json = "samples.json"
[train]
steps = 60
global_batch_size = 4
microbatches = 4
"""


def write_job(folder):
    (folder / "samples.json").write_text(json.dumps(
        [{"id": str(i), "conversations": [{"from": "human", "value": "what?"}, {"from": "gpt", "value": f"number {i}"}]}
         for i in range(64)]), encoding="utf-8")
    (folder / "job.toml").write_text(JOB, encoding="utf-8")


def layout(nodes):
    cuts = [LAYERS * n // nodes for n in range(nodes + 1)]
    stages = ",".join(f"{{node={n},llm=[{cuts[n]},{cuts[n + 1]}]}}" for n in range(nodes))
    return [f"parallel.pipelines=[{{stages=[{stages}]}}]", f"cluster.local_nodes={nodes}"]


def train(folder, run, words):
    done = subprocess.run([str(BINARY), "train", "job.toml", f"job.run_dir={run}", *words], cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
    if done.returncode != 0:
        raise SystemExit(done.stdout[-2000:])


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def dd_gb_per_s(folder, size):
    target = folder / "dd"
    begin = time.monotonic()
    subprocess.run(["dd", "if=/dev/zero", f"of={target}", "bs=4M", f"count={size // (4 << 20)}", "conv=fsync"], check=True,
                   stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - begin
    target.unlink()
    return size / seconds / 1e9


def start(folder, run, words):
    return subprocess.Popen([str(BINARY), "train", "job.toml", f"job.run_dir={run}", *words], cwd=folder,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_steps(process, metrics, count):
    begin = time.monotonic()
    while not metrics.exists() or len(metrics.read_text(encoding="utf-8").splitlines()) < count:
        if process.poll() is not None or time.monotonic() > begin + 300:
            raise SystemExit(f"{metrics.parent} did not come to {count} steps")
        time.sleep(0.01)


def seconds_to_first_step(folder, run, words):
    """From the command to the first line of metrics that it writes."""
    metrics = folder / run / "metrics.jsonl"
    before = len(lines(metrics)) if metrics.exists() else 0
    begin = time.monotonic()
    process = start(folder, run, words)
    wait_for_steps(process, metrics, before + 1)
    seconds = time.monotonic() - begin
    process.kill()
    process.wait()
    return seconds


def report(measure, value, unit, size, better="lower", bound=None):
    record = {"measure": measure, "value": value, "unit": unit, "size": size, "better": better}
    emit(record | ({"bound": bound} if bound is not None else {}))


def save_at_a_stop(folder, words):
    """Bytes and seconds of a save that has nothing beside it."""
    run = folder / "stopped"
    process = start(folder, run.name, [*words, "cluster.stop_timeout_s=120"])
    wait_for_steps(process, run / "metrics.jsonl", 3)
    process.send_signal(signal.SIGTERM)
    if process.wait(timeout=200) != 75:
        raise SystemExit("a stopped run did not save")
    event = [event for event in lines(run / "events.jsonl") if event["kind"] == "checkpoint"][-1]
    shutil.rmtree(run)
    return event["copy_bytes"], (event["copy_ms"] + event["rebuild_ms"]) / 1e3


def beside_dcp(folder, nodes, words, saves):
    python = os.environ.get("REFERENCE_PYTHON", "")
    if not pathlib.Path(python).is_file():
        return
    ours, theirs, stalls = [], [], []
    for _ in range(saves):
        size, seconds = save_at_a_stop(folder, words)
        ours.append(size / seconds / 1e9)
        done = subprocess.run([python, pathlib.Path(__file__).with_name("checkpoint_dcp.py"), str(folder / "dcp"),
                               str(nodes), str(size)], check=True, stdout=subprocess.PIPE, text=True, timeout=300)
        peer = json.loads(done.stdout)
        theirs.append(size / peer["seconds"] / 1e9)
        stalls.append(1e3 * peer["stall_s"])
    text = f"{size / 1e9:.2f} GB, {nodes} node{'s' if nodes > 1 else ''}"
    dcp = statistics.median(theirs)
    report("save with nothing beside it", statistics.median(ours), "GB/s", text, "higher", GOAL_DCP * dcp)
    report("the same by torch.distributed.checkpoint", dcp, "GB/s", text, "higher")
    report("wait of its caller for an asynchronous save", statistics.median(stalls), "ms", text)


def measure(folder, nodes, saves):
    words = layout(nodes)
    run = f"run-{nodes}"
    steps = 3 * saves
    train(folder, run, [*words, f"train.steps={steps}", "checkpoint.every_steps=3", "checkpoint.keep_last=1"])
    events = [event for event in lines(folder / run / "events.jsonl") if event["kind"] == "checkpoint"]
    size = events[0]["copy_bytes"]
    # The first save finds no pages of the files before it.
    speeds = [size / (event["copy_ms"] + event["rebuild_ms"]) / 1e6 for event in events[1:]]
    stalls = [line["checkpoint_stall_ms"] for line in lines(folder / run / "metrics.jsonl")]
    dd = statistics.median(dd_gb_per_s(folder, size) for _ in range(3))
    text = f"{size / 1e9:.2f} GB, {nodes} node{'s' if nodes > 1 else ''}"
    report("save beside training", statistics.median(speeds), "GB/s", text, "higher", GOAL_DD * dd)
    report("dd with fsync, same folder", dd, "GB/s", text, "higher")
    report("longest wait of an optimizer step for a copy", max(stalls), "ms", text)
    begun = seconds_to_first_step(folder, f"begun-{nodes}", [*words, "--fresh"])
    on = seconds_to_first_step(folder, run, [*words, f"train.steps={steps + 60}", "--resume"])
    report("first step of a run that goes on, beyond that of one that begins", on - begun, "s", text)
    for path in (run, f"begun-{nodes}"):
        shutil.rmtree(folder / path)
    beside_dcp(folder, nodes, words, saves)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, help="where to write; default: the system's")
    parser.add_argument("--saves", type=int, default=6)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="troupe-checkpoint-bench-", dir=arguments.folder) as name:
        folder = pathlib.Path(name)
        write_job(folder)
        for nodes in (1, 2, 4):
            measure(folder, nodes, arguments.saves)


if __name__ == "__main__":
    main()
