"""Layouts of the parity test: overrides of its job that place the same model in other ways, and that change the place
while the job runs."""

import sys
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from recorded_runs import read_lines

THREE_STAGES = (
    "parallel.pipelines=[{stages=["
    '{node=0,vision=[0,3],audio="all"},{node=1,vision=[3,6],llm=[0,2]},{node=1,llm=[2,7]}]},'
    '{stages=[{node=2,vision="all"},{node=3,audio="all",llm=[0,4]},{node=2,llm=[4,7]}]}]'
)

# Two executors in each of two processes.
TWO_DEVICES = [
    "cluster.local_nodes=2", "cluster.devices_per_node=2",
    "parallel.pipelines=[{stages=["
    '{node=0,device=0,vision=[0,3],audio="all"},{node=0,device=1,vision=[3,6],llm=[0,2]},{node=1,device=0,llm=[2,7]}]},'
    '{stages=[{node=1,device=1,vision="all"},{node=0,device=1,audio="all",llm=[0,4]},{node=1,device=1,llm=[4,7]}]}]',
]

BOTH = '"vision","audio"'
ENCODERS = '{node=N,vision="all",audio="all"}'
LLM = '{node=N,llm="all"}'
LLM_CUT = "{node=N,llm=[0,3]},{node=N,llm=[3,7]}"


def replica_tables(*groups):
    """`replicas=[...]` of a layout in which each group has its own number of replicas, a node for each, and how many
    nodes that takes. A group is the text of `modules` and one of `stages` per replica, in which N is the node."""
    tables, node = [], 0
    for modules, *replicas in groups:
        for stages in replicas:
            for _ in range(stages.count("N")):
                stages = stages.replace("N", str(node), 1)
                node += 1
            tables.append(f"{{modules=[{modules}],stages=[{stages}]}}")
    return f"replicas=[{','.join(tables)}]", node


def by_replicas(*groups):
    tables, nodes = replica_tables(*groups)
    return [f"parallel.{tables}", "parallel.pipelines=[]", f"cluster.local_nodes={nodes}"]


REPLICAS = {
    "3-2": by_replicas((BOTH, *[ENCODERS] * 3), ('"llm"', LLM, LLM)),
    "1-4": by_replicas((BOTH, ENCODERS), ('"llm"', *[LLM] * 4)),
    "5-3": by_replicas((BOTH, *[ENCODERS] * 5), ('"llm"', *[LLM] * 3)),
    # Vision twice, audio once, the llm three times, once in two stages.
    "2-1-3": by_replicas(('"vision"', *['{node=N,vision="all"}'] * 2), ('"audio"', '{node=N,audio="all"}'),
                         ('"llm"', LLM_CUT, LLM, LLM)),
}

# Six changes: down to one node, up again with other cuts, other devices of the same nodes, replicas per module, a node
# that was away comes back to layers that it never had.
CHANGES = {
    4: 'pipelines=[{stages=[{node=1,vision="all",audio="all",llm="all"}]}]',
    9: 'pipelines=[{stages=[{node=3,vision=[0,2],audio="all"},{node=2,vision=[2,6],llm=[0,2]},{node=1,llm=[2,7]}]}]',
    14: 'pipelines=[{stages=[{node=0,vision="all",audio="all",llm="all"}]},'
        '{stages=[{node=3,device=1,vision="all",audio="all",llm=[0,4]},{node=3,device=0,llm=[4,7]}]}]',
    19: replica_tables((BOTH, ENCODERS), ('"llm"', LLM, LLM_CUT))[0],
    23: replica_tables((BOTH, ENCODERS, ENCODERS), ('"llm"', LLM))[0],
    27: 'pipelines=[{stages=[{node=2,vision="all",audio="all",llm=[0,3]},{node=0,llm=[3,7]}]},'
        '{stages=[{node=1,vision="all",audio="all"},{node=3,device=1,llm="all"}]}]',
}
CHANGING_STEPS = 30
CHANGING_BATCH = 12
CHANGING = [
    "train.dtype=fp64", f"train.global_batch_size={CHANGING_BATCH}", "cluster.local_nodes=4", "cluster.devices_per_node=2",
    "debug.layouts=[" + ",".join(f"{{from_step={step},{layout}}}" for step, layout in CHANGES.items()) + "]",
]


def faults_of_changes(run):
    """Whether each step was trained on the layout that the job file names for it."""
    faults = []
    for line in read_lines(run / "iterations.jsonl"):
        expected = 1 + sum(line["step"] >= step for step in CHANGES)
        if line["epoch_number"] != expected:
            faults.append(f"step {line['step']} ran on layout {line['epoch_number']} instead of {expected}")
    kept = sorted(path.name for path in run.glob("plan*.json"))
    if kept != sorted(["plan.json", *(f"plan-{n + 1}.json" for n in range(len(CHANGES)))]):
        faults.append(f"plans of the run: {', '.join(kept)}")
    return faults
