#!/usr/bin/python3
"""What a training step costs besides its operators: two stages of about 50 ms, one thread each, two processes.

50 ms of a stage are as many samples as its model is small for, and some of the cost goes with samples, some with
microbatches, some with steps: so two sizes are measured. Between two steps of one run, the processor time of all
threads of all processes is what these steps cost; the processor time of their forward, backward, gradient norm and
optimizer slices in the trace (`tdur`) is what the operators took. The rest (decoding, planning, messages, transport,
recording) is the share outside operators. Waiting uses no processor time, so the schedule's idle time does not count,
nor what other programs take. Names of threads say whose it was. Prints JSON lines; see README.md.
"""

import collections
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BINARY = pathlib.Path(os.environ.get("TROUPE_BINARY", "build/release/troupe")).resolve()
JOB = pathlib.Path("configs/demo.toml").resolve()
ROUNDS = 3
# Microbatches of a step, samples of a microbatch, steps that are measured. The first size is the original one, which the
# goal was set for; the other came when that one missed it.
SIZES = ((4, 4, 40), (8, 1, 24))
WARM_UP = 4  # Steps before these.
CALIBRATION = 8  # Steps of a run that tells how long layers take.
STAGE_MS = 50  # Of forward and backward of a microbatch; the llm gets as many layers as that takes here.
OPERATORS = ("compute", "update")  # Categories of slices.
DEVICES = "device"  # Name of the threads that run operators.
DECODING = "decode"  # Of those that work on data, ahead of the steps.


def thread_seconds(root):
    """(name, processor seconds) by (process, thread) of a process and its children."""
    seconds = {}
    children = pathlib.Path(f"/proc/{root}/task/{root}/children").read_text().split()
    for pid in [str(root), *children]:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            name = re.sub(r"[ \d]+$", "", (task / "comm").read_text().strip())
            seconds[pid, task.name] = name, int((task / "schedstat").read_text().split()[0]) / 1e9
    return seconds


def wait_for_step(process, run, step):
    """The number of the last step that has ended, `step` or a later one."""
    while process.poll() is None:
        try:
            done = (run / "metrics.jsonl").read_text(encoding="utf-8").count("\n")
        except FileNotFoundError:
            done = 0
        if done >= step:
            return done
        time.sleep(0.02)
    raise subprocess.CalledProcessError(process.returncode, process.args)


def train(folder, data, microbatches, samples, layers, steps, binary=None, core=None):
    """(run folder, steps (first, last] that were measured, processor seconds of these by name of thread) of a run with
    an llm of twice so many layers, on one core where that is given."""
    cut = layers + 1  # With the token embedding; the second stage has the head.
    stages = f'{{node=0,vision="all",audio="all",llm=[0,{cut}]}},{{node=1,llm=[{cut},{2 * cut}]}}'
    run = pathlib.Path(folder) / "run"
    shutil.rmtree(run, ignore_errors=True)
    process = subprocess.Popen(
        [*([] if core is None else ["taskset", "-c", str(core)]), str(binary or BINARY), "train", str(JOB),
         f'data.sources=[{{json="{data}/samples.json"}}]',
         f"parallel.pipelines=[{{stages=[{stages}]}}]",
         "cluster.local_nodes=2", f"modules.llm.config.num_hidden_layers={2 * layers}",
         "modules.llm.config.hidden_size=192", "modules.llm.config.intermediate_size=512",
         f"train.microbatches={microbatches}", f"train.global_batch_size={microbatches * samples}", "data.shuffle=false",
         f"train.steps={WARM_UP + steps + 2}", f"job.run_dir={run}"],
        stdout=subprocess.DEVNULL, cwd=folder)
    try:
        first = wait_for_step(process, run, WARM_UP)
        before = thread_seconds(process.pid)
        last = wait_for_step(process, run, WARM_UP + steps)
        after = thread_seconds(process.pid)
        if process.wait(timeout=60) != 0:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    finally:
        process.kill()
    by_name = collections.Counter()
    for thread, (name, spent) in after.items():
        by_name[name] += spent - before.get(thread, (name, 0))[1]
    return run, (first, last), by_name


def operators(run, first=0, last=math.inf):
    """Slices of the trace in which operators ran, of steps after `first` up to `last`. `tdur`: processor time of the
    device's thread, in us."""
    trace = json.loads((run / "trace.json").read_text(encoding="utf-8"))
    return [event for event in trace
            if event["ph"] == "X" and event.get("cat") in OPERATORS and first < event["args"]["step"] <= last]


def seconds(slices):
    return sum(event["tdur"] for event in slices) / 1e6


def stage_ms(slices):
    """Forward and backward of one microbatch in a stage of the llm."""
    llm = [event for event in slices if "llm" in event["name"]]
    return sum(statistics.median(event["tdur"] for event in llm if kind in event["name"]) for kind in (" F ", " B ")) / 1000


def measure(folder, data, microbatches, samples, steps):
    """Prints the shares of one size."""
    layers = 4
    for _ in range(2):  # The second time from nearby: the head and what goes with samples do not scale.
        run, _, _ = train(folder, data, microbatches, samples, layers, CALIBRATION)
        layers = max(1, round(layers * STAGE_MS / stage_ms(operators(run))))
    shares, without_decoding, stages, by_name = [], [], [], collections.defaultdict(list)
    for _ in range(ROUNDS):
        run, (first, last), threads = train(folder, data, microbatches, samples, layers, steps)
        slices = operators(run, first, last)
        cpu, work = sum(threads.values()), seconds(slices)
        shares.append(100 * (1 - work / cpu))
        without_decoding.append(100 * (1 - work / (cpu - threads[DECODING])))
        stages.append(stage_ms(slices))
        for name, spent in threads.items():
            by_name[name].append(100 * (spent - (work if name == DEVICES else 0)) / cpu)
    size = f"{microbatches} microbatches of {samples}, 2 stages of {statistics.median(stages):.0f} ms"
    for name, values in (("", shares), (" and decoding", without_decoding)):
        print(json.dumps({"measure": f"step: processor time outside operators{name}",
                          "value": round(statistics.median(values), 2), "unit": "%", "bound": 2, "better": "lower",
                          "size": size}))
    threads = sorted(((statistics.median(spent), name) for name, spent in by_name.items()), reverse=True)
    for share, name in threads[:6]:
        print(json.dumps({"measure": f"step: of it threads '{name}'", "value": round(share, 2), "unit": "%",
                          "size": size}), flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="troupe-step-") as folder:
        data = pathlib.Path(folder) / "data"
        subprocess.run([str(BINARY), "data", "make", str(data)], check=True, stdout=subprocess.DEVNULL)
        for size in SIZES:
            measure(folder, data, *size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
