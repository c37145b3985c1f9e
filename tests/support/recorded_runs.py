"""What a run recorded: lines of JSON, and its plans as pipelines of encoders and an llm."""

import json
import struct


def read_safetensors(path):
    """{name: (dtype, bytes)} of a file of tensors."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        body = file.read()
    return {name: (entry["dtype"], body[slice(*entry["data_offsets"])]) for name, entry in header.items() if name != "__metadata__"}


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_lines_so_far(path):
    """Of a run that may be writing now: a line that crosses a page of the file can be seen before its end is there.
    None where there is no file yet."""
    try:
        whole = path.read_bytes().rpartition(b"\n")[0]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in whole.splitlines()]


def read_iterations(run):
    """iterations.jsonl. Each line has besides, under `pipelines`, the `encoder` and `llm` microbatches of every pipeline
    that has one replica of each module group (`encoder` is the llm's where the model has no other group)."""
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    groups = len(plan["module_groups"])
    whole = [pipeline["replicas"] for pipeline in plan["pipelines"] if len(pipeline["replicas"]) == groups]
    lines = read_lines(run / "iterations.jsonl")
    for line in lines:
        line["pipelines"] = [{"encoder": line["replicas"][replicas[0]], "llm": line["replicas"][replicas[-1]]}
                             for replicas in whole]
    return lines


def sample_of(line, unit):
    """The sample that a number in a part stands for: behind the samples come pieces of some."""
    return unit if unit < len(line["ids"]) else line["pieces"][unit - len(line["ids"])][0]


def read_llm_shares(run):
    """Per step: how many samples each llm replica trained."""
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    llms = [i for i, replica in enumerate(plan["replicas"]) if replica["group"] == len(plan["module_groups"]) - 1]
    return [[sum(len(part) for microbatch in line["replicas"][i] for part in microbatch) for i in llms]
            for line in read_lines(run / "iterations.jsonl")]
