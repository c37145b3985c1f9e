#!/usr/bin/python3
"""What a training step costs besides its operators: two stages of about 50 ms, one thread each, two processes.

50 ms of a stage are as many samples as its model is small for, and some of the cost goes with samples, some with
microbatches, some with steps: so two sizes are measured. Trains the same job for few and for many steps. The difference in processor time of all processes is what the
additional steps cost; the processor time of their forward, backward, gradient norm and optimizer slices in the trace
(`tdur`) is what the operators took. The rest (decoding, planning, messages, transport, recording) is the share outside
operators. Waiting uses no processor time, so the schedule's idle time does not count, nor what other programs
take. Names of threads say whose it was, as differences of the same two runs. Prints JSON lines; see README.md.
"""

import collections
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

BINARY = pathlib.Path(os.environ.get("TROUPE_BINARY", "build/release/troupe")).resolve()
JOB = pathlib.Path("configs/demo.toml").resolve()
ROUNDS = 3
# Microbatches of a step, samples of a microbatch, and of how many steps the runs are whose difference counts.
SIZES = ((8, 1, 3, 23), (4, 4, 5, 35))
STAGE_MS = 50  # Of forward and backward of a microbatch; the llm gets as many layers as that takes here.
OPERATORS = ("compute", "update")  # Categories of slices.
DEVICES = "device"  # Name of the threads that run operators.
DECODING = "decode"  # Of those that work on data, ahead of the steps.


def thread_seconds(root):
    """(name, processor seconds) by (process, thread) of a process and its children; what has ended is left out."""
    seconds = {}
    try:
        children = pathlib.Path(f"/proc/{root}/task/{root}/children").read_text().split()
        for pid in [str(root), *children]:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                name = re.sub(r"[ \d]+$", "", (task / "comm").read_text().strip())
                seconds[pid, task.name] = name, int((task / "schedstat").read_text().split()[0]) / 1e9
    except OSError:
        pass  # A thread that ended while it was read.
    return seconds


def train(folder, data, microbatches, samples, layers, steps):
    """(processor seconds of all processes, run folder, processor seconds by name of thread) of one run with an llm of
    twice so many layers."""
    cut = layers + 1  # With the token embedding; the second stage has the head.
    stages = f'{{node=0,vision="all",audio="all",llm=[0,{cut}]}},{{node=1,llm=[{cut},{2 * cut}]}}'
    run = pathlib.Path(folder) / f"run-{steps}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        [str(BINARY), "train", str(JOB), f'data.sources=[{{json="{data}/samples.json"}}]',
         f"parallel.pipelines=[{{stages=[{stages}]}}]",
         "cluster.local_nodes=2", f"modules.llm.config.num_hidden_layers={2 * layers}",
         "modules.llm.config.hidden_size=192", "modules.llm.config.intermediate_size=512",
         f"train.microbatches={microbatches}", f"train.global_batch_size={microbatches * samples}", "data.shuffle=false",
         f"train.steps={steps}", f"job.run_dir={run}"],
        stdout=subprocess.DEVNULL, cwd=folder)
    threads = {}
    while process.poll() is None:
        threads.update(thread_seconds(process.pid))
        time.sleep(0.05)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    by_name = collections.Counter()
    for name, spent in threads.values():
        by_name[name] += spent
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, run, by_name


def operators(run):
    """Slices of the trace in which operators ran. `tdur`: processor time of the device's thread, in us."""
    trace = json.loads((run / "trace.json").read_text(encoding="utf-8"))
    return [event for event in trace if event["ph"] == "X" and event.get("cat") in OPERATORS]


def seconds(slices):
    return sum(event["tdur"] for event in slices) / 1e6


def stage_ms(slices):
    """Forward and backward of one microbatch in a stage of the llm."""
    llm = [event for event in slices if "llm" in event["name"]]
    return sum(statistics.median(event["tdur"] for event in llm if kind in event["name"]) for kind in (" F ", " B ")) / 1000


def measure(folder, data, microbatches, samples, few_steps, many_steps):
    """Prints the shares of one size."""
    layers = 4
    for _ in range(2):  # The second time from nearby: the head and what goes with samples do not scale.
        _, run, _ = train(folder, data, microbatches, samples, layers, 3)
        layers = max(1, round(layers * STAGE_MS / stage_ms(operators(run))))
    train(folder, data, microbatches, samples, layers, 1)  # Leaves a profile of the layers beside the runs.
    shares, without_decoding, stages, by_name = [], [], [], collections.defaultdict(list)
    for _ in range(ROUNDS):
        few_cpu, few, few_threads = train(folder, data, microbatches, samples, layers, few_steps)
        many_cpu, many, many_threads = train(folder, data, microbatches, samples, layers, many_steps)
        cpu = many_cpu - few_cpu
        work = seconds(operators(many)) - seconds(operators(few))
        decoding = many_threads[DECODING] - few_threads[DECODING]
        shares.append(100 * (1 - work / cpu))
        without_decoding.append(100 * (1 - work / (cpu - decoding)))
        stages.append(stage_ms(operators(many)))
        for name in many_threads:
            spent = many_threads[name] - few_threads[name]
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
