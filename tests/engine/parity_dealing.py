"""Who gets which sample of a batch, and what becomes of samples that lengths or content show to be bad."""

import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from parity_data import rows_and_tones
from recorded_runs import read_lines

# Two pipelines that are cut alike: who shares work out evenly gives both the same.
ALIKE = ("parallel.pipelines=[" + ",".join(
    f'{{stages=[{{node={node},vision="all",audio="all"}},{{node={node + 1},llm="all"}}]}}' for node in (0, 2)) + "]")

# One that encodes nothing, so that its llm alone reads the text, and replicas that share two encoders.
DAMAGED_LAYOUTS = {
    "pipelines": [],
    "replicas": ["parallel.pipelines=[]", "cluster.local_nodes=4", "parallel.replicas=[" + ",".join(
        f'{{modules=[{modules}],stages=[{{node={node},{layers}}}]}}' for node, (modules, layers) in enumerate(
            [('"vision","audio"', 'vision="all",audio="all"')] * 2 + [('"llm"', 'llm="all"')] * 2)) + "]"],
}


def trained_by_llms(run):
    """Per step, per llm replica: places of its samples in the batch."""
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    llms = [i for i, replica in enumerate(plan["replicas"]) if replica["group"] == len(plan["module_groups"]) - 1]
    return [[sorted(sample for microbatch in line["replicas"][i] for part in microbatch for sample in part) for i in llms]
            for line in read_lines(run / "iterations.jsonl")]


def rows_by_llm(run, samples):
    """Per step, per llm replica: rows of its samples."""
    rows = {sample["id"]: rows_and_tones(sample)[0] for sample in samples}
    return [[sum(rows[ids[place]] for place in share) for share in shares]
            for ids, shares in zip((line["ids"] for line in read_lines(run / "samples.jsonl")), trained_by_llms(run))]


def unevenness(run, samples):
    """Per step: rows of the llm replica that has most over their mean."""
    return [max(sums) / statistics.mean(sums) for sums in rows_by_llm(run, samples)]


def faults_of_counts(run):
    """Dealt by count to pipelines that are alike: contiguous runs, as long as each other but for one."""
    faults = []
    for step, shares in enumerate(trained_by_llms(run), 1):
        runs = all(share == list(range(share[0], share[0] + len(share))) for share in shares)
        if not runs:
            faults.append(f"step {step}: {shares} are no contiguous runs")
    return faults


def faults_of_dropped(run, oracle, damaged):
    """Both dropped the same samples, and all that are damaged and came up."""
    dropped = [sorted(line["id"] for line in read_lines(folder / "bad_samples.jsonl")) for folder in (run, oracle)]
    if dropped[0] != dropped[1]:
        return [f"the run dropped {dropped[0]}, the reference {dropped[1]}"]
    trained = {identity for line in read_lines(run / "samples.jsonl") for identity in line["ids"]}
    faults = [f"damaged samples were trained: {sorted(trained & damaged)}"] if trained & damaged else []
    kinds = {line["kind"] for line in read_lines(run / "bad_samples.jsonl")}
    if len(kinds) < 2:  # One that its header shows, and one that only decoding finds.
        faults.append(f"only samples of kind {kinds} were dropped")
    return faults
