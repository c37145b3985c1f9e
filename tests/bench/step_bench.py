#!/usr/bin/python3
"""What a training step costs besides its operators: two stages of about 50 ms, one thread each, two processes.

Trains the same job for few and for many steps. The difference in processor time of all processes is what the
additional steps cost; the processor time of their forward, backward and optimizer slices in the trace (`tdur`) is what
the operators took. The rest (decoding, planning, summing gradients, messages, transport, recording) is the share
outside operators. Waiting uses no processor time, so the schedule's idle time does not count, nor what other programs
take. Prints JSON lines; see README.md.
"""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

BINARY = pathlib.Path(os.environ.get("TROUPE_BINARY", "build/release/troupe")).resolve()
JOB = pathlib.Path("configs/demo.toml").resolve()
FEW, MANY, ROUNDS = 5, 35, 3
OPERATORS = (" F ", " B ", "optimizer")
LAYOUT = 'parallel.pipelines=[{stages=[{node=0,vision="all",audio="all",llm=[0,5]},{node=1,llm=[5,10]}]}]'


def train(folder, data, steps):
    """(processor seconds of all processes, run folder) of one run."""
    run = pathlib.Path(folder) / f"run-{steps}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [str(BINARY), "train", str(JOB), f'data.sources=[{{json="{data}/samples.json"}}]', LAYOUT,
         "cluster.local_nodes=2", "modules.llm.config.num_hidden_layers=8", "modules.llm.config.hidden_size=192",
         "modules.llm.config.intermediate_size=512", "train.microbatches=4", "data.shuffle=false",
         f"train.steps={steps}", f"job.run_dir={run}"],
        check=True, stdout=subprocess.DEVNULL, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, run


def operators(run):
    """Slices of the trace in which operators ran. `tdur`: processor time of the device's thread, in us."""
    trace = json.loads((run / "trace.json").read_text(encoding="utf-8"))
    return [event for event in trace if event["ph"] == "X" and any(word in event["name"] + " " for word in OPERATORS)]


def seconds(slices):
    return sum(event["tdur"] for event in slices) / 1e6


def stage_ms(slices):
    """Forward and backward of one microbatch in a stage of the llm."""
    return sum(statistics.median(event["tdur"] for event in slices if kind in event["name"] + " " and "llm" in event["name"])
               for kind in (" F ", " B ")) / 1000


def main():
    with tempfile.TemporaryDirectory(prefix="troupe-step-") as folder:
        data = pathlib.Path(folder) / "data"
        subprocess.run([str(BINARY), "data", "make", str(data)], check=True, stdout=subprocess.DEVNULL)
        train(folder, data, 1)  # Leaves a profile of the layers beside the runs.
        shares, stages = [], []
        for _ in range(ROUNDS):
            few_cpu, few = train(folder, data, FEW)
            many_cpu, many = train(folder, data, MANY)
            cpu = many_cpu - few_cpu
            shares.append(100 * (1 - (seconds(operators(many)) - seconds(operators(few))) / cpu))
            stages.append(stage_ms(operators(many)))
    print(json.dumps({"measure": "step: processor time outside operators", "value": round(statistics.median(shares), 2),
                      "unit": "%", "bound": 2, "better": "lower",
                      "size": f"2 stages of {statistics.median(stages):.0f} ms, {MANY - FEW} steps x 4 microbatches"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
