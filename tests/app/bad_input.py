#!/usr/bin/python3
"""A table of mistakes: each makes its own input, runs the binary, and must be told what, where, why and the fix.

    bad_input.py TROUPE [NAME...]    TROUPE: the binary; NAME: only these rows

Every row: the exit code, an error of at most five lines on stderr (`validate`, which prints all problems, may take two
per problem), nothing on stdout that looks like a result, and every text of `says`. No row may take a minute.
"""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

JOB = """\
[job]
name = "small"
[modules.vision]
kind = "encoder"
family = "qwen2-vl"
[modules.vision_projector]
kind = "projector"
[modules.llm]
kind = "llm"
[[data.sources]]
json = "samples.json"
[train]
steps = 2
global_batch_size = 4
microbatches = 2
"""

LAYOUT = JOB + """\
[cluster]
local_nodes = 2
[[parallel.pipelines]]
stages = [{node = 0, vision = "all"}, {node = 1, llm = "all"}]
"""

THREE_RANKS = JOB + """\
[cluster]
local_nodes = 1
devices_per_node = 3
[[parallel.pipelines]]
stages = [{ node = 0, vision = "all", devices = [0] }, { node = 0, llm = "all", devices = [0, 1, 2], tp = 3 }]
"""


CIRCLES = """\
[cluster]
local_nodes = 2
[parallel]
pipelines = [
  {stages = [{node = 0, vision = [0, 1], vision_projector = "all"}, {node = 1, vision = [1, 6], llm = "all"}]},
  {stages = [{node = 1, vision = [0, 1], vision_projector = "all"}, {node = 0, vision = [1, 6], llm = "all"}]},
]
"""


def sample(identity="a", text="hi", answer="ho", **more):
    return {"id": identity, **more,
            "conversations": [{"from": "human", "value": text}, {"from": "gpt", "value": answer}]}


def data_set(*samples):
    return json.dumps(list(samples))


GOOD = data_set(*[sample(f"s{i}") for i in range(8)])


@dataclass
class Row:
    name: str
    command: list
    code: int
    says: list
    files: dict = field(default_factory=dict)
    stdin: str = ""


def validate(name, says, job=JOB, overrides=(), code=2, files=None):
    return Row(name, ["validate", "job.toml", *overrides], code, says, {"job.toml": job, "samples.json": GOOD, **(files or {})})


# Two trillion parameters: refused at once, before a layer of it is measured.
HUGE = ["modules.llm.config={hidden_size=16384,num_hidden_layers=600,intermediate_size=65536,num_attention_heads=128}"]


def solve(name, problem, text, says):
    return Row(name, ["solve", problem], 2, says, stdin=text)


COMMAND_LINE = [
    Row("no command", [], 2, ["subcommand is required", "troupe --help"]),
    Row("unknown command", ["trian", "job.toml"], 2, ["no command is called 'trian'", "fix:"]),
    Row("unknown flag", ["validate", "job.toml", "--jsn"], 2, ["--jsn", "troupe validate --help"]),
    Row("near miss of a flag", ["train", "job.toml", "--refernce"], 2, ["has no flag '--refernce'", "did you mean --reference?"]),
    Row("near miss of a flag before what is missing", ["train", "--refernce"], 2, ["has no flag '--refernce'", "did you mean --reference?"]),
    Row("flag with one dash", ["plan", "job.toml", "-json"], 2, ["has no flag '-json'", "did you mean --json?"]),
    Row("near miss of a command", ["trian"], 2, ["did you mean `troupe train`?"]),
    Row("near miss of a command below one", ["data", "chek", "job.toml"], 2, ["`troupe data` has no command 'chek'", "did you mean `troupe data check`?"]),
    Row("near miss of a command behind a run", ["ctl", "runs/a", "drian", "1"], 2, ["`troupe ctl` has no command 'drian'", "did you mean `troupe ctl RUN drain`?"]),
    Row("command without its run", ["ctl", "stauts"], 2, ["subcommand is required", "did you mean `troupe ctl RUN status`?"]),
    Row("neither run nor command", ["ctl"], 2, ["RUN is required", "`troupe ctl --help` lists the commands"]),
    Row("run without a command", ["ctl", "runs/a"], 2, ["subcommand is required", "`troupe ctl --help` lists the commands"]),
    Row("drain without a node", ["ctl", "runs/a", "drain"], 2, ["NODE is required", "`troupe ctl drain --help` shows"]),
    Row("drain of no number", ["ctl", "runs/a", "drain", "1.5"], 2, ["NODE = 1.5", "`troupe ctl drain --help` shows"]),
    Row("layout without a file", ["ctl", "runs/a", "layout"], 2, ["FILE is required", "`troupe ctl layout --help` shows"]),
    Row("near miss of a flag behind a run", ["ctl", "runs/a", "status", "--jsn"], 2, ["`troupe ctl status` has no flag '--jsn'", "did you mean --json?"]),
    Row("job instead of a command", ["job.toml"], 2, ["no command is called 'job.toml'", "did you mean `troupe train job.toml`?"]),
    Row("export", ["export", "runs/a"], 2, ["no command is called 'export'", "fix: none is needed: model/model.safetensors"]),
    Row("generate", ["generate", "runs/a"], 2, ["no command is called 'generate'", "fix: Troupe trains alone"]),
    Row("help of no command", ["help", "trian"], 2, ["no command is called 'trian'", "did you mean `troupe train`?"]),
    Row("help of no command below one", ["help", "data", "chek"], 2, ["did you mean `troupe data check`?"]),
    Row("help of no key", ["help", "keys", "train.stepps"], 2, ["'train.stepps' is no key or section of a job file", "did you mean train.steps?"]),
    Row("key with dashes", ["train", "job.toml", "--train.steps=10"], 2, ["has no flag '--train.steps=10'", "did you mean train.steps=10?"]),
    Row("key with dashes and a space", ["train", "job.toml", "--train.steps", "10"], 2, ["did you mean train.steps=10?"]),
    Row("key with dashes and a typo", ["plan", "job.toml", "--train.step=10"], 2, ["did you mean train.steps=10?"]),
    Row("key with dashes of a module", ["validate", "job.toml", "--modules.vision.freze=true"], 2, ["did you mean modules.vision.freeze=true?"]),
    Row("key of nothing with dashes", ["train", "job.toml", "--lora=8"], 2, ["has no flag '--lora=8'", "have no dashes: there are no low-rank adapters"]),
    Row("key with dashes without its section", ["train", "job.toml", "--steps=10"], 2, ["did you mean train.steps=10?"]),
    Row("flag that is near nothing", ["train", "job.toml", "--qqqqqqqq"], 2, ["has no flag '--qqqqqqqq'", "troupe train --help"]),
    Row("missing argument", ["validate"], 2, ["JOB is required", "troupe validate --help"]),
    Row("balance without a policy", ["balance", "job.toml"], 2, ["--policy is required", "--help"]),
    Row("compare without runs", ["compare", "one"], 2, ["RUN_B is required", "--help"]),
    Row("compare missing runs", ["compare", "one", "two"], 2, ["one", "fix:"]),
    Row("negative tolerance", ["compare", "one", "two", "--rtol", "-1"], 2, ["--rtol", "--help"]),
    Row("unknown norm", ["compare", "one", "two", "--norm", "l3"], 2, ["--norm", "l3"]),
]

JOB_FILE = [
    Row("missing job file", ["validate", "nowhere.toml"], 2, ["nowhere.toml: no such job file", "fix:"]),
    Row("job file is a folder", ["validate", "."], 2, ["not a file", "fix:"]),
    validate("not TOML", ["job.toml:2: not TOML", "fix:"], job="[job]\nname = \n"),
    validate("duplicate key", ["job.toml:3", "not TOML"], job="[job]\nname = \"a\"\nname = \"b\"\n"),
    validate("binary job file", ["job.toml:1", "beyond ASCII"], job="\u0000\u00e9\u0001"),
    validate("unknown key", ["job.toml:16: train.stepz: unknown key", "did you mean train.steps?"], job=JOB + "stepz = 3\n"),
    validate("unknown section", ["job.toml:16: trian: unknown key", "did you mean train?"], job=JOB + "[trian]\nsteps = 3\n"),
    validate("foreign key", ["unknown key", "parallel.llm.tp"], job=JOB + "[parallel.llm]\ntensor_model_parallel_size = 2\n"),
    validate("near miss of a key", ["command line: train.step: unknown key", "did you mean train.steps?"], overrides=["train.step=10"]),
    validate("near miss of a module", ["modules.vison: kind is missing", "did you mean modules.vision?"], overrides=["modules.vison.freeze=true"]),
    validate("key of another section", ["train.lr: unknown key", "lr?"], overrides=["train.lr=0.1"]),
    validate("wrong type", ["command line: train.global_batch_size: expected an integer, found the string", "fix:"], overrides=["train.global_batch_size=many"]),
    validate("negative count", ["train.global_batch_size: -4 is out of range", "from 1 to"], overrides=["train.global_batch_size=-4", "train.microbatches=1"]),
    validate("not a number", ["optimizer.lr: nan is out of range", "fix:"], overrides=["optimizer.lr=nan"]),
    validate("two durations", ["steps, epochs", "exactly one"], overrides=["train.steps=1", "train.epochs=1"]),
    validate("no duration", ["how long to train is missing", "exactly one"], overrides=["train={}"]),
    validate("batch below microbatches", ["train.microbatches 9 is more than train.global_batch_size 4", "fix:"], overrides=["train.microbatches=9"]),
    validate("unknown dtype", ["'fp23' is not one of fp32, bf16, fp64", "did you mean \"fp32\"?"], overrides=["train.dtype=fp23"]),
    validate("missing data file", ["data.sources[0].json", "nowhere.json is not there", "fix:"], overrides=["data.sources[0].json=nowhere.json"]),
    validate("no data", ["data.sources: no data", "[[data.sources]]"], overrides=["data.sources=[]"]),
    validate("unknown family", ["modules.llm.family", "'lama' is no family", "did you mean \"llama\"?"], overrides=["modules.llm.family=lama"]),
    validate("no llm", ["none of them is the llm", "kind = \"llm\""], overrides=["modules.llm.kind=projector"]),
    validate("two llms", ["both it and llm are the llm", "remove the other"], job=JOB + "[modules.other]\nkind = \"llm\"\n"),
    validate("cycle", ["a cycle: ", "lead to the llm"], job=JOB + "[modules.p]\nkind = \"projector\"\nnext = \"vision_projector\"\n", overrides=["modules.vision_projector.next=p", "modules.vision.next=llm"]),
    validate("all frozen", ["all are frozen", "freeze = false"], overrides=["modules.vision.freeze=true", "modules.vision_projector.freeze=true", "modules.llm.freeze=true"]),
    validate("heads", ["num_attention_heads: 6 does not divide hidden_size 128", "num_attention_heads = 8"], overrides=["modules.llm.config.num_attention_heads=6"]),
    validate("kv heads", ["num_key_value_heads: 3 does not divide num_attention_heads 4", "fix:"], overrides=["modules.llm.config.num_key_value_heads=3"]),
    validate("vision head width", ["no multiple of 4", "fix:"], overrides=["modules.vision.config.num_heads=32"]),
    validate("small vocabulary", ["vocab_size", "tokenizer's 320", "fix:"], overrides=["modules.llm.config.vocab_size=100"]),
    validate("pixel budget", ["data.max_pixels 100 holds not one merged patch", "at least 784"], overrides=["data.max_pixels=100", "data.min_pixels=1"]),
    validate("node out of range", ["stages[1].node: 5, but the job has 2 nodes", "fix:"], job=LAYOUT, overrides=["parallel.pipelines[0].stages[1].node=5"]),
    validate("more losses than nodes leave", ["cluster.fault_tolerance: to keep everything through the loss of 2 nodes takes holders on 3 nodes; there are 2", "nearest choice: cluster.fault_tolerance = 1"], job=LAYOUT, overrides=["cluster.fault_tolerance=2"]),
    validate("copies beyond memory", ["cluster.device_memory_gib: parameters, gradients and optimizer of device 0 of node 0 take", "or lower cluster.fault_tolerance"], job=LAYOUT, overrides=["cluster.fault_tolerance=1", "cluster.device_memory_gib=0.001"]),
    validate("layer gap", ["layer 5 of llm is on no stage|llm has 6 layers", "fix:"], job=LAYOUT, overrides=["parallel.pipelines[0].stages[1].llm=[0, 5]"]),
    validate("layer twice", ["layer 0 of vision is on two stages", "fix:"], job=LAYOUT, overrides=["parallel.pipelines[0].stages[1].vision=[0, 6]"]),
    validate("idle device", ["no stage on device 1 of node 0", "fix:"], job=LAYOUT, overrides=["cluster.devices_per_node=2"]),
    validate("bad listen address", ["cluster.listen: 'here' is no HOST:PORT", "fix:"], overrides=["cluster.listen=here"]),
    validate("override without value", ["'train.steps' is no key.path=value", "train.steps=10"], overrides=["train.steps"]),
    validate("a typo and a size that the model refuses", ["train.stepz: unknown key", "modules.llm.config.head_dim", "data.min_pixels", "data.max_pixels", "4 problems"], overrides=["train.stepz=1", "modules.llm.config.head_dim=7", "data.max_pixels=1"]),
    validate("override below a value", ["job.name.x", "has no keys"], overrides=["job.name.x=1"]),
    validate("extends nowhere", ["job.toml:1: extends: ", "no such job file", "fix:"], job="extends = \"base.toml\"\n" + JOB),
    validate("extends in a circle", ["a cycle: job.toml -> base.toml -> job.toml", "fix:"], job="extends = \"base.toml\"\n" + JOB, files={"base.toml": "extends = \"job.toml\"\n"}),
    validate("unknown policy", ["balancer.policy: 'in-oder' is not one of", "did you mean \"in-order\"?"], overrides=["balancer.policy=in-oder"]),
    validate("hugging face weights", ["modules.llm.hf", "not there yet", "fix:"], overrides=["modules.llm.hf=Qwen/Qwen2-0.5B"]),
    validate("several for the planner at once", ["job.toml:20: parallel.pipelines[0]: stages 0, 1 wait", "job.toml:21: parallel.pipelines[1]: stages 0, 1 wait", "2 problems"], job=JOB + CIRCLES),
    validate("several at once", ["train.steps: expected an integer", "optimizer.lr: expected a number", "2 problems"], overrides=["train.steps=x", "optimizer.lr=x"]),
]

MEDIA_JOB = JOB.replace("[train]", """[modules.audio]
kind = "encoder"
family = "whisper"
[modules.audio_projector]
kind = "projector"
[data]
max_seq_len = 300
[train]""")


def png(width=4, height=4):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + b"\x80" * (3 * width) for _ in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def wav(samples=1600):
    body = b"\0\0" * samples
    return (b"RIFF" + struct.pack("<I", 36 + len(body)) + b"WAVEfmt "
            + struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16) + b"data" + struct.pack("<I", len(body)) + body)


def data(name, says, *samples, text=None, files=None, job=MEDIA_JOB):
    """`data check` must end with code 3 and name the sample."""
    content = text if text is not None else data_set(sample("good"), *samples)
    return Row(name, ["data", "check", "job.toml"], 3, says, {"job.toml": job, "samples.json": content, **(files or {})})


DEEP = "[" * 100_000 + "]" * 100_000
FIVE_GIGABYTES = "five-gigabytes.png"  # A file of this name is made that long, of nothing but holes.


def train(name, code, says, overrides=(), samples=GOOD, job=JOB):
    return Row(name, ["train", "job.toml", *overrides], code, says, {"job.toml": job, "samples.json": samples})


def plan(name, says, overrides=(), code=2, job=JOB, samples=GOOD, command="plan"):
    return Row(name, [command, "job.toml", *overrides], code, says, {"job.toml": job, "samples.json": samples})


CLUSTER = ["--cluster", "2x4xH100-80G"]
PLAN = [
    plan("cluster of no form", ["--cluster 2x8", "4x8xH100-80G"], ["--cluster", "2x8"]),
    plan("cluster of no nodes", ["'0' is no number", "fix:"], ["--cluster", "0x8xH100-80G"]),
    plan("cluster of no number", ["'two' is no number", "fix:"], ["--cluster", "twox8xH100-80G"]),
    plan("cluster without end", ["more than 100,000 devices", "fix:"], ["--cluster", "99999x99999xH100-80G"]),
    plan("unknown device", ["no device is called 'H101'", "A100-40G", "fix:"], ["--cluster", "2x8xH101"]),
    plan("layer larger than a device", ["layer llm.|alone needs", "nearest choice: devices of"], ["modules.llm.config.vocab_size=60000000", "modules.llm.config.hidden_size=2048", *CLUSTER]),
    plan("contradictory pins", ["parallel.vision.dp = 2 and parallel.vision_projector.dp = 3", "exclude each other: an encoder and its projector have replicas together", "nearest choice"], ["parallel.vision.dp=2", "parallel.vision_projector.dp=3", *CLUSTER]),
    plan("encoder pins that exclude each other", ["parallel.audio.tp = 4 and parallel.vision.tp = 2 exclude each other", "nearest choice: parallel.vision.tp = 4"], ["parallel.vision.tp=2", "parallel.audio.tp=4", *CLUSTER], job=MEDIA_JOB),
    plan("encoder pins without a common profile", ["parallel.vision.tp = 8 and parallel.vision_projector.cp = 2", "nearest choice: one of tp 1 cp 1"], ["parallel.vision.tp=8", "parallel.vision_projector.cp=2", "modules.vision.config.num_heads=8", "--cluster", "1x16xH100-80G"]),
    plan("stages wider than the devices", ["a pipeline takes at least 3 devices, there are 2", "nearest choice: 3 devices"], ["parallel.llm.tp=2", "parallel.vision.tp=1", "--cluster", "1x2xH100"]),
    plan("wide stages in too many pipelines", ["2 pipelines take at least 18 devices, there are 16", "nearest choice: dp = 1"], ["parallel.llm.tp=8", "parallel.llm.dp=2", "parallel.vision.tp=1", "modules.llm.config.num_attention_heads=8", "--cluster", "2x8xH100"]),
    plan("more stages than wide ones fit", ["parallel.llm.pp = 5", "nearest choice: parallel.llm.pp = "], ["parallel.llm.tp=2", "parallel.llm.pp=5", "--cluster", "1x3xH100"]),
    plan("pins beyond the devices", ["parallel.llm.pp = 6", "nearest choice: parallel.llm.pp = "], ["parallel.llm.pp=6"]),
    plan("unknown policy of balance", ["--policy", "did you mean `deferral`?"], ["--policy", "defferal"], command="balance"),
    plan("degrees that cut heads", ["tensor parallel 3 does not divide llm.block heads = 4", "nearest choice: one of 1, 2, 4"], job=THREE_RANKS),
    plan("degrees without a profile", ["no profile of llm at tp 3", "there is tp 1"], ["parallel.llm.tp=3", *CLUSTER]),
    plan("degrees beyond the node", ["leaves the node", "nearest choice"], ["parallel.llm.tp=16", *CLUSTER]),
    plan("more nodes than the job can use", ["more than the job can use", "nearest choice: "], ["cluster.local_nodes=90"]),
    plan("layout by hand to save", ["in the job file already", "fix:"], ["--save", "x.toml"], job=LAYOUT),
    plan("layout to save nowhere", ["no/x.toml", "cannot write"], ["--save", "no/x.toml"], code=1),
    plan("a million layers", ["num_hidden_layers", "out of range", "fix:"], ["modules.llm.config.num_hidden_layers=1000000"]),
    plan("more layers than layouts are searched for", ["layers", "at most 4096", "nearest choice: 40", "layers in llm"], ["modules.llm.config.num_hidden_layers=9000", *CLUSTER]),
    plan("no global batch", ["train.global_batch_size", "fix:"], ["train.global_batch_size=0", *CLUSTER]),
    plan("a learning rate that is no number is no plan", ["optimizer.lr", "fix:"], ["optimizer.lr=nan", *CLUSTER]),
    plan("devices without memory", ["device_memory_gib", "fix:"], ["cluster.device_memory_gib=-1"]),
    plan("a device too small for any layer", ["alone needs", "nearest choice: devices of"], ["cluster.device_memory_gib=0.000001", "cluster.local_nodes=2"]),
    plan("simulate no steps", ["--steps 0", "fix:"], ["--steps", "0"], command="simulate"),
    plan("simulate with noise without end", ["--noise", "fix:"], ["--noise", "nan"], command="simulate"),
    plan("simulate a failure of no form", ["--fail 1 is not NODE@MILLISECONDS"], ["--fail", "1"], command="simulate"),
    plan("simulate the failure of no node", ["no node 9", "fix:"], ["--fail", "9@10"], command="simulate"),
    plan("timeline of no kind", ["--timeline line.svg", ".html"], ["--timeline", "line.svg"], command="simulate"),
    plan("timeline to nowhere", ["/proc/line.html", "failed"], ["--timeline", "/proc/line.html"], code=1, command="simulate"),
    plan("simulate on no device", ["no device is called 'H101'", "fix:"], ["--cluster", "2x8xH101"], command="simulate"),
    plan("what if nothing happens", ["nothing is lost", "--lose 1"], command="whatif"),
    plan("what if a node is lost that is not there", ["no node '6'", "nodes of 0 to 1"], ["--lose", "0,6", "--cluster", "2x1xH100"], command="whatif"),
    plan("what if no number is lost", ["no node 'one'", "fix:"], ["--lose", "one"], command="whatif"),
    plan("what if a node is lost twice", ["node 1 twice", "fix:"], ["--lose", "1,1", "--cluster", "2x1xH100"], command="whatif"),
    plan("what if fewer than none join", ["--join", "fix:"], ["--join", "-1"], command="whatif"),
    plan("what if all are lost", ["--lose names all 2 nodes: none is left to go on", "fix: leave one out"], ["--lose", "0,1", "--cluster", "2x1xH100"], command="whatif"),
    plan("what if the last holder is lost", ["--lose", "llm.", "checkpoint"], ["--lose", "1", "parallel.llm.dp=1", "parallel.llm.pp=2", "--cluster", "2x1xH100"], command="whatif"),
    plan("a model larger than the cluster", ["needs", "nearest choice"], ["modules.llm.config.num_hidden_layers=80", "modules.llm.config.hidden_size=8192", "modules.llm.config.intermediate_size=28672", "modules.llm.config.num_attention_heads=64", "modules.llm.config.num_key_value_heads=8", "--cluster", "1x1xA40"]),
    plan("more failures than nodes", ["takes holders on 6 nodes; the cluster has 2", "nearest choice: cluster.fault_tolerance = 1"], ["cluster.fault_tolerance=5", *CLUSTER]),
    plan("several problems of a job to plan", ["train.steps", "1 more problems", "troupe validate job.toml"], ["train.steps=x", "optimizer.lr=x", *CLUSTER]),
    plan("no such cluster to simulate", ["--cluster", "fix:|--help"], ["--cluster", "-1x8xH100"], command="simulate"),
    plan("profile of no cluster", ["--cluster 2x8 ", "4x8xH100-80G"], ["--cluster", "2x8"], command="profile"),
    plan("degrees that divide no heads", ["tensor parallel 3 does not divide", "nearest choice"], ["--tp", "3", "--budget", "0.1"], command="profile"),
    plan("degrees below one", ["--tp", "--help"], ["--tp", "0"], command="profile"),
    plan("balance on no cluster", ["no device is called 'H101'", "fix:"], ["--policy", "random", "--cluster", "H101"], command="balance"),
    plan("no samples to plan from", ["samples.json", "no "], code=3, samples="[]"),
    plan("only bad samples to plan from", ["samples.json|sample", "fix:"], code=3, samples=data_set({"id": "b", "conversations": []})),
]

PROFILE = [
    plan("profile in no time", ["--budget is not above 0", "fix:"], ["--budget", "0"], command="profile"),
    plan("profile of no device", ["no device is called 'H101'", "fix:"], ["--cluster", "2x8xH101"], command="profile"),
    plan("profile to nowhere", ["/proc/none.json", "cannot"], ["--budget", "0.1", "--out", "/proc/none.json"], code=1, command="profile"),
    Row("profile without a job", ["profile", "nowhere.toml"], 2, ["nowhere.toml: no such job file", "fix:"]),
    Row("profile that is none", ["profile", "job.toml", "--out", "profile.json"], 3, ["profile.json", "fix:"],
        {"job.toml": JOB, "samples.json": GOOD, "profile.json": "{}"}),
]

TRAIN = [
    Row("train without a job", ["train", "nowhere.toml"], 2, ["nowhere.toml: no such job file", "fix:"]),
    Row("observe no run", ["observe", "nowhere"], 2, ["nowhere: no such run folder", "fix:"]),
    Row("observe by no key", ["observe", "127.0.0.1:9", "--key", "nowhere.key"], 2, ["nowhere.key", "fix:"]),
    Row("observe what is no kind", ["observe", "nowhere", "--kind", "colours"], 2, ["--kind", "colours", "rows,gradients,losses"]),
    Row("observe in no steps", ["observe", "nowhere", "--every", "0"], 2, ["--every", "0"]),
    Row("observe with nobody", ["observe", "nowhere", "--observer", "probe"], 2, ["no observer is called 'probe'", "fix: name the plug-in that has it"]),
    Row("observe with a plug-in that is not there", ["observe", "nowhere", "--plugin", "none.so", "--observer", "probe"], 2, ["none.so is not there", "fix:"]),
    Row("a layout that is not there", ["ctl", "nowhere", "layout", "nowhere.toml"], 2, ["nowhere.toml: no such layout file", "fix:"]),
    train("train with many problems", 2, ["train.a: unknown key", "2 more problems", "troupe validate job.toml"], [f"train.{key}=1" for key in "abcdef"]),
    train("recorded microbatches without reference", 2, ["--microbatches goes with --reference", "fix:"], ["--microbatches", "plan"]),
    train("recorded microbatches of no run", 2, ["nowhere", "fix:"], ["--reference", "--microbatches", "nowhere"]),
    train("policy that is none", 2, ["balancer.policy", "deferral"], ["balancer.policy=deferal"]),
    train("device that nobody knows", 2, ["cluster.device", "'abacus' is not one of cpu, cuda"], ["cluster.device=abacus"]),
    train("device that is not here", 2, ["this process has no device 'cuda'", "fix:", 'device = "cpu"'], ["cluster.device=cuda"]),
    train("pins of later", 2, ["parallel.llm", "fix:"], ["parallel.llm.tp=2"]),
    train("train on bad data", 3, ["bad_samples.jsonl", "data.max_bad_fraction", "fix:"], samples=data_set(sample("a"), {"id": "b", "conversations": []})),
    train("train by reference on bad data", 3, ["data.max_bad_fraction", "fix:"], ["--reference"], samples=data_set(sample("a"), {"id": "b", "conversations": []})),
    train("open to others without a key", 2, ["cluster.listen", "203.0.113.7", "no key: anybody could join", "troupe key new"], ["cluster.listen=203.0.113.7:0"]),
    train("model that fits nowhere", 2, ["memory", "the nodes of this machine take", "fix: use more nodes or a smaller model"], HUGE),
    Row("model that fits nowhere, looked at", ["validate", "job.toml", *HUGE], 0, ["warning: ", "the nodes of this machine take", "training would be refused"], {"job.toml": JOB, "samples.json": GOOD}),
    train("interface that is none", 2, ["network device 'eth99' is not available", "fix:"], ["cluster.data_interface=eth99"]),
    train("key that is not there", 2, ["cluster.key", "nowhere.key", "fix:"], ["cluster.key=nowhere.key"]),
    train("key that others may read", 2, ["job.toml", "others may read this key", "chmod 600"], ["cluster.key=job.toml"]),
    Row("key that exists", ["key", "new", "job.toml"], 2, ["job.toml: the file exists", "fix:"], {"job.toml": JOB}),
    Row("key in no folder", ["key", "new", "nowhere/job.key"], 2, ["nowhere/job.key", "fix:"]),
    Row("node with no such key", ["node", "--join", "127.0.0.1:1", "--key", "nowhere.key"], 2, ["nowhere.key", "troupe key new"]),
    Row("node of no job", ["node"], 2, ["--join is required", "troupe node --help"]),
    Row("node of a bad address", ["node", "--join", "here"], 2, ["'here' is not HOST:PORT", "fix:"]),
    Row("node that nobody waits for", ["node", "--join", "127.0.0.1:1", "--timeout", "1"], 1, ["127.0.0.1:1: no job let this node in within 1 s", "fix:"]),
]

DATA = [
    data("samples are not JSON", ["samples.json:1", "not JSON|not valid JSON"], text="[{\"id\": "),
    data("samples are no list", ["samples.json", "fix:"], text="3"),
    data("no samples", ["samples.json", "no "], text="[]"),
    data("id used twice", ["samples.json", "s1"], sample("s1"), sample("s1")),
    data("missing picture", ["sample a", "nowhere.png", "data.max_bad_fraction"], sample("a", "<image>\nhi", image="nowhere.png")),
    data("truncated picture", ["sample a", "half.png"], sample("a", "<image>", image="half.png"), files={"half.png": png()[:40]}),
    data("empty picture", ["sample a", "empty.jpg"], sample("a", "<image>", image="empty.jpg"), files={"empty.jpg": b""}),
    data("picture of another format", ["sample a", "text.png"], sample("a", "<image>", image="text.png"), files={"text.png": "hello"}),
    data("truncated JPEG", ["sample a", "half.jpg"], sample("a", "<image>", image="half.jpg"), files={"half.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF"}),
    data("sliver of a picture", ["sample a", "sliver.png"], sample("a", "<image>", image="sliver.png"), files={"sliver.png": png(401, 2)}),
    *[data(f"picture of five gigabytes: {what}", ["sample a", FIVE_GIGABYTES, says], sample("a", "<image>", image=FIVE_GIGABYTES), files={FIVE_GIGABYTES: head})
      for what, head, says in (("text", b"hello", "neither JPEG nor PNG|not a picture|JPEG"), ("a PNG", png(), "more than any picture"),
                               ("a JPEG", b"\xff\xd8\xff\xe0\0\x10JFIF", "more than any picture"))],
    data("picture a hundred thousand deep", ["sample a", "'image' holds a array", "correct the record"],
         text=f'[{json.dumps(sample("good"))}, {{"id": "a", "image": {DEEP}}}]'),
    data("picture a hundred thousand deep in JSON lines", ["sample a", "'image' holds a array", "samples.json:2"],
         text=f'{json.dumps(sample("good"))}\n{{"id": "a", "image": {DEEP}}}\n'),
    data("clip a hundred thousand deep", ["sample a", "'audio' holds a array"], text=f'[{{"id": "a", "audio": {DEEP}}}]'),
    train("train on a picture a hundred thousand deep", 3, ["data.max_bad_fraction", "fix:"], samples=f'[{{"id": "a", "image": {DEEP}}}]'),
    data("missing clip", ["sample a", "nowhere.wav"], sample("a", "<audio>", audio="nowhere.wav")),
    data("clip that is none", ["sample a", "bad.wav"], sample("a", "<audio>", audio="bad.wav"), files={"bad.wav": "RIFF"}),
    data("truncated clip", ["sample a", "half.wav", "truncated", "replace the file"], sample("a", "<audio>", audio="half.wav"), files={"half.wav": wav()[:-800]}),
    data("clip without sound", ["sample a", "short.wav"], sample("a", "<audio>", audio="short.wav"), files={"short.wav": wav(0)}),
    data("marker without file", ["sample a", "marker"], sample("a", "<image><image>", image="p.png"), files={"p.png": png()}),
    data("file without marker", ["sample a", "marker"], sample("a", "hi", image="p.png"), files={"p.png": png()}),
    data("nothing to train", ["sample a", "train|assistant"], {"id": "a", "conversations": [{"from": "human", "value": "hi"}]}),
    data("unknown role", ["sample a", "role|from|speaker"], {"id": "a", "conversations": [{"from": "robot", "value": "hi"}]}),
    data("no conversation", ["sample a", "conversations"], {"id": "a"}),
    data("too long", ["sample a", "300"], sample("a", "x" * 400)),
    data("sound without encoder", ["sample a", "audio|encoder"], sample("a", "<audio>", audio="c.wav"), files={"c.wav": wav()}, job=JOB),
    Row("show a sample that is not there", ["data", "show", "job.toml", "--id", "zzz"], 2, ["no such sample", "fix:"], {"job.toml": JOB, "samples.json": GOOD}),
    Row("show of a bad number", ["data", "show", "job.toml", "-n", "0"], 2, ["--samples", "0"], {"job.toml": JOB, "samples.json": GOOD}),
    Row("data made in a file", ["data", "make", "job.toml/demo"], 1, ["job.toml"], {"job.toml": JOB}),
    Row("data of no samples", ["data", "make", "demo", "-n", "0"], 2, ["--samples", "troupe data"]),
    Row("data without a verb", ["data"], 2, ["subcommand is required", "troupe data --help"]),
]

SOLVE = [
    Row("no problem named", ["solve"], 2, ["which problem?", "--list"]),
    solve("unknown problem", "post-balanec", "{}", ["no problem is called 'post-balanec'", "did you mean"]),
    Row("unknown schema", ["solve", "--schema", "post-balanec"], 2, ["no problem is called 'post-balanec'", "fix:"]),
    Row("missing input file", ["solve", "partition", "nowhere.json"], 2, ["nowhere.json", "fix:"]),
    solve("not JSON", "partition", "{\"costs\": [1,", ["not JSON", "line 1"]),
    solve("empty input", "partition", "", ["not JSON"]),
    solve("missing field", "partition", "{\"costs\": [1, 2]}", ["stages", "missing"]),
    solve("wrong type", "partition", "{\"costs\": \"1\", \"stages\": 1}", ["costs", "expected an array"]),
    solve("negative cost", "partition", "{\"costs\": [-1], \"stages\": 1}", ["costs[0]", "-1"]),
    solve("unknown field", "partition", "{\"costs\": [1], \"stages\": 1, \"stagse\": 2}", ["stagse", "did you mean"]),
    solve("unknown name like none", "token-blocks", '{"samples": [{"tokens": 684}], "devices": 4, "method": "qqq"}', ["no token block method is called 'qqq'", "use one of lpt"]),
    solve("field twice", "partition", "{\"costs\": [1], \"stages\": 1, \"stages\": 2}", ["'stages' stands twice", "fix:"]),
    solve("field twice in an object within", "ilp-partition", '{"samples": [{"encoder_ms": 1, "llm_ms": 1, "llm_ms": 2}], "buckets": 1}', ["'llm_ms' stands twice", "fix:"]),
    solve("lists a hundred thousand deep", "partition", "[" * 100_000 + "]" * 100_000, ["more than 64 deep", "troupe solve --schema"]),
    solve("objects a hundred thousand deep", "partition", '{"costs":' * 100_000 + "1" + "}" * 100_000, ["more than 64 deep", "fix:"]),
    Row("key of many parts", ["validate", "deep.toml"], 2, ["deep.toml:2", "a key of more than 64 parts", "fix:"], {"deep.toml": "\n" + ".".join("a" * 200_000) + " = 1\n"}),
    Row("section of many parts", ["validate", "deep.toml"], 2, ["deep.toml:1", "a key of more than 64 parts", "fix:"], {"deep.toml": "[" + ".".join("a" * 200_000) + "]\n"}),
    Row("arrays a hundred thousand deep", ["validate", "deep.toml"], 2, ["deep.toml:1: not TOML", "depth", "fix:"], {"deep.toml": "a = " + "[" * 100_000 + "]" * 100_000 + "\n"}),
    Row("tables a hundred thousand deep", ["validate", "deep.toml"], 2, ["deep.toml:1: not TOML", "depth", "fix:"], {"deep.toml": "a = " + "{a=" * 100_000 + "1" + "}" * 100_000 + "\n"}),
    train("override a hundred thousand deep", 2, ["command line", "fix:"], ["data.sources=" + "[" * 50_000 + "]" * 50_000]),
    train("override of many parts", 2, ["command line", "fix:"], [".".join("a" * 50_000) + "=1"]),
    solve("not an object", "partition", "[1, 2]", ["expected an object"]),
    solve("cost that is no number", "partition", "{\"costs\": [NaN], \"stages\": 1}", ["not JSON", "finite"]),
    solve("no layers", "partition", "{\"costs\": [], \"stages\": 1}", ["no layers", "fix:"]),
    solve("a million layers for templates", "templates", '{"layers": [' + ", ".join(['{"forward_ms": 1, "backward_ms": 2}'] * 1_000_000)
          + '], "nodes": 4, "gpus_per_node": 8, "device_memory_bytes": 1e9}', ["1000000 layers", "group layers"]),
    solve("layer larger than a device", "templates", '{"layers": [{"forward_ms": 1, "backward_ms": 2, "memory_bytes": 1000}], "nodes": 4, '
          '"gpus_per_node": 1, "device_memory_bytes": 100}', ["needs 1000 bytes", "nearest choice: 1000 bytes"]),
    solve("failures beyond the nodes", "templates", '{"layers": [{"forward_ms": 1, "backward_ms": 2}], "nodes": 4, "gpus_per_node": 1, '
          '"fault_tolerance": 9, "device_memory_bytes": 100}', ["fault tolerance 9", "nearest choice: fault_tolerance = 3"]),
    solve("nodes that no templates add up to", "instantiate", '{"templates": [{"nodes": 2, "microbatch_ms": 1}], "nodes": 7, "global_batch": 8}',
          ["exactly 7 nodes", "nearest choice: 6 nodes"]),
    solve("a batch that cannot be split", "distribute", '{"microbatch_ms": [1, 2], "global_batch": 7, "microbatch_size": 2}', ["multiple", "nearest batch"]),
    solve("a hundred thousand stages", "schedule", '{"stages": [' + ", ".join(
        f'{{"name": "s{i}", "next": [], "forward_ms": 1, "input_grad_ms": 1, "weight_grad_ms": 1}}' for i in range(100_000))
        + '], "microbatches": 10, "schedule": "1f1b"}', ["100000 stages", "nearest choice: 10000"]),
    solve("millions of tasks", "schedule", '{"stages": [' + ", ".join(
        f'{{"name": "s{i}", "next": [], "forward_ms": 1, "input_grad_ms": 1, "weight_grad_ms": 1}}' for i in range(8))
        + '], "microbatches": 1000000, "schedule": "1f1b"}', ["8 stages x 1000000", "nearest choice: 500000"]),
    solve("negative time of a stage", "schedule", '{"stages": [{"name": "a", "next": [], "forward_ms": -1, "input_grad_ms": 1, "weight_grad_ms": 1}], '
          '"microbatches": 1, "schedule": "1f1b"}', ["forward_ms", "-1", "nearest choice: 0"]),
    solve("samples that there are none of", "layout", '{"modules": [{"name": "llm", "next": [], "freeze": false, "layers": 4, "state_bytes": 1, "valid_tp": [1], '
          '"valid_cp": [1]}], "samples": [], "devices": 4, "devices_per_node": 2, "device_memory_bytes": 10, "global_batch": 8, "microbatch_sizes": [1], '
          '"link": {"node_gigabytes_per_s": 1, "network_gigabytes_per_s": 1}, "placement": "disjoint", "objective": "dflop", "seed": 1}',
          ["no samples", "fix:"]),
    solve("an llm in host memory", "layout", '{"modules": [{"name": "llm", "layers": 4, "state_bytes": 1, "offloaded_share": 0.5}], "samples": [{}], "devices": 4, '
          '"devices_per_node": 2, "device_memory_bytes": 10, "global_batch": 8, "microbatch_sizes": [1], "placement": "shared"}',
          ["input.modules[0].offloaded_share", "'llm' has no next, so it is the llm", "fix: leave it out here"]),
    solve("too many buckets", "ilp-partition", "{\"samples\": [{\"encoder_ms\": 1, \"llm_ms\": 1}], \"buckets\": 0}", ["buckets", "0"]),
]

STEP = '{"step":1,"loss":2.0,"step_ms":5.0}\n'
SLICE = '[\n{"ph":"X","pid":1,"tid":1,"ts":0.0,"dur":5.0,"name":"llm F mb0","cat":"compute","args":{"kind":"forward","step":1}}\n]\n'


def run_folder(command, name, code, says, words=(), **files):
    """A command about the run folder `run`, which holds these files."""
    names = {"metrics": "metrics.jsonl", "trace": "trace.json", "job": "resolved.toml", "events": "events.jsonl"}
    return Row(name, [command, "run", *words], code, says, {f"run/{names[key]}": text for key, text in files.items()})


def audit(name, says, code=3, **files):
    """`data audit` of a run that wrote these lines."""
    run = {f"run/{key}.jsonl": text for key, text in files.items()}
    return Row(name, ["data", "audit", "run"], code, says, {"run/resolved.toml": JOB.replace("samples.json", "../samples.json"), "samples.json": GOOD, **run})


TRAINED = '{"step": 1, "ids": ["s0"]}\n'

AUDIT = [
    Row("audit of no run", ["data", "audit", "nowhere"], 2, ["nowhere: no such run folder", "fix:"]),
    audit("audit of a step that is a text", ["samples.jsonl:2: expected step, a whole number from 1", "fix:"], samples=TRAINED + '{"step": "2", "ids": []}\n'),
    audit("audit of a step of no number", ["samples.jsonl:1: expected step"], samples='{"ids": ["s0"]}\n'),
    audit("audit of half a step", ["samples.jsonl:1: expected step"], samples='{"step": 1.5, "ids": []}\n'),
    audit("audit of a step before the first", ["samples.jsonl:1: expected step"], samples='{"step": 0, "ids": ["s0"]}\n'),
    audit("audit of a step beyond all", ["samples.jsonl:1: expected step"], samples='{"step": 18446744073709551615, "ids": ["s0"]}\n'),
    audit("audit of ids that are a text", ["samples.jsonl:1: expected ids, a list of texts"], samples='{"step": 1, "ids": "s0"}\n'),
    audit("audit of ids that are numbers", ["samples.jsonl:1: expected ids, a list of texts"], samples='{"step": 1, "ids": ["s0", 1]}\n'),
    audit("audit of ids a hundred thousand deep", ["samples.jsonl:1: expected ids"], samples=f'{{"step": 1, "ids": {DEEP}}}\n'),
    audit("audit of a line that is none", ["samples.jsonl:1: expected an object"], samples="hello\n" + TRAINED),
    audit("audit of a line that is a list", ["samples.jsonl:2: expected an object"], samples=TRAINED + "[1]\n"),
    audit("audit of bad samples without ids", ["bad_samples.jsonl:1: expected id, a text"], samples=TRAINED, bad_samples='{"id": 3}\n'),
    audit("audit of a generation that is a text", ["metrics.jsonl:1: expected generation, a whole number from 0"], samples=TRAINED, metrics='{"step": 1, "generation": "1"}\n'),
    # By hand: batches of four, of which the first step trained one.
    audit("audit of a run killed in its last line", [], code=1, samples=TRAINED + '{"step": 2, "id'),
]


RUNS = [
    Row("report of no run", ["report", "nowhere"], 2, ["nowhere: no such run folder", "fix:"]),
    Row("trace of no run", ["trace", "nowhere"], 2, ["nowhere: no such run folder", "fix:"]),
    Row("report without a run", ["report"], 2, ["RUN is required", "troupe report --help"]),
    run_folder("report", "report of another folder", 2, ["run: not a run folder", "resolved.toml"], metrics=STEP),
    run_folder("report", "report of a run without metrics", 2, ["metrics.jsonl: this run has no metrics"], job=""),
    run_folder("report", "report of an empty run", 2, ["metrics.jsonl: no step has ended", "fix:"], job="", metrics=""),
    run_folder("report", "report of a run killed in its first line", 2, ["no step has ended"], job="", metrics='{"step":1,"lo'),
    run_folder("report", "report of damaged metrics", 3, ["metrics.jsonl:1: expected an object"], job="", metrics="3\n" + STEP),
    run_folder("report", "report of a step that is not there", 2, ["step 7 is not in the trace: it has step 1", "--step"], ["--step", "7"], job="", metrics=STEP, trace=SLICE),
    run_folder("report", "report of a damaged trace", 3, ["trace.json:2: not a trace that Troupe wrote"], job="", metrics=STEP, trace="[\nhello\n]\n"),
    run_folder("report", "report where nothing can be written", 1, ["/proc/nowhere", "troupe"], ["--out", "/proc/nowhere/r.html"], job="", metrics=STEP, trace=SLICE),
    run_folder("report", "report of events a hundred thousand deep", 0, [], job="", metrics=STEP, events=f'{{"kind":"lost","nodes":[{DEEP}]}}\n'),
    run_folder("trace", "trace of a stage a hundred thousand deep", 0, [], ["--step", "1", "--out", "t.html"], job="",
               trace=SLICE.replace('"step":1', f'"step":1,"stage":{DEEP}')),
    run_folder("trace", "trace of a run without one", 2, ["trace.json"], job=""),
    run_folder("trace", "trace of a step without a file", 2, ["--step needs --out", "fix:"], ["--step", "1"], job="", trace=SLICE),
    run_folder("trace", "trace of another kind of file", 2, [".html", ".json", "t.png"], ["--out", "t.png"], job="", trace=SLICE),
    run_folder("trace", "trace of a step that is not there", 2, ["step 2 is not in the trace"], ["--step", "2", "--out", "t.json"], job="", trace=SLICE),
    run_folder("trace", "trace of no step", 2, ["the trace has no step yet"], ["--out", "t.html"], job="", trace="[\n]\n"),
]

MANIFEST = {"run/resolved.toml": JOB, "run/checkpoints/step-1/manifest.json": '{"format": 1}'}
CHECKPOINTS = [
    Row("checkpoint whose manifest lacks parts", ["checkpoint", "show", "run"], 3, ["no usable manifest of a checkpoint", "not found"], MANIFEST),
]

ROWS = CHECKPOINTS + COMMAND_LINE + JOB_FILE + PLAN + PROFILE + TRAIN + DATA + AUDIT + SOLVE + RUNS


def check(row, binary, folder):
    """What is wrong with the binary's answer; empty where nothing is."""
    for name, content in row.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if name == FIVE_GIGABYTES:
            os.truncate(path, 5 << 30)
    # Whoever reads such a file whole has no memory for it.
    limited = ["sh", "-c", f'ulimit -v {4 << 20} && exec "$@"', "sh"] if FIVE_GIGABYTES in row.files else []
    try:
        run = subprocess.run([*limited, binary, *row.command], cwd=folder, input=row.stdin.encode(), capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return ["it did not end within 60 s"]
    errors = run.stderr.decode(errors="replace")
    faults = []
    if run.returncode != row.code:
        faults.append(f"exit code {run.returncode} instead of {row.code}")
    for text in row.says:
        if not any(choice in errors for choice in text.split("|")):
            faults.append(f"does not say: {text}")
    # Where the machine is slow, lines of progress may come first.
    errors = "".join(line for line in errors.splitlines(keepends=True) if not re.fullmatch(r"troupe: .* \(\d+ s\)\n", line))
    limit = 2 * errors.count("fix:") + 1 if "validate" in row.command else 5
    if len(errors.splitlines()) > max(limit, 2):
        faults.append(f"{len(errors.splitlines())} lines on stderr")
    if row.code not in (0, 1) and not any(word in errors for word in ("fix:", "--help", "`troupe validate")):
        faults.append("does not say what to do")
    if row.code != 0 and row.command[:1] == ["solve"] and run.stdout:
        faults.append("a result on stdout beside the error")
    if "json.exception" in errors:
        faults.append("a library's code is told")
    if faults:
        faults.append("stderr was:\n" + errors)
    return faults


def check_in_folder(row, binary):
    with tempfile.TemporaryDirectory() as folder:
        return check(row, binary, pathlib.Path(folder))


def main(binary, names):
    rows = [row for row in ROWS if not names or row.name in names]
    if len({row.name + str(row.command[:1]) for row in ROWS}) != len(ROWS):
        sys.exit("two rows have one name")
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = list(pool.map(lambda row: check_in_folder(row, binary), rows))
    for row, faults in zip(rows, answers):
        if faults:
            failed += 1
            print(f"{row.name}: troupe {' '.join(row.command)}\n  " + "\n  ".join(faults))
    print(f"{len(rows)} mistakes, {failed} answered badly")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]))
