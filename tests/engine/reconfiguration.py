"""The published cases of reconfiguration (shared reference, cases.md) on live jobs of 14 node processes, and of 28 devices;
one more of 40 node processes.

    reconfiguration.py BINARY [CASE...]     prints `N passed, M failed, K skipped` last
    reconfiguration.py --record FILE        a line of JSON for each case is appended there (kept_records.py)

A job begins on pipelines of 2, 3, 4 and 5 nodes (or of twice as many devices), the nodes of a case are killed at once, and it
goes on: on all nodes that are left, with copies of every layer on as many nodes as the job promises, equal to its reference.
Which pipelines they form is the choice of the lowest predicted loss (actors/README.md), not the table's, and is printed; what the
rules of the table themselves give is tests/scheduler/reconfigure.test.cpp's. In one job the cases follow one another, and nodes join
again: the promise is held against the layout of each generation.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import signal
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "engine")]

import kept_records  # noqa: E402
from recovery import Bench, join, slowest_phases  # noqa: E402
from tests.support.recorded_runs import read_lines  # noqa: E402
from tests.support.run_cases import expect, run_cases  # noqa: E402

LAYERS = 11  # Of the llm, with its first and last one.
MODEL = [f"modules.llm.config.num_hidden_layers={LAYERS - 2}"]
STEPS, IN_A_ROW = 8, 150  # Nodes that join take some seconds, beside thirteen others.
# Where the llm is cut, by the number of stages that have a part of it. Layer 6 is a border in most, so that the ends of
# different pipelines can make a whole.
CUTS = {1: [0, 11], 2: [0, 6, 11], 3: [0, 4, 8, 11], 4: [0, 3, 6, 9, 11], 5: [0, 2, 4, 6, 8, 11], 7: [0, 1, 2, 4, 6, 8, 9, 11],
        9: [0, 1, 2, 3, 4, 6, 7, 8, 9, 11]}
PIPELINES = [range(0, 2), range(2, 5), range(5, 9), range(9, 14)]
FORTY = [range(first, first + 4) for first in range(0, 40, 4)]
WIDE = ["train.global_batch_size=40"]  # A sample for every microbatch of twenty pipelines.


def layout(per_node, pipelines=PIPELINES):
    """Pipelines of ranks; node r // per_node has rank r."""
    tables = []
    for nodes in pipelines:
        ranks = [rank for node in nodes for rank in range(node * per_node, (node + 1) * per_node)]
        count = len(ranks)
        place = [f"node={rank // per_node},device={rank % per_node}" for rank in ranks]
        if count == 2:  # The encoders share a device with the llm's first part.
            stages = [f'{{{place[0]},vision="all",audio="all",llm=[0,6]}}', f"{{{place[1]},llm=[6,11]}}"]
        else:
            cuts = CUTS[count - 1]
            stages = [f'{{{place[0]},vision="all",audio="all"}}']
            stages += [f"{{{place[i + 1]},llm=[{cuts[i]},{cuts[i + 1]}]}}" for i in range(count - 1)]
        tables.append(f"{{stages=[{','.join(stages)}]}}")
    return [f"parallel.pipelines=[{','.join(tables)}]", f"cluster.local_nodes={pipelines[-1].stop}", f"cluster.devices_per_node={per_node}"]


class DeepBench(Bench):
    """With a model of enough layers for the longest pipeline."""

    def on(self, device):
        if MODEL[0] not in self.job:
            # Fourteen nodes share two cores; a killed one is noticed by its connection.
            self.job += [*MODEL, *layout(1), "cluster.heartbeat_timeout_s=20"]  # The layout of the job file is of fewer layers.
        return super().on(device)


def nodes_with_work(plan):
    return {plan["devices"][device]["node"] for stage in plan["stages"] for device in stage["devices"]}


def copies_of_layers(plan):
    """How many nodes have each layer: {(module, layer): count}."""
    nodes = collections.defaultdict(set)
    for stage in plan["stages"]:
        for run in stage["runs"]:
            for layer in range(*run["layers"]):
                nodes[run["module"], layer] |= {plan["devices"][device]["node"] for device in stage["devices"]}
    for standby in plan["standbys"]:
        if not standby["tied"]:
            nodes[standby["module"], standby["layer"]].add(plan["devices"][standby["device"]]["node"])
    return {layer: len(own) for layer, own in nodes.items()}


def check_layout(plan, left, tolerance):
    """All nodes that are left work, and each layer is on as many as the job promises; returns on how many at least."""
    expect(nodes_with_work(plan) == left, f"nodes with work: {sorted(nodes_with_work(plan))}, there are {sorted(left)}")
    copies = copies_of_layers(plan)
    expect(sum(module == "llm" for module, _ in copies) == LAYERS, f"layers: {sorted(copies)}")
    fewest = min(copies.values())
    expect(fewest >= tolerance + 1, f"layers on {fewest} nodes alone, {tolerance} may be lost: {copies}")
    return fewest


def plan_of(job, generation):
    """The plan of a layout that the job had: the newest one's has no number."""
    older = job.run / f"plan-{generation}.json"
    plan = json.loads((older if older.exists() else job.run / "plan.json").read_text(encoding="utf-8"))
    expect(plan["epoch_number"] == generation, f"the plan of generation {generation} is that of {plan['epoch_number']}")
    return plan


def goes_on_without(bench, lost, tolerance, per_node=1, pipelines=PIPELINES, batch=()):
    nodes = pipelines[-1].stop
    job = bench.start(f"{nodes}-without-{'-'.join(map(str, lost))}-of-{per_node}", *layout(per_node, pipelines),
                      f"cluster.fault_tolerance={tolerance}", *batch, steps=STEPS)
    job.wait_for(2, within=400)
    for node in lost:
        job.signal(node, signal.SIGKILL)
    job.finish(within=400)
    bench.check(job, model=batch, steps=STEPS)
    plan = json.loads((job.run / "plan.json").read_text(encoding="utf-8"))
    fewest = check_layout(plan, set(range(nodes)) - set(lost), tolerance)
    told = sorted({node for event in job.events() for node in event["nodes"]})
    expect(told == sorted(lost), f"lost, as told: {told}")
    pipelines = collections.defaultdict(list)
    for stage in plan["stages"]:
        node = plan["devices"][stage["devices"][0]]["node"]
        if node not in pipelines[stage["pipeline"]]:
            pipelines[stage["pipeline"]].append(node)
    bench.numbers |= {"nodes": nodes, "lost": lost, "steps": STEPS, "copies": fewest, "slowest_ms": slowest_phases(job)}
    print(f"  lost {lost}: {sorted(pipelines.values(), key=len)}, each layer on {fewest} nodes at least", flush=True)


def one_of_a_pipeline_of_three(bench):
    goes_on_without(bench, [2], 1)


def two_of_a_pipeline_of_four(bench):
    goes_on_without(bench, [6, 8], 1)


def one_of_the_shortest(bench):
    goes_on_without(bench, [1], 1)


def more_than_half_of_two_pipelines(bench):
    goes_on_without(bench, [1, 3, 4], 1)


def all_but_three(bench):
    """Only the ends of two pipelines are left, and are a whole."""
    goes_on_without(bench, list(range(1, 12)), 0)


def one_of_fourteen_with_two_devices(bench):
    goes_on_without(bench, [3], 1, per_node=2)


def the_shortest_loses_one_of_two_devices_each(bench):
    goes_on_without(bench, [1], 1, per_node=2)


def the_cases_one_after_the_other_and_back(bench):
    """What one case leaves is where the next begins: 2, then 6 and 8, then 1; then two nodes join."""
    job = bench.start("in-a-row", *layout(1), "cluster.fault_tolerance=1", steps=IN_A_ROW)
    step, joiners = 2, []
    for lost in ([2], [6, 8], [1]):
        job.wait_for(step, within=400)
        for node in lost:
            job.signal(node, signal.SIGKILL)
        step = job.steps() + 3
    job.wait_for(step, within=400)
    for count in (1, 2):
        joiners.append(join(bench, job))
        deadline = time.monotonic() + 200
        while sum(len(event["nodes"]) for event in job.events("joined")) < count:
            expect(job.process.poll() is None and time.monotonic() < deadline, "a node does not come in")
            time.sleep(0.1)
    job.finish(within=600)
    for node in joiners:
        node.communicate(timeout=30)
    bench.check(job, steps=IN_A_ROW)
    left, fewest = set(range(PIPELINES[-1].stop)), []
    for generation, events in itertools.groupby(read_lines(job.run / "events.jsonl"), key=lambda event: event["generation"]):
        for event in events:
            expect(event["kind"] in ("lost", "joined"), f"another event: {event}")
            left = left - set(event["nodes"]) if event["kind"] == "lost" else left | set(event["nodes"])
        fewest.append(check_layout(plan_of(job, generation), left, 1))
    expect(len(fewest) >= 5, f"{len(fewest)} layouts came up behind the first")
    expect(len(left) == PIPELINES[-1].stop - 2, f"nodes at the end: {sorted(left)}")
    bench.numbers |= {"nodes": PIPELINES[-1].stop, "layouts": len(fewest), "steps": IN_A_ROW, "copies": min(fewest), "slowest_ms": slowest_phases(job)}
    print(f"  in a row: {len(fewest)} layouts, each layer on {fewest} nodes at least", flush=True)


def nine_of_forty(bench):
    """Two in the same pipeline, the whole of another, one of three more."""
    goes_on_without(bench, [1, 2, 8, 9, 10, 11, 17, 30, 39], 2, pipelines=FORTY, batch=WIDE)


CASES = [one_of_a_pipeline_of_three, two_of_a_pipeline_of_four, one_of_the_shortest, more_than_half_of_two_pipelines, all_but_three,
         one_of_fourteen_with_two_devices, the_shortest_loses_one_of_two_devices_each, the_cases_one_after_the_other_and_back, nine_of_forty]


def read_arguments(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("cases", nargs="*")
    kept_records.add_argument(parser)
    return parser.parse_args(words)


def main():
    arguments = read_arguments(sys.argv[1:])
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    binary = arguments.binary.resolve()
    keeper = kept_records.Keeper(arguments.record, sys.argv, binary)
    with tempfile.TemporaryDirectory(prefix="troupe-reconfiguration-") as folder:
        bench = DeepBench(binary, pathlib.Path(folder))
        return run_cases([case for case in CASES if not arguments.cases or any(word in case.__name__ for word in arguments.cases)],
                         lambda case: keeper.keep_case(bench, case))


if __name__ == "__main__":
    sys.exit(main())
