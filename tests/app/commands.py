#!/usr/bin/python3
"""What the commands answer when all is well: exit code 0, results on stdout, nothing else there with --json.

    commands.py TROUPE
"""

import json
import os
import pathlib
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import tempfile

DEMO = pathlib.Path(__file__).resolve().parents[2] / "configs" / "demo.toml"
JOB = """\
[job]
name = "small"
[modules.llm]
kind = "llm"
[[data.sources]]
json = "samples.json"
[train]
steps = 2
"""

SAMPLES = [{"id": f"s{i}", "conversations": [{"from": "human", "value": "hi\n"}, {"from": "gpt", "value": "ho"}]}
           for i in range(4)]


class Commands:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.failed = binary, folder, 0

    def run(self, *words, stdin=""):
        return subprocess.run([self.binary, *words], cwd=self.folder, input=stdin, capture_output=True, text=True, timeout=60)

    def run_on_terminal(self, *words):
        """The same with stderr on a terminal; what was drawn there is the answer's stderr."""
        controller, terminal = pty.openpty()
        with subprocess.Popen([self.binary, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=terminal, text=True,
                              env={**os.environ, "TERM": "xterm"}) as process:
            os.close(terminal)
            drawn = b""
            try:
                while part := os.read(controller, 4096):
                    drawn += part
            except OSError:  # The last writer is gone.
                pass
            output = process.stdout.read()
        os.close(controller)
        return subprocess.CompletedProcess(words, process.wait(), output, drawn.decode())

    def expect(self, what, answer, good):
        if answer.returncode == 0 and good:
            return
        self.failed += 1
        print(f"{what}: exit code {answer.returncode}\n{answer.stdout[-800:]}{answer.stderr[-800:]}")

    def expect_refusal(self, what, answer, said):
        if answer.returncode not in (0, 134, 139) and said in answer.stderr:
            return
        self.failed += 1
        print(f"{what}: exit code {answer.returncode}\n{answer.stdout[-800:]}{answer.stderr[-800:]}")


def check_full_disk(commands):
    """What could not be written is no success."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        for words in (("validate", "job.toml", "--resolved"), ("data", "check", "job.toml", "--json")):
            answer = subprocess.run([str(commands.binary), *words], stdout=full, stderr=subprocess.PIPE, text=True,
                                    cwd=commands.folder, timeout=60, check=False)
            said = answer.returncode == 1 and "the output could not be written" in answer.stderr and "fix: " in answer.stderr
            commands.expect(f"{words[0]} to a full disk fails", subprocess.CompletedProcess(words, 0, "", answer.stderr), said)


def check_all(commands):
    answer = commands.run("--help")
    commands.expect("help names every command", answer,
                    all(f"\n  {name} " in answer.stdout for name in ("validate", "data", "compare", "solve", "plan", "report")))
    for name in ("validate", "compare", "solve", "data"):
        answer = commands.run(name, "--help")
        commands.expect(f"{name} explains itself", answer, "Usage:" in answer.stdout and not answer.stderr)
    for flag in ("--version", "-v"):
        answer = commands.run(flag)
        commands.expect(f"{flag} has build facts", answer,
                        all(word in answer.stdout for word in ("troupe ", "compiler", "LibTorch", "CAF", "UCX")))
    check_help(commands)
    check_full_disk(commands)
    check_layers(commands)

    answer = commands.run("validate", "job.toml", "train.steps=3", "--set", "job.seed=7", "train.global_batch_size=4")
    commands.expect("a good job has no problems", answer, answer.stdout.startswith("job.toml: no problems\n") and not answer.stderr)
    # By hand: a vocabulary of 1000 and 8 columns, which embedding and head share or have twice; a block of four matrices of
    # 8 x 8, three of 8 x 16 and two norms of 8; the last norm.
    small = "modules.llm.config={vocab_size=1000,hidden_size=8,num_hidden_layers=1,intermediate_size=16,num_attention_heads=2,num_key_value_heads=2,tie_word_embeddings=%s}"
    for tied, count, shown in (("true", 8000 + 4 * 64 + 3 * 128 + 3 * 8, "8.66 k"), ("false", 2 * 8000 + 4 * 64 + 3 * 128 + 3 * 8, "16.66 k")):
        answer = commands.run("validate", "job.toml", small % tied)
        commands.expect(f"validate counts {count} parameters", answer, f"llm: 3 layers, {shown} parameters" in answer.stdout)
        answer = commands.run("train", "job.toml", small % tied, "job.run_dir=counted", "train.steps=1", "--fresh")
        commands.expect(f"training counts {count} parameters", answer, f"{shown} parameters ({shown} trained)" in answer.stdout + answer.stderr)
    for line in (resolved := commands.folder / "counted" / "resolved.toml").read_text().splitlines():
        if line.startswith("listen = "):
            resolved.write_text(resolved.read_text().replace(line, 'listen = "0.0.0.0:29500"'))
    commands.expect("who audits a run needs no key of its door", commands.run("data", "audit", "counted"), "0.0.0.0" in resolved.read_text())
    auto = ["parallel.mode=auto", "cluster.nodes=5", "cluster.local_nodes=5", "train.global_batch_size=10", small % "false"]
    answer = commands.run("validate", "job.toml", *auto)  # Three layers: pipelines of fewer nodes.
    commands.expect("more nodes than layers are no problem where the planner chooses", answer, "no problems" in answer.stdout)
    check_warnings(commands)
    check_sums(commands)
    answer = commands.run("validate", "job.toml", "--resolved", "train.steps=3", "--set", "job.seed=7")
    commands.expect("the resolved job tells origins", answer,
                    "steps = 3  # command line" in answer.stdout and "seed = 7  # command line" in answer.stdout
                    and 'name = "small"  # job.toml:2' in answer.stdout and "eps = 1e-08  # default" in answer.stdout)
    (commands.folder / "resolved.toml").write_text(answer.stdout)
    again = commands.run("validate", "resolved.toml", "--resolved")
    values = [[line.split("  # ")[0] for line in text.splitlines()] for text in (answer.stdout, again.stdout)]
    commands.expect("the resolved job is a job", again, values[0] == values[1])

    answer = commands.run("data", "check", "job.toml")
    commands.expect("data check counts", answer, answer.stdout.startswith("4 samples  ") and "  100% text only\n" in answer.stdout
                    and answer.stdout.endswith("dropped none\n"))
    answer = commands.run("data", "check", "job.toml", "--json")
    # By hand: <begin> <user> h i \n <end> <assistant> h o <end> is 10 tokens, of which h o <end> are trained.
    commands.expect("data check --json is JSON alone", answer,
                    json.loads(answer.stdout)["llm_tokens"] == {"count": 4, "sum": 40, "min": 10, "p50": 10, "p95": 10, "max": 10}
                    and json.loads(answer.stdout)["trained_tokens"]["sum"] == 12)
    answer = commands.run("data", "show", "job.toml", "-n", "1", "--id", "s2")
    commands.expect("data show marks what is trained", answer, answer.stdout.startswith("sample s2: 10 tokens, 3 trained\n")
                    and "[ignored] <|begin|><|user|>hi\\n<|end|><|assistant|>\n[TRAINED] ho<|end|>\n" in answer.stdout)

    # Four samples of ten tokens each: two microbatches of two are even under every policy.
    batch = ["train.global_batch_size=4", "train.microbatches=2", "--cluster", "1x1xH100-80G"]
    answer = commands.run("balance", "job.toml", "--policy", "dflop", "--steps", "1", "--json", *batch)
    rows = {row["policy"]: row["all"] for row in json.loads(answer.stdout)["policies"]}
    commands.expect("balance --json is JSON alone", answer, set(rows) == {"random", "disttrain", "llm-only", "dflop"}
                    and rows["dflop"]["llm"]["std_ms"] <= 1e-9 and rows["dflop"]["step_ms"] >= rows["dflop"]["lower_bound_ms"] > 0)
    later = ["cluster.device=cuda"]
    answer = commands.run("balance", "job.toml", "--policy", "dflop", "--steps", "1", *later, *batch)
    commands.expect("balance answers for devices that are not here", answer, answer.returncode == 0)
    answer = commands.run("balance", "job.toml", "--policy", "all", *batch)
    commands.expect("balance shows every policy", answer, "balanced-chain" in answer.stdout and "auto" in answer.stdout)

    answer = commands.run("data", "make", "demo", "-n", "10")
    commands.expect("data make writes a data set", answer, "wrote 10 samples" in answer.stdout)
    media = ['modules.vision={kind = "encoder", family = "qwen2-vl"}', 'modules.vision_projector.kind=projector',
             'modules.audio={kind = "encoder", family = "whisper"}', 'modules.audio_projector.kind=projector']
    answer = commands.run("data", "check", "job.toml", "data.sources[0].json=demo/samples.json", *media)
    commands.expect("what data make wrote is good", answer, "dropped none" in answer.stdout)
    answer = commands.run("data", "make", "uneven", "-n", "32", "--uneven")
    commands.expect("data make --uneven writes a data set", answer, "wrote 32 samples" in answer.stdout)
    answer = commands.run("data", "check", "job.toml", "data.sources[0].json=uneven/samples.json", "--json", *media)
    tokens = json.loads(answer.stdout)["llm_tokens"]
    commands.expect("what data make --uneven wrote is uneven", answer,
                    tokens["max"] > 5 * tokens["p50"])

    check_readme(commands)
    check_profile(commands)
    check_planning(commands)
    check_batch_sizes(commands, ["data.sources[0].json=demo/samples.json", *media])
    answer = commands.run("solve", "--list")
    names = [line.split()[0] for line in answer.stdout.splitlines()]
    commands.expect("solve lists its problems", answer, "post-balance" in names)
    for name in names:
        answer = commands.run("solve", "--schema", name)
        commands.expect(f"solve --schema {name}", answer, len(answer.stdout) > 20)
    answer = commands.run("solve", "rearrange", stdin=json.dumps({"first": [[[0, 1]], [[0, 0]]], "second": [[[1, 0]], [[0, 0]]]}))
    commands.expect("solve reads stdin and prints one object", answer, "compute_ms" in json.loads(answer.stdout))
    check_progress(commands, batch)
    check_memory(commands)
    check_terminal(commands)


def check_help(commands):
    """`troupe help` says what --help says."""
    for words in ([], ["train"], ["data", "check"]):
        answer, flag = commands.run("help", *words), commands.run(*words, "--help")
        commands.expect(f"help {' '.join(words)} is what --help says", answer, answer.stdout == flag.stdout and "Usage:" in answer.stdout)
    answer = commands.run("help")
    commands.expect("help lists itself", answer, "\n  help " in answer.stdout)
    check_key_help(commands)


def check_key_help(commands):
    """`troupe help keys` explains keys of job files."""
    whole = commands.run("help", "keys").stdout
    for text in ("\n[train]\n", "\n  global_batch_size = 16 (integer, 1 to 100000000)\n      Samples of a step",
                 "\n[modules.NAME.config] of whisper\n", "\n[[data.sources]]\n"):
        commands.expect(f"help keys has {text!r}", commands.run("help", "keys"), text in whole)
    section = commands.run("help", "keys", "cluster")
    commands.expect("help keys SECTION", section, "[cluster]" in section.stdout and "fault_tolerance = 0" in section.stdout
                    and "[train]" not in section.stdout and "Prometheus" not in section.stdout)
    for word, keys in (("train.steps", 1), ("steps", 1), ("modules.vision.freeze", 1), ("parallel.llm", 4), ("hidden_size", 3), ("data.sources[0].format", 1)):
        answer = commands.run("help", "keys", word)
        commands.expect(f"help keys {word}", answer, answer.returncode == 0 and len(re.findall("^  [a-z]", answer.stdout, re.M)) == keys)
    for word, says in (("lora", "there are no low-rank adapters; modules.NAME.freeze"), ("modules.llm.lora", "there are no low-rank adapters; modules.llm.freeze"),
                       ("train.eval_every", "nothing is evaluated while a job trains"), ("optimizer.sharded", "each replica has all of its moments"),
                       ("batch_size", "write train.global_batch_size"), ("train.step", "did you mean train.steps?"), ("zebra", "list them all: troupe help keys")):
        answer = commands.run("help", "keys", word)
        commands.expect_refusal(f"help keys {word} says what there is", answer, f"'{word}' is no key or section of a job file\n  fix: {says}")
    narrow = max(len(line) for line in whole.splitlines())
    commands.expect("help keys fits 80 columns", commands.run("help", "keys"), narrow <= 80)


def check_warnings(commands):
    """What a job says in vain: validate, plan and train warn of it, and go on."""
    pairs = "parallel.pipelines=[{stages=[{node=0,llm=[0,3]},{node=1,llm=[3,6]}]}]"
    vain = ["cluster.local_nodes=2", pairs, "parallel.llm.tp=2", "data.shuffle=true", "train.global_batch_size=16", "data.pad_audio=true"]
    says = ("parallel.llm.tp = 2 has no effect", "data.shuffle changes no batch: each step takes all 4 samples",
            "train.global_batch_size 16 is more than the data set has", "data.pad_audio has no effect")
    answer = commands.run("validate", "job.toml", *vain)
    commands.expect("validate warns of what has no effect", answer, answer.stdout.startswith("job.toml: no problems, 4 warnings\n")
                    and all("warning: command line: " + text in answer.stderr for text in says) and answer.stderr.count("  fix: ") == 4)
    answer = commands.run("plan", "job.toml", *vain, "--json")
    planned = json.loads(answer.stdout)["warnings"]
    commands.expect("plan --json warns of it", answer, all(any(text in warning for warning in planned) for text in says))
    answer = commands.run("plan", "job.toml", *vain)
    flat = " ".join(answer.stdout.split())
    commands.expect("plan warns of it", answer, all("warning: command line: " + text in flat for text in says))
    for words in (["whatif", "job.toml", *vain, "--join", "1"], ["balance", "job.toml", *vain, "--policy", "dflop", "--cluster", "H100"]):
        answer = commands.run(*words, "--json")
        told = json.loads(answer.stdout)["warnings"]
        commands.expect(f"{words[0]} --json warns of it", answer, all(any(text in warning for warning in told) for text in says))
        answer = commands.run(*words)
        flat = " ".join(answer.stdout.split())
        commands.expect(f"{words[0]} warns of it", answer, all("warning: command line: " + text in flat for text in says))
    answer = commands.run("plan", "job.toml", *vain, "--cluster", "1x2xH100", "cluster.device_memory_gib=1", "--json")
    planned = json.loads(answer.stdout)["warnings"]
    commands.expect("a plan for other machines warns of the layout and the memory it leaves out, not of the pin it keeps", answer,
                    any("parallel.pipelines has no effect with --cluster" in warning for warning in planned)
                    and any("cluster.device_memory_gib has no effect with --cluster" in warning for warning in planned)
                    and not any("parallel.llm.tp" in warning for warning in planned))
    answer = commands.run("train", "job.toml", *vain, "job.run_dir=warned", "scheduler.profile=", "train.steps=1")
    log = (commands.folder / "warned" / "train.log").read_text()
    commands.expect("train warns of it", answer, all(f"warning: command line: {text}" in answer.stdout and text in log for text in says))
    idle = ['modules.vision={kind="encoder",family="qwen2-vl"}', 'modules.vision_projector={kind="projector"}', "train.global_batch_size=4"]
    for words in (["validate"], ["plan"], ["train", "job.run_dir=idle", "train.steps=1"]):
        answer = commands.run(words[0], "job.toml", *idle, *words[1:])
        flat = " ".join((answer.stdout + answer.stderr).split())
        commands.expect(f"{words[0]} warns of an encoder without work", answer,
                        "modules.vision has nothing to do: no sample has images" in flat and "remove the module and its projector" in flat)
    answer = commands.run("train", "job.toml", "train.steps=1", "job.run_dir=alone", "train.global_batch_size=4", "--reference")
    commands.expect("a job that says nothing in vain is not warned of", answer, "warning" not in answer.stdout)
    check_log(commands)


def reasons_of(answer):
    """Why a layout is as it is, by what was chosen, as `plan --json` says."""
    return {reason["choice"]: reason["why"] for reason in json.loads(answer.stdout)["reasons"]}


def check_sums(commands):
    """How gradients are added up, where a job leaves that open, is chosen before it is planned, and why is said."""
    copies = 'parallel.pipelines=[{stages=[{node=0,llm="all"}]},{stages=[{node=1,llm="all"}]}]'
    two = ["cluster.local_nodes=2", copies, "train.global_batch_size=4", "cluster.sums=auto"]
    cpus = "NCCL adds up in the memory of GPUs, and the devices are cpu"
    answer = commands.run("plan", "job.toml", *two, "--json")
    commands.expect("plan --json says how it adds up on CPUs", answer, reasons_of(answer).get("sums by messages") == cpus)
    answer = commands.run("plan", "job.toml", *two)
    commands.expect("plan says how it adds up", answer, f"sums by messages {cpus}" in " ".join(answer.stdout.split()))
    answer = commands.run("plan", "job.toml", *two[:1], *two[2:], "parallel.llm.dp=2", "--cluster", "1x2xH100-80G", "--json")
    commands.expect("a plan for GPUs adds up by NCCL", answer, "as predicted" in reasons_of(answer).get("sums by NCCL", ""))
    # What is chosen is planned as if the job said it.
    plan = ["plan", "job.toml", *two[:1], two[2], "parallel.llm.dp=2", "--cluster", "1x2xH100-80G", "--json"]
    balance = ["balance", "job.toml", *two[:3], "train.microbatches=1", "--policy", "random", "--steps", "1", "--cluster", "H100-80G", "--json"]
    for words, step_ms in ((plan, lambda found: found["step_ms"]), (balance, lambda found: found["policies"][0]["all"]["step_ms"])):
        answers = {sums: commands.run(*words, f"cluster.sums={sums}") for sums in ("auto", "nccl", "messages")}
        steps = {sums: step_ms(json.loads(answer.stdout)) for sums, answer in answers.items()}
        commands.expect(f"{words[0]} for GPUs takes the sums that it chose", answers["auto"], steps["auto"] == steps["nccl"] != steps["messages"])
        commands.expect(f"{words[0]} says that it chose them", answers["auto"], "as predicted" in reasons_of(answers["auto"]).get("sums by NCCL", ""))
        commands.expect(f"{words[0]} gives no reason for what the job says", answers["nccl"], not any("sums" in choice for choice in reasons_of(answers["nccl"])))
    answer = commands.run(*balance[:-1], "cluster.sums=auto")
    commands.expect("balance says how it adds up", answer, "\nsums by NCCL: the sums of a step take " in answer.stdout)
    answer = commands.run("plan", "job.toml", *two[:3], "--json")
    commands.expect("what a job says itself needs no reason", answer, not any("sums" in choice for choice in reasons_of(answer)))
    train = ["train", "job.toml", *two, "job.run_dir=open-sums", "checkpoint.every_steps=1"]
    answer = commands.run(*train, "train.steps=1")
    log, resolved = commands.folder / "open-sums" / "train.log", commands.folder / "open-sums" / "resolved.toml"
    commands.expect("train says how it adds up", answer, f"because sums by messages: {cpus}" in log.read_text())
    commands.expect("the run knows what was chosen", answer, 'sums = "messages"  # command line: auto\n' in resolved.read_text())
    answer = commands.run(*train, "train.steps=2", "--resume", "latest")
    commands.expect("a run that goes on keeps its sums", answer, "because sums by messages: the run that goes on has them" in log.read_text())


def check_log(commands):
    """Everything that training says stands in the run folder too; step lines say the epoch."""
    # By hand: four samples in batches of two are two steps, so that step 3 begins the second epoch.
    batch = ["train.global_batch_size=2", "train.microbatches=1", "train.steps=4"]
    in_vain = "balancer.exchange=per-phase"  # The one node that the planner has no choice but to take leaves nothing to exchange.
    for words, run in ((["cluster.local_nodes=1", in_vain], "told"), (["--reference"], "told-too")):
        answer = commands.run("train", "job.toml", f"job.run_dir={run}", *batch, *words)
        log = (commands.folder / run / "train.log").read_text().splitlines()
        said = [line.split("] ", 1)[1] for line in answer.stdout.splitlines()]
        commands.expect(f"{run}: the log has the lines of the console", answer, said == [line.split("] ", 1)[1].removeprefix("info: ") for line in log] and len(said) > 4)
        steps = [line.split("  ")[:2] for line in said if line.startswith("step ")]
        commands.expect(f"{run}: lines of steps say the epoch", answer,
                        steps == [[f"step {step}/4", f"epoch {epoch}"] for step, epoch in ((1, 1), (2, 1), (3, 2), (4, 2))])
        commands.expect(f"{run}: the log says of an exchange where there can be none", answer, in_vain not in words
                        or any(line.startswith('warning: balancer.exchange = "per-phase": nothing is exchanged: ') for line in said))
        commands.expect(f"{run}: the log has the day", answer, all(line[:5].rstrip("-").isdigit() and line[4] == "-" for line in log))
    (commands.folder / "bad.json").write_text(json.dumps([*SAMPLES, {"id": "bad", "conversations": []}]))
    answer = commands.run("train", "job.toml", "job.run_dir=ended", "data.sources[0].json=bad.json", "train.global_batch_size=5")
    log = (commands.folder / "ended" / "train.log").read_text()
    commands.expect("the log says how a job ended", subprocess.CompletedProcess("", 0 if answer.returncode == 3 else 1, answer.stdout, answer.stderr),
                    "error: " in log and "data.max_bad_fraction" in log.split("error: ")[1])


def check_progress(commands, batch):
    """Balance and solve say what they are busy with, on stderr alone."""
    (commands.folder / "partition.json").write_text(json.dumps({"costs": [3, 1, 2], "stages": 2}))
    answer = commands.run_on_terminal("solve", "partition", "partition.json")
    commands.expect("solve says on a terminal what it is busy with, and cleans up", answer, json.loads(answer.stdout)["max"] == 3
                    and "solving partition" in answer.stderr and answer.stderr.endswith("\r\x1b[K"))
    answer = commands.run_on_terminal("balance", "job.toml", "--policy", "dflop", "--steps", "2", "--json", *batch)
    commands.expect("balance says on a terminal which batch it is busy with, and cleans up", answer, json.loads(answer.stdout)["policies"]
                    and "balancing by dflop, batch 1 of " in answer.stderr and answer.stderr.endswith("\r\x1b[K"))
    # Elsewhere than on a terminal there are whole lines, and none before two seconds: so the input is held back for one.
    with subprocess.Popen([commands.binary, "solve", "partition"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        said = process.stderr.readline() if select.select([process.stderr], [], [], 60)[0] else ""
        output, errors = process.communicate((commands.folder / "partition.json").read_text())
    answer = subprocess.CompletedProcess("solve", process.returncode, output, said + errors)
    commands.expect("solve says in a pipe what it waits for", answer, json.loads(output)["max"] == 3
                    and said.startswith("troupe: reading standard input (") and said.endswith(" s)\n") and "\x1b" not in answer.stderr)


def check_readme(commands):
    """The policies that docs/planning.md shows for the job of README.md win on the data that it shows them on."""
    job = (DEMO.parents[1] / "README.md").read_text().split("```toml\n")[1].split("```")[0]
    (commands.folder / "first.toml").write_text(job.replace("runs/demo-data", "demo"))
    text = (DEMO.parents[1] / "docs" / "planning.md").read_text()
    lines = [shlex.split(line, comments=True)[1:] for line in text.splitlines() if line.startswith("    build/release/troupe ")]
    made = next(words for words in lines if words[:2] == ["data", "make"] and "--uneven" in words)
    commands.expect("docs/planning.md makes uneven data", commands.run(*made), True)
    for words in (words for words in lines if words[0] == "balance" or any("balancer.policy" in word for word in words)):
        policy = next((word.split("=")[1] for word in words if word.startswith("balancer.policy=")), "auto")
        keys = [word for word in words[2:] if "=" in word and not word.startswith("balancer.")]
        answer = commands.run("balance", words[1], *keys, "--policy", policy, "--json")
        rows = {row["policy"]: row["all"]["step_ms"] for row in json.loads(answer.stdout)["policies"]}
        commands.expect(f"{policy} wins where docs/planning.md shows it", answer, rows[policy] <= 0.95 * rows["random"])


def check_profile(commands):
    """The job's own layers measured within a second, then found again."""
    small = ["modules.llm.config.num_hidden_layers=1", "modules.llm.config.hidden_size=16", "modules.llm.config.intermediate_size=16",
             "modules.llm.config.num_attention_heads=2", "modules.llm.config.num_key_value_heads=2"]
    answer = commands.run("profile", "job.toml", *small, "--out", "profile.json", "--budget", "1")
    verdicts = [line for line in answer.stdout.splitlines() if line.startswith("verdict  ")]
    commands.expect("profile says what it measured, and a verdict", answer, "\nmeasured in " in answer.stdout
                    and "\ndata     4 of 4 samples measured" in answer.stdout and "llm 100 %" in " ".join(answer.stdout.split()) and len(verdicts) == 1)
    commands.expect("a summary fits a narrow terminal, and has no table", answer, "left out of the fit" not in answer.stdout
                    and max(map(len, answer.stdout.splitlines())) <= 80 and len(answer.stdout.splitlines()) <= 20)
    answer = commands.run("profile", "job.toml", *small, "--out", "profile.json", "-v")
    printed = answer.stdout
    commands.expect("profile -v has the table", answer, "llm.block" in printed and "left out of the fit" in printed and "\nllm tokens " in printed)
    answer = commands.run("profile", "job.toml", *small, "--out", "profile.json", "--json")
    found = json.loads(answer.stdout)
    commands.expect("a profile that fits is reused", answer, found["reused"] and not found["reason"])
    commands.expect("the verdict is for programs too", answer, f"verdict  {found['verdict']['word']}: " in printed and found["sample_ms"]["llm"] > 0)
    worst = max(found["errors"], key=lambda error: error["left_out_mean"])
    named = f"\nworst: {worst['curve']} of {worst['kind']} ({', '.join(worst['modules'])}) at tp {worst['tp']}, cp {worst['cp']}: "
    if worst["left_out_mean"] > 0:
        commands.expect("profile names the curve that fits worst", answer, found["worst_error"] == worst and worst["modules"] == ["llm"]
                        and named in printed)
    kinds = found["profile"]["kinds"].values() if isinstance(found["profile"]["kinds"], dict) else found["profile"]["kinds"]
    commands.expect("times of a profile are measured and grow with tokens", answer, len(kinds) == 3 and all(
        kind["origin"] == "measured" and kind["points"][0]["tokens"] < kind["points"][-1]["tokens"]
        and kind["points"][-1]["linear"][0] > 0 for kind in kinds))
    # By hand, as `data check`: ten tokens a sample, of which three are trained.
    commands.expect("profile knows the data", answer, found["data"]["records"] == 4 and found["data"]["llm_tokens"]["p50"] == 10
                    and found["data"]["trained_tokens"]["max"] == 3)
    answer = commands.run("profile", "job.toml", *small, "--cluster", "2x8xA100-80G", "--json")
    kinds = json.loads(answer.stdout)["profile"]["kinds"]
    kinds = kinds.values() if isinstance(kinds, dict) else kinds
    commands.expect("what was computed has no better verdict", answer, json.loads(answer.stdout)["verdict"]["word"] == "computed")
    commands.expect("a profile of devices that are not here is computed", answer,
                    {kind["origin"] for kind in kinds} == {"computed"} and {kind["tp"] for kind in kinds} == {1, 2, 4, 8})
    answer = commands.run("plan", "job.toml", *small, "scheduler.profile=profile.json", "--json")
    commands.expect("plan takes a measured profile", answer, json.loads(answer.stdout)["costs"] == "measured")
    check_corrections(commands, small)
    (commands.folder / "lost.csv").write_text("0,add,a\n0,add,b\n9000,remove,a\n20000,remove,b\n")
    answer = commands.run("replay", "job.toml", *small, "cluster.local_nodes=2", "train.global_batch_size=4", "scheduler.profile=profile.json",
                          "--failures", "lost.csv", "--recovery", "live", "--json")
    commands.expect("replay takes a measured profile", answer, json.loads(answer.stdout)["costs"] == "measured")
    # Without a terminal nothing moves while layers are measured.
    for run, times in (("measured/first", 1), ("measured/again", 0)):
        answer = commands.run("train", "job.toml", *small, "train.steps=1", "train.global_batch_size=4", f"job.run_dir={run}")
        commands.expect(f"{run}: training says that it measures layers, where it does", answer, answer.returncode == 0
                        and answer.stdout.count("measuring the model's layers first") == times)


def check_corrections(commands, small):
    """Costs of devices that are not here, by a profile that was measured on one: the job's own, as if it had been there."""
    stored = json.loads((commands.folder / "profile.json").read_text())
    profiler = re.search('kDeviceProfiler = "(.*?)"', (DEMO.parents[1] / "engine" / "profiling" / "profile_run.cpp").read_text())[1]
    stored["key"].update(device="NVIDIA H100 80GB HBM3", software=f"LibTorch, {profiler}")
    (commands.folder / "h100.json").write_text(json.dumps(stored))
    job, measured = ["job.toml", *small], "scheduler.profile=h100.json"
    for words in (["plan", *job], ["simulate", *job], ["balance", *job, "--policy", "dflop", "--steps", "1"]):
        alone = json.loads(commands.run(*words, "--cluster", "1x2xH100-80G", "--json").stdout)["corrections"]
        answer = commands.run(*words, "--cluster", "1x2xH100-80G", measured, "--json")
        found = json.loads(answer.stdout)["corrections"]
        commands.expect(f"{words[0]} --json says by what costs are corrected", answer, found["device"] == "NVIDIA H100 80GB HBM3"
                        and found["file"].endswith("h100.json") and len(found["kinds"]) == 3 and all(kind["factor"] for kind in found["kinds"]))
        commands.expect(f"{words[0]} --json says what is computed alone", answer, alone["file"] == ""
                        and all(kind["factor"] is None for kind in alone["kinds"]))
        answer = commands.run(*words, "--cluster", "1x2xH100-80G", measured)
        lines = answer.stdout.splitlines()
        flat = " ".join(answer.stdout.split())
        commands.expect(f"{words[0]} says by what costs are corrected", answer, sum(line.startswith("costs: corrected by") for line in lines) == 1
                        and "took on NVIDIA H100 80GB HBM3" in flat and "llm.block x" in flat and "computed alone: none" in flat)
        answer = commands.run(*words, "--cluster", "1x2xA100-80G", measured)
        flat = " ".join(answer.stdout.split())
        commands.expect(f"{words[0]} corrects nothing by another device, and says so", answer, "costs: computed alone for every kind" in flat
                        and "scheduler.profile has no effect with --cluster: it was measured on NVIDIA H100 80GB HBM3" in flat)
    plain, corrected = (json.loads(commands.run("plan", *job, "--cluster", "1x2xH100-80G", *more, "--json").stdout) for more in ([], [measured]))
    commands.expect("a plan uses what was measured", answer, plain["step_ms"] != corrected["step_ms"] and corrected["costs"] == "computed")


def check_planning(commands):
    two = ["cluster.local_nodes=2", "modules.llm.config.num_hidden_layers=2"]
    answer = commands.run("plan", "job.toml", *two)
    commands.expect("plan says what and why", answer,
                    all(text in answer.stdout for text in ("predicted step", "why:", "memory", "one step,", "\nn0.d0 ")))
    answer = commands.run("plan", "job.toml", *two, "--json", "--save", "layout.toml")
    chosen = json.loads(answer.stdout)
    layers = sorted(layer for stage in chosen["stages"] if stage["pipeline"] == 0
                    for run in stage["runs"] for layer in range(*run["layers"]))
    commands.expect("a pipeline of the plan has every layer once", answer, layers == [0, 1, 2, 3] and chosen["chosen"])
    commands.expect("the plan names both nodes", answer, {stage["node"] for stage in chosen["stages"]} == {0, 1})
    (commands.folder / "by-hand.toml").write_text(JOB + (commands.folder / "layout.toml").read_text())
    answer = commands.run("plan", "by-hand.toml", *two, "--json")
    again = json.loads(answer.stdout)
    commands.expect("a saved plan is a layout by hand with the same prediction", answer,
                    not again["chosen"] and abs(again["step_ms"] - chosen["step_ms"]) < 1e-6 * chosen["step_ms"])
    answer = commands.run("plan", "job.toml", "--cluster", "2x2xH100", "parallel.llm.dp=2", "--json")
    commands.expect("plan for machines that are not here", answer,
                    json.loads(answer.stdout)["cluster"]["device"] == "H100-80G" and json.loads(answer.stdout)["pipelines"] == 2)
    answer = commands.run("plan", "job.toml", "cluster.local_nodes=3", "--cluster", "3x1xA40", "--json")
    commands.expect("costs of machines that are not here are labelled", answer, json.loads(answer.stdout)["costs"] == "computed")
    check_planned_only(commands)
    check_grids(commands)
    check_own_numbers(commands)
    check_simulation(commands, two)
    check_replay(commands)


RUN_EVENTS = [{"kind": "lost", "step": 9, "generation": 2, "detect_ms": 1, "decide_ms": 2, "connect_ms": 3, "copy_ms": 40, "rebuild_ms": 50, "replay_ms": 0},
              {"kind": "joined", "step": 19, "generation": 3, "detect_ms": 0, "decide_ms": 7, "connect_ms": 0, "copy_ms": 80, "rebuild_ms": 90, "replay_ms": 0}]


def check_replay(commands):
    """A replay of a job's own nodes: by its profile, layouts and phases, as its supervisor would see it through."""
    (commands.folder / "window.csv").write_text("0,add,a\n0,add,b\n20000,add,c\n60000,remove,b\n99000,remove,a\n")
    own = ["replay", "job.toml", "cluster.local_nodes=3", "cluster.fault_tolerance=1", "train.global_batch_size=12",
           "--failures", "window.csv", "--recovery", "live", "--json"]

    answer = commands.run("replay", "job.toml", "--cluster", "2x1xH100-80G", "--failure-every", "1h", "cluster.sums=auto")
    commands.expect("a replay by templates says that it knows no sums", answer, "\nsums of gradients take no time by any cluster.sums" in answer.stdout)

    def played(*words):
        nonlocal answer
        answer = commands.run(*own, *words)
        commands.expect(f"replay {words}", answer, not answer.stderr)
        return json.loads(answer.stdout)

    plain, chosen = played(), played("cluster.sums=auto")
    commands.expect("a replay of the job's own nodes adds up as they do", answer, "sums" not in plain and chosen["recovery"] == plain["recovery"]
                    and chosen["sums"] == "sums by messages: NCCL adds up in the memory of GPUs, and the devices are cpu")
    joined, lost = plain["recovery"]["live"]["events"]
    step_ms = joined["iteration_ms"]
    told = plain["costs"], plain["pace"], [event["kind"] for event in (joined, lost)], joined["pipelines"], lost["pipelines"]
    commands.expect("a replay of the job's own nodes", answer, told == ("computed", 1, ["joined", "lost"], [1] * 3, [1] * 2))
    commands.expect("a node starts before it joins", answer, joined["time_ms"] >= 21000)
    commands.expect("a killed node is noticed at once", answer, lost["detect_ms"] == 5)
    silent = played("--lost", "silent", "cluster.heartbeat_timeout_s=7")["recovery"]["live"]["events"][1]
    commands.expect("a silent one is not", answer, silent["detect_ms"] == 7000)
    slow = played("--pace", "50")["recovery"]["live"]["events"][0]
    commands.expect("steps take as long as is said", answer, abs(slow["iteration_ms"] / step_ms - 50) < 1e-6)
    # Where steps take long a job waits for a node that has been on its way for half a second when another one goes.
    (commands.folder / "window.csv").write_text("0,add,a\n0,add,b\n0,add,c\n59500,add,d\n60000,remove,c\n99000,remove,a\n")
    waited, = played("--pace", str(min(1000, 20000 / step_ms)), "--link-gb-per-s", "1")["recovery"]["live"]["events"]
    commands.expect("a replay waits for a node that is nearly there", answer, waited["kind"] == "lost" and waited["pipelines"] == [1] * 3
                    and abs(waited["waited_ms"] - 495) < 1e-3)
    hasty, = played("--link-gb-per-s", "1")["recovery"]["live"]["events"][:1]
    commands.expect("and goes on at once where steps are short", answer, "waited_ms" not in hasty and hasty["pipelines"] == [1] * 2)
    (commands.folder / "window.csv").write_text("0,add,a\n0,add,b\n20000,add,c\n60000,remove,b\n99000,remove,a\n")
    both = [played(*words)["recovery"] for words in (["--coordination-s", "2"], ["--loss-ms", "2000", "--join-ms", "2000"])]
    commands.expect("the older word says both", answer, both[0] == both[1] != plain["recovery"])
    # Costs of a run, whose steps take three times what its profile says.
    (commands.folder / "ran").mkdir()
    (commands.folder / "ran/events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in RUN_EVENTS))
    (commands.folder / "ran/metrics.jsonl").write_text('{"step":1,"step_ms":300,"profile_step_ms":100,"epoch_number":1}\n')
    ran = played("--costs-from", "ran")
    joined, lost = ran["recovery"]["live"]["events"]
    commands.expect("what changes cost comes from a run", answer,
                    ran["pace"] == 3 and abs(joined["iteration_ms"] / step_ms - 3) < 1e-6 and ran["changes"]["from"] == "ran"
                    and [lost[key] for key in ("detect_ms", "decide_ms", "copy_ms", "rebuild_ms")] == [1, 2, 40, 53]
                    and [joined[key] for key in ("decide_ms", "copy_ms", "rebuild_ms")] == [7, 80, 90])
    said = played("--costs-from", "ran", "--detect-ms", "11", "--pace", "1")
    commands.expect("the command line comes before the run", answer,
                    said["pace"] == 1 and said["recovery"]["live"]["events"][1]["detect_ms"] == 11)
    table = commands.run(*own[:-3], "--recovery", "both")
    commands.expect("its table has both ways to recover", table, "live    checkpoint" in table.stdout and "1 x cpu each" in table.stdout)
    for what, said, words in (("shares of a catalogued device", "--cluster", ["--compute-share", "0.5"]),
                              ("a pace of machines that are not here", "--pace", ["--pace", "2", "--cluster", "3x1xA40"]),
                              ("more nodes than places", "raise cluster.nodes", ["cluster.local_nodes=2"]),
                              ("costs of no run", "events.jsonl", ["--costs-from", "nowhere"])):
        commands.expect_refusal(f"replay refuses {what}", commands.run(*own, *words), said)


def check_one_number(commands, words):
    """Headline, table, drawing, JSON and timeline are of one step."""
    answer = commands.run("plan", *words, "--json", "--timeline", "one.json")
    planned = json.loads(answer.stdout)
    commands.expect("batches of the data take different times, or this shows nothing", answer,
                    planned["step_ms_min"] < planned["step_ms"] < planned["step_ms_max"])
    slices = [event for event in json.loads((commands.folder / "one.json").read_text()) if event["ph"] == "X"]
    end_ms = max(event["ts"] + event["dur"] for event in slices) / 1000
    commands.expect("the timeline is of the planned step", answer, abs(end_ms - planned["step_ms"]) < 0.01 * planned["step_ms"])
    work = {}
    for stage in planned["stages"]:
        device = work.setdefault((stage["node"], *stage["devices"], stage["idle"]), [])
        device.append(stage["work_ms"])
    # Sums of gradients and updates are work too, of no stage.
    commands.expect("work and idle share of a device make the step", answer, all(
        0.9 <= sum(parts) / ((1 - idle) * planned["step_ms"]) <= 1.001 for (*_, idle), parts in work.items()))
    answer = commands.run("plan", *words)
    headline = re.search(r"^predicted step ([\d.]+ m?s) ", answer.stdout, re.MULTILINE)
    drawing = re.search(r"^one step, ([\d.]+ m?s)$", answer.stdout, re.MULTILINE)
    commands.expect("headline and drawing say one time", answer, headline and drawing and headline[1] == drawing[1])
    commands.expect("reasons compare without another time", answer, not re.search(r"\d ms", answer.stdout.split("\nwhy:\n")[1].split("\none step")[0]
                                                                                 .split("suggestion:")[0]))
    commands.expect("a plan fits 80 columns", answer, max(map(len, answer.stdout.splitlines())) <= 80)


def check_own_numbers(commands):
    """Module groups with numbers of replicas of their own: pinned, chosen, saved, and what whatif says of them."""
    text = re.sub(r"\[\[parallel\.pipelines\]\]\nstages = \[.*?\n\]\n", "", DEMO.read_text(), flags=re.DOTALL)
    (commands.folder / "open.toml").write_text(text)
    data = f"data.sources[0].json={commands.folder}/demo/samples.json"
    pinned = ["parallel.vision.dp=2", "parallel.audio.dp=1", "parallel.llm.dp=3"]
    words = ["open.toml", data, "cluster.local_nodes=6"]
    answer = commands.run("plan", *words, *pinned, "--json", "--save", "numbers.toml")
    chosen = json.loads(answer.stdout)
    commands.expect("pins give each module its number of replicas", answer, chosen["replicas"] == {"vision": 2, "audio": 1, "llm": 3})
    commands.expect("the plan says why", answer, chosen["reasons"][1]["why"] == "no layout has one number for all")
    (commands.folder / "by-replica.toml").write_text(text + (commands.folder / "numbers.toml").read_text())
    answer = commands.run("plan", "by-replica.toml", *words[1:], "--json")
    again = json.loads(answer.stdout)
    commands.expect("saved replicas are a layout by hand with the same prediction", answer,
                    again["replicas"] == chosen["replicas"] and abs(again["step_ms"] - chosen["step_ms"]) < 1e-6 * chosen["step_ms"])
    answer = commands.run("plan", *words, *pinned)
    commands.expect("a replica is a row's place", answer, all(part in answer.stdout for part in (
        "replicas: 2 of vision, 1 of audio, 3 of llm", "vision 1 ", "llm 2 ")))
    for asked, exchanged, said in (("off", 0, "nothing is exchanged"), ("per-phase", 1, "exchanged")):
        wanted = ["by-replica.toml", *words[1:], f"balancer.exchange={asked}"]
        answer = commands.run("plan", *wanted, "--json")
        found = json.loads(answer.stdout)
        commands.expect(f"plan says of phases how even they are, with exchange {asked}", answer,
                        found["exchange"] == {"asked": asked, "steps": 1, "exchanged": exchanged, "refused": None}
                        and [phase["phase"] for phase in found["phases"]] == ["vision", "audio", "llm"]
                        and all(phase["imbalance_planned"] >= phase["imbalance_bound"] - 1e-9 for phase in found["phases"]))
        answer = commands.run("plan", *wanted)
        commands.expect(f"plan shows exchange {asked}", answer, f'\nbalancer.exchange = "{asked}": {said}\n' in answer.stdout
                        and "\nlargest over mean work: vision " in answer.stdout)
        answer = commands.run("simulate", *wanted, "--steps", "3", "--json")
        found = json.loads(answer.stdout)
        phases = found["breakdown"]["phases"]
        commands.expect(f"simulate says of phases how even they are, with exchange {asked}", answer,
                        found["exchange"] == {"asked": asked, "steps": 3, "exchanged": 3 * exchanged, "refused": None}
                        and phases[0]["imbalance_drawn"] >= phases[0]["imbalance_bound"] - 1e-9 >= 1 - 2e-9
                        and 1 + 1e-9 >= phases[0]["rows_between_nodes"] >= 0)
        answer = commands.run("simulate", *wanted, "--steps", "3")
        commands.expect(f"simulate shows exchange {asked}", answer, "\nlargest over mean work: vision " in answer.stdout
                        and f'\nbalancer.exchange = "{asked}": {said}{" in 3 of 3 steps" if exchanged else ""}\n' in answer.stdout)
    shared = ["by-replica.toml", *words[1:], "balancer.exchange=per-phase", "--policy", "random", "--steps", "1", "--cluster", "H100-80G"]
    answer = commands.run("balance", *shared, "--json")
    found = json.loads(answer.stdout)
    row = found["policies"][0]
    commands.expect("balance has the loads of every phase and replica", answer, found["pipelines"][0]["first_batch_samples"] == found["samples"]
                    and [phase["phase"] for phase in row["all"]["phases"]] == ["vision", "audio", "llm"]
                    and {name: len(loads) for name, loads in row["loads_ms"].items()} == chosen["replicas"]
                    and row["llm_loads_ms"] == row["loads_ms"]["llm"][0] and row["exchange"]["exchanged"] == 1 and found["encoder_phase"] in ("vision", "audio"))
    answer = commands.run("balance", *shared)
    said = [re.search(rf"^  random +{group} +[\d.]+ +[\d.]+ +[\d.]+ ", answer.stdout, re.MULTILINE) for group in ("vision", "audio", "llm")]
    commands.expect("balance says how even phases of several replicas are", answer, said[0] and not said[1] and said[2] and " audio |" in answer.stdout
                    and '\nbalancer.exchange = "per-phase": exchanged\n' in answer.stdout)
    # The demo's encoders have devices of their own.
    moments = ["by-replica.toml", *words[1:], "scheduler.offload_encoders=moments"]
    answer = commands.run("plan", *moments, "--json")
    away = json.loads(answer.stdout)["stages"]
    commands.expect("moments in host memory are told, those of the llm stay", answer, len(away) == len(again["stages"]) and all(
        (stage["host_memory_bytes"] > 0) == (stage["runs"][0]["module"] != "llm") for stage in away)
        and not any(stage["host_memory_bytes"] for stage in again["stages"])
        and all(stage["memory_bytes"] < before["memory_bytes"] for stage, before in zip(away, again["stages"])
                if stage["host_memory_bytes"]))
    answer = commands.run("plan", *moments)
    commands.expect("plan shows host memory", answer, "\nhost memory: " in answer.stdout)
    answer = commands.run("validate", *moments)
    commands.expect("validate says what of moments is there", answer, "  moments in host memory: " in answer.stdout)
    answer = commands.run("whatif", *words, *pinned, "--lose", "1")
    commands.expect_refusal("whatif names numbers that it cannot change", answer, "2 of vision, 1 of audio, 3 of llm")

    # A heavy encoder beside two llms on five nodes: two pipelines take longer, whatever the machine.
    commands.run("profile", *words, "--budget", "1")
    profile = json.loads(next(path for path in commands.folder.glob("**/profiles/*.json") if "demo" in path.name).read_text())
    for kind in profile["kinds"]:
        for point in kind["points"]:
            ms = {"vision.merger": 2.0, "llm.head": 0.5}.get(kind["kind"], 1e-4) * point["tokens"]
            point["linear"], point["attention"] = [ms, ms, ms, point["linear"][3]], [0, 0, 0, point["attention"][3]]
    (commands.folder / "heavy.json").write_text(json.dumps(profile))
    heavy = ["open.toml", data, "cluster.local_nodes=5", "scheduler.profile=heavy.json", "parallel.llm.dp=2"]
    answer = commands.run("plan", *heavy, "--json")
    chosen = json.loads(answer.stdout)
    commands.expect("numbers of their own are chosen where they pay", answer, chosen["replicas"] == {"vision+audio": 3, "llm": 2}
                    and chosen["one_number_ratio"] > 1.02 and "2 pipelines: +" in chosen["reasons"][1]["why"])
    answer = commands.run("whatif", *heavy, "--lose", "1", "--json")
    commands.expect("whatif answers for one number and says so", answer,
                    "replicas: 3 of vision+audio, 2 of llm" in json.loads(answer.stdout)["instead"])
    check_colocated(commands, [*heavy[:2], "cluster.local_nodes=4", *heavy[3:]])


def check_colocated(commands, heavy):
    """Encoders on the devices of two llms of two stages: chosen in phases, told why, suggested elsewhere."""
    phases = [*heavy, "scheduler.schedule=three-phase"]
    answer = commands.run("plan", *phases, "--json")
    chosen = json.loads(answer.stdout)
    encoders = chosen["encoders"]
    commands.expect("encoders stand on the llm's devices where that pays", answer, 4 in (chosen["replicas"].get("vision"), chosen["replicas"].get("vision+audio"))
                    and chosen["replicas"]["llm"] == 2 and encoders["placement"] == "shared" and encoders["other"]["placement"] != "shared" and encoders["other"]["ratio"] > 1)
    why = {reason["choice"]: reason["why"] for reason in chosen["reasons"]}
    commands.expect("the plan says by how much", answer, re.search(
        r"^time per step with encoders .*: \+\d+ %; devices then wait for \d+ % of it, here for \d+ %$", why["encoders on devices of the llm"]))
    answer = commands.run("plan", *heavy, "--json")
    apart = json.loads(answer.stdout)
    found = [one for one in apart["suggestions"] if one["key"] == "scheduler.schedule"]
    commands.expect("elsewhere it is suggested", answer, apart["replicas"] != chosen["replicas"] and len(found) == 1
                    and found[0]["value"] in ("dip", "three-phase") and found[0]["text"].endswith(", with encoders on devices of the llm"))
    taken = json.loads(commands.run("plan", *heavy, f"scheduler.schedule={found[0]['value']}", "--json").stdout)
    commands.expect("and the suggestion holds what it says", answer, abs(taken["step_ms"] - found[0]["step_ms"]) < 1e-6 * taken["step_ms"]
                    and taken["encoders"]["placement"] == "shared")
    refused = commands.run("plan", *heavy, "parallel.vision.dp=4", "parallel.audio.dp=4")
    commands.expect_refusal("numbers that need shared devices name the schedule", refused, "three-phase")


def check_suggestions(commands, words):
    """What is suggested has the step time that a plan of it has."""
    few = [*words, "parallel.llm.dp=1", "train.global_batch_size=16", "train.microbatches=1"]
    answer = commands.run("plan", *few, "--json")
    planned = json.loads(answer.stdout)
    found = [one for one in planned["suggestions"] if one["key"] == "train.microbatches"]
    commands.expect("more microbatches are suggested where they pay", answer, len(found) == 1 and found[0]["step_ms"] <= 0.95 * planned["step_ms"])
    taken = commands.run("plan", *few, f"train.microbatches={found[0]['value']}", "--json")
    commands.expect("a suggestion holds what it says", taken, abs(json.loads(taken.stdout)["step_ms"] - found[0]["step_ms"]) < 1e-6 * found[0]["step_ms"])
    commands.expect("once it is taken there is nothing to suggest", taken, not [
        one for one in json.loads(taken.stdout)["suggestions"] if one["key"] == "train.microbatches"])
    answer = commands.run("plan", *few)
    commands.expect("plan says so", answer, f"\nsuggestion: train.microbatches={found[0]['value']} takes " in answer.stdout)
    # Of many microbatches a device pays every time what a launch costs.
    many = ["job.toml", "train.global_batch_size=16", "train.microbatches=16", "cluster.local_nodes=1"]
    answer = commands.run("plan", *many, "--json")
    found = [one for one in json.loads(answer.stdout)["suggestions"] if one["key"] == "train.microbatches"]
    commands.expect("fewer are suggested where those pay", answer, found and int(found[0]["value"]) < 16)
    # All forwards before all backwards leave devices idle, which a schedule of smaller parts does not.
    idle = [*words, "parallel.llm.dp=1", "train.global_batch_size=16", "train.microbatches=4", "scheduler.schedule=gpipe"]
    answer = commands.run("plan", *idle, "--json")
    planned = json.loads(answer.stdout)
    found = [one for one in planned["suggestions"] if one["key"] == "scheduler.schedule"]
    commands.expect("another schedule is suggested where it pays", answer, len(found) == 1 and found[0]["step_ms"] <= 0.95 * planned["step_ms"])
    taken = commands.run("plan", *idle, f"scheduler.schedule={found[0]['value']}", "--json")
    commands.expect("and holds what it says", taken, abs(json.loads(taken.stdout)["step_ms"] - found[0]["step_ms"]) < 1e-6 * found[0]["step_ms"]
                    and not [one for one in json.loads(taken.stdout)["suggestions"] if one["key"] == "scheduler.schedule"])
    # Two layers and four short samples on 32 devices.
    answer = commands.run("plan", "job.toml", "--cluster", "4x8xH100-80G", "--json")
    found = [one for one in json.loads(answer.stdout)["suggestions"] if one["key"] == "--cluster"]
    commands.expect("a toy on 32 devices is told that two would do", answer, [one["value"] for one in found] == ["1x2xH100-80G"]
                    and found[0]["text"].startswith("2 devices would do: "))
    taken = commands.run("plan", "job.toml", "--cluster", "1x2xH100-80G", "--json")
    commands.expect("and two take what it says", taken, abs(json.loads(taken.stdout)["step_ms"] - found[0]["step_ms"]) < 1e-6 * found[0]["step_ms"]
                    and not [one for one in json.loads(taken.stdout)["suggestions"] if one["key"] == "--cluster"])
    large = ["modules.llm.config.num_hidden_layers=32", "modules.llm.config.hidden_size=4096", "modules.llm.config.intermediate_size=11008",
             "modules.llm.config.num_attention_heads=32", "modules.llm.config.num_key_value_heads=32", "train.global_batch_size=512", "train.microbatches=16"]
    answer = commands.run("plan", "job.toml", *large, "--cluster", "1x8xH100-80G", "--json")
    commands.expect("a large model needs its devices", answer, not [one for one in json.loads(answer.stdout)["suggestions"] if one["key"] == "--cluster"])


def check_planned_only(commands):
    """What training cannot do here can be planned, and stages of different widths find devices."""
    words = ["plan", "job.toml", "cluster.fault_tolerance=1", "cluster.device=cuda", "train.global_batch_size=8", "train.microbatches=4"]
    answer = commands.run(*words, "parallel.llm.dp=2", "--cluster", "4x1xH100-80G", "--json")
    commands.expect("plan says what the same bits cost on GPUs", answer, "ends the job" in reasons_of(answer).get("deterministic operators", ""))
    templates = json.loads(answer.stdout)["templates"]
    commands.expect("templates reach from the fewest nodes to all but one pipeline's", answer, [made["nodes"] for made in templates] == [1, 2, 3]
                    and all(made["stages"][0]["layers"][0] == 0 and made["stages"][-1]["layers"][1] == 6 for made in templates)
                    and all(a["microbatch_ms"] > b["microbatch_ms"] > 0 for a, b in zip(templates, templates[1:])))
    commands.expect("two pipelines are two copies", answer, json.loads(answer.stdout)["standby"]["copies"] == 2)
    answer = commands.run(*words, "parallel.llm.dp=2", "--cluster", "4x1xH100-80G", "--json", "train.deterministic=false")
    commands.expect("plan says that bits may differ", answer, "from run to run" in reasons_of(answer).get("any operators", "") and
                    "deterministic operators" not in reasons_of(answer))
    answer = commands.run(*words, "parallel.llm.dp=2", "--cluster", "4x1xH100-80G")
    commands.expect("plan says that replicas keep the promise for nothing", answer, "\nstandby holders keep 0 B more: replicas have everything on 2 nodes, "
                    "so that 1 may be lost (cluster.fault_tolerance)\n" in answer.stdout)
    answer = commands.run("plan", "job.toml", "parallel.mode=auto", "cluster.nodes=2", "cluster.local_nodes=2", "cluster.fault_tolerance=1",
                          "train.global_batch_size=8", "train.microbatches=4", "--json")
    commands.expect("plan says whether a job begins with templates", answer, "from templates" in json.loads(answer.stdout)["reasons"][-1]["choice"])
    one = [*words, "parallel.llm.dp=1", "--cluster", "4x1xH100-80G"]
    answer = commands.run(*one, "--json")
    standby = json.loads(answer.stdout)["standby"]
    commands.expect("one pipeline is kept twice by standby holders", answer, standby["fault_tolerance"] == 1 and standby["copies"] == 2
                    and standby["bytes"] == sum(node["bytes"] for node in standby["nodes"]) > 0
                    and all(node["memory_bytes"] >= node["bytes"] for node in standby["nodes"])
                    and sum(end - begin for node in standby["nodes"] for begin, end in (run["layers"] for run in node["runs"])) == 6)
    answer = commands.run(*one)
    commands.expect("plan shows them", answer, "standby holders keep " in answer.stdout and "everything is on 2 nodes" in answer.stdout)
    commands.expect("plan shows templates", answer, "\ntemplates, by nodes of a pipeline:\n" in answer.stdout)
    answer = commands.run(*[word for word in one if "fault_tolerance" not in word])
    commands.expect("without losses nobody stands by", answer, "standby" not in answer.stdout)
    answer = commands.run("whatif", *words[1:], "--cluster", "4x1xH100-80G", "--lose", "1", "--json")
    commands.expect("whatif takes a job that is to survive", answer, json.loads(answer.stdout)["lost"] == [1])
    # Without standby holders the same loss takes the last holder (bad_input.py).
    answer = commands.run("whatif", *words[1:], "parallel.llm.dp=1", "parallel.llm.pp=2", "--cluster", "2x1xH100-80G", "--lose", "1", "--json")
    commands.expect("whatif finds what standby holders keep", answer, json.loads(answer.stdout or "{}").get("copies") == [])
    answer = commands.run("simulate", *words[1:], "--cluster", "4x1xH100-80G", "--steps", "1", "--json")
    commands.expect("simulate takes one, too", answer, json.loads(answer.stdout)["step_ms"] > 0)
    # One vision device beside an llm of two or eight: others stay idle.
    vision = ['modules.vision={kind = "encoder", family = "qwen2-vl"}', "modules.vision_projector.kind=projector", "parallel.vision.tp=1"]
    for cluster, tp in (("1x3xH100", 2), ("2x8xH100", 8)):
        answer = commands.run("plan", "job.toml", *vision, f"parallel.llm.tp={tp}", "modules.llm.config.num_attention_heads=8", "--cluster", cluster, "--json")
        stages = json.loads(answer.stdout)["stages"]
        commands.expect(f"stages of {tp} devices beside one", answer, {len(stage["devices"]) for stage in stages} == {1, tp} and {stage["tp"] for stage in stages} == {1, tp})


def check_grids(commands):
    """Stages on several devices are planned, saved and planned again by hand; they are not trained yet."""
    cluster, words = "1x4xH100-80G", ["job.toml", "parallel.llm.tp=2", "parallel.llm.pp=2", "parallel.llm.dp=1", "train.global_batch_size=8", "train.microbatches=4"]
    answer = commands.run("plan", *words, "--cluster", cluster, "--save", "grid.toml", "--json")
    chosen = json.loads(answer.stdout)
    commands.expect("a grid names its devices", answer, [stage["devices"] for stage in chosen["stages"]] == [[0, 1], [2, 3]]
                    and all(stage["tp"] == 2 and stage["cp"] == 1 for stage in chosen["stages"]))
    saved = (commands.folder / "grid.toml").read_text()
    commands.expect("and the saved layout too", answer, "devices = [0, 1], tp = 2" in saved and "devices = [2, 3], tp = 2" in saved)
    (commands.folder / "by-hand.toml").write_text((commands.folder / "job.toml").read_text() + "\n" + saved)
    hand = ["by-hand.toml", "cluster.devices_per_node=4", "train.global_batch_size=8", "train.microbatches=4"]
    answer = commands.run("plan", *hand, "--json")
    again = json.loads(answer.stdout)
    commands.expect("by hand it is the same layout", answer, [(stage["runs"], stage["devices"], stage["tp"]) for stage in again["stages"]]
                    == [(stage["runs"], stage["devices"], stage["tp"]) for stage in chosen["stages"]] and again["chosen"] is False)
    answer = commands.run("plan", *hand)
    commands.expect("plan shows its devices", answer, " 0-1 " in answer.stdout and "n0.d2 x2" in answer.stdout)
    three = ["job.toml", "parallel.llm.tp=2", "parallel.llm.pp=1", "parallel.llm.dp=3", "cluster.fault_tolerance=1", "train.global_batch_size=12", "train.microbatches=4", "--cluster", "3x2xH100-80G"]
    step_ms = json.loads(commands.run("plan", *three, "--json").stdout)["step_ms"]
    answer = commands.run("whatif", *three, "--lose", "1", "--json")
    before_ms = json.loads(answer.stdout)["before"]["iteration_ms"]
    # Sums and updates are not in it; counted on both of its devices, a stage would take a quarter more.
    commands.expect("whatif counts a stage of two devices once", answer, 0.7 * step_ms < before_ms < 1.01 * step_ms)
    for command in ("validate", "train"):
        answer = commands.run(command, *hand)
        commands.expect_refusal(f"{command} says that it cannot run it", answer, "tp 2, cp 1): such layouts are planned and simulated, but not trained yet")


def check_batch_sizes(commands, media):
    """Two samples of pictures or tones have not the mix of work that a layout of eight devices is made for."""
    few = [str(DEMO), "parallel.pipelines=[]", f"data.sources[0].json={commands.folder}/demo/samples.json", "train.microbatches=1", "train.global_batch_size=2", "--cluster", "1x8xH100-80G"]
    answer = commands.run("plan", *few, "--json")
    planned = json.loads(answer.stdout)
    commands.expect("plan names the smallest batch with the data's mix", answer, planned["b_min"] > 2
                    and len(planned["warnings"]) == 1 and f"from {planned['b_min']} on" in planned["warnings"][0])
    answer = commands.run("plan", *few)
    commands.expect("a batch below it is warned of", answer, "\nwarning: a batch of 2 samples" in answer.stdout)
    answer = commands.run("plan", "job.toml", "train.global_batch_size=1", "train.microbatches=1", "--json")
    commands.expect("text alone has no mix to miss", answer, json.loads(answer.stdout)["warnings"] == [])
    uneven = ["job.toml", *media, "data.sources[0].json=uneven/samples.json", "cluster.local_nodes=2", "train.global_batch_size=8"]
    check_one_number(commands, uneven)
    check_suggestions(commands, uneven)
    two = [*media, "cluster.local_nodes=2", "train.global_batch_size=8", "train.microbatches=4"]
    answer = commands.run("plan", "job.toml", *two, "--json")
    commands.expect("batches in order need no judge", answer, json.loads(answer.stdout)["judged"] == 0)
    answer = commands.run("plan", "job.toml", *two, "balancer.policy=deferral-chain", "--json")
    judged = json.loads(answer.stdout)["judged"]
    commands.expect("the best layouts are compared as the policy cuts batches", answer, 2 <= judged <= 8)
    answer = commands.run("plan", "job.toml", *two, "balancer.policy=deferral-chain", "cluster.device=cuda", "--cluster", "2x1xH100-80G", "--json")
    commands.expect("plan says of layouts that were compared so what the same bits cost", answer, json.loads(answer.stdout)["judged"] >= 2 and
                    "ends the job" in reasons_of(answer).get("deterministic operators", ""))


def check_trace(commands, what, answer, said):
    """One lane for each device with a stage, one forward and one backward for each stage and microbatch, in no two at once."""
    slices = [event for event in json.loads((commands.folder / "step.json").read_text()) if event["ph"] == "X"]
    tasks = len(said["stages"]) * said["microbatches"]
    kinds = [event["args"]["kind"] for event in slices]
    lanes = {(event["pid"], event["tid"]) for event in slices}
    good = kinds.count("forward") == kinds.count("backward") == tasks > 0
    good = good and len(lanes) == len({(stage["node"], *stage["devices"]) for stage in said["stages"]})
    for lane in lanes:
        work = sorted((event["ts"], event["ts"] + event["dur"]) for event in slices
                      if (event["pid"], event["tid"]) == lane and event["cat"] == "compute")
        good = good and all(first[1] <= second[0] + 1e-6 * second[0] for first, second in zip(work, work[1:]))
    commands.expect(what, answer, good)


def check_simulation(commands, two):
    answer = commands.run("simulate", "job.toml", *two)
    commands.expect("simulate says how long and who works", answer,
                    all(text in answer.stdout for text in ("8 steps: ", "bubble", "works", "pipeline fill", "boundary", "imbalance: ", "the first step, ", "\nn1.d0 ")))
    answer = commands.run("simulate", "job.toml", *two, "--steps", "3", "--json", "--timeline", "step.html")
    steps = json.loads(answer.stdout)
    commands.expect("a simulated step is no faster than its busiest device", answer, len(steps["steps"]) == 3
                    and all(step["step_ms"] >= step["lower_bound_ms"] > 0 for step in steps["steps"]))
    parts = steps["breakdown"]
    whole = parts["work_ms"] + parts["fill_ms"] + parts["boundary_ms"] + parts["rest_ms"]
    commands.expect("what a simulated step consists of adds up to it", answer, abs(whole - steps["step_ms"]) <= 1e-6 * steps["step_ms"]
                    and abs(parts["work_ms"] - steps["lower_bound_ms"]) <= 1e-6 * steps["step_ms"]
                    and parts["fill_ms"] >= 0 and parts["boundary_ms"] == 0 and parts["rest_ms"] >= 0)
    commands.expect("each phase has an imbalance", answer, [phase["phase"] for phase in parts["phases"]] == ["llm"]
                    and all(phase["largest_ms"] >= phase["even_ms"] * (1 - 1e-9) > 0 for phase in parts["phases"])
                    and steps["exchange"] is None and abs(parts["phases"][0]["imbalance_drawn"] - 1) < 1e-9)
    asked = commands.run("simulate", "job.toml", *two, "--steps", "1", "balancer.exchange=per-phase")
    commands.expect("an exchange that there cannot be is told", asked,
                    'balancer.exchange = "per-phase": nothing is exchanged: no encoder has two replicas to share work' in " ".join(asked.stdout.split()))
    commands.expect("the mean lies between the extremes", answer,
                    steps["step_ms_min"] <= steps["step_ms"] <= steps["step_ms_max"] and steps["completed"])
    commands.expect("a timeline is a page", answer, "<html" in (commands.folder / "step.html").read_text())
    answer = commands.run("simulate", "job.toml", *two, "--steps", "3", "--noise", "0.3", "--seed", "5", "--json", "--timeline", "step.json")
    noisy = json.loads(answer.stdout)
    commands.expect("noise changes times", answer, noisy["steps"] != steps["steps"])
    check_trace(commands, "a timeline of simulate is a trace", answer, noisy)
    answer = commands.run("plan", "job.toml", *two, "train.global_batch_size=6", "train.microbatches=3", "--json", "--timeline", "step.json")
    check_trace(commands, "a timeline of plan is a trace", answer, json.loads(answer.stdout))
    answer = commands.run("plan", "job.toml", *two, "--json", "--timeline", "plan.html")
    commands.expect("a timeline of plan is a page", answer, "<html" in (commands.folder / "plan.html").read_text())
    for name, says in (("plan", ("searching for a layout", "making pipeline templates")), ("whatif", ("searching for a layout", "planning the change"))):
        more = ["--lose", "1", "parallel.llm.dp=2"] if name == "whatif" else []
        answer = commands.run_on_terminal(name, "job.toml", *two, "train.global_batch_size=4", "--json", *more)
        commands.expect(f"{name} says on a terminal what it is busy with, and cleans up", answer, json.loads(answer.stdout)
                        and all(text in answer.stderr for text in says) and answer.stderr.endswith("\r\x1b[K"))
    again = commands.run("simulate", "job.toml", *two, "--steps", "3", "--noise", "0.3", "--seed", "5", "--json")
    commands.expect("the same seed gives the same steps", again, json.loads(again.stdout) == noisy)
    answer = commands.run("simulate", "job.toml", *two, "--fail", "1@0.001", "--json")
    commands.expect("a node that stops costs the step", answer, json.loads(answer.stdout)["completed"] is False)
    answer = commands.run("simulate", "job.toml", *two, "--fail", "1@0.001")
    commands.expect("a lost step is called so", answer, "the step is lost" in answer.stdout)

    # Two pipelines of two nodes. By hand: without node 1, node 0 has all layers of its pipeline, so it
    # lacks what node 1 held and gets it from pipeline 1.
    stages = [[f"{{node={2 * p}, llm=[0, 2]}}", f"{{node={2 * p + 1}, llm=[2, 4]}}"] for p in range(2)]
    layout = "parallel.pipelines=[" + ",".join("{stages=[" + ",".join(s) + "]}" for s in stages) + "]"
    four = ["cluster.local_nodes=4", "modules.llm.config.num_hidden_layers=2", layout]
    answer = commands.run("whatif", "job.toml", *four, "--lose", "1", "--json")
    change = json.loads(answer.stdout)
    commands.expect("whatif reinstantiates a pipeline that lost a node", answer,
                    [(p["nodes"], p["change"]) for p in change["after"]["pipelines"]] == [([0], "reinstantiated"), ([2, 3], "kept")])
    commands.expect("whatif copies the lost layers from who has them", answer,
                    [(copy["from"], copy["to"]) for copy in change["copies"]] == [(3, 0), (3, 0)]
                    and change["max_sent_bytes"] == change["lower_bound_bytes"] == sum(copy["bytes"] for copy in change["copies"]))
    commands.expect("a loss costs time", answer, change["after"]["step_ms"] > change["before"]["step_ms"] > 0)
    answer = commands.run("whatif", "job.toml", *four, "--lose", "0,1", "--join", "2", "--json")
    change = json.loads(answer.stdout)
    commands.expect("joined nodes form pipelines", answer, change["joined"] == [4, 5]
                    and {p["change"] for p in change["after"]["pipelines"]} == {"created", "kept"}
                    and {copy["to"] for copy in change["copies"]} == {4, 5})
    answer = commands.run("whatif", "job.toml", *four, "--lose", "1")
    commands.expect("whatif says what becomes of pipelines", answer,
                    all(text in answer.stdout for text in ("lost: 1\n", "what is left of pipeline 0", "as pipeline 1 was", "copies: 2 layers")))
    # A node holds half of the model, not all: a pipeline that is left with one node borrows the last one of a longer pipeline,
    # or, where all others are as short as can be, joins the first of them.
    pairs = [[f"{{node={2 * p}, llm=[0, 3]}}", f"{{node={2 * p + 1}, llm=[3, 6]}}"] for p in range(3)]
    three = [f"{{node={2 + n}, llm=[{2 * n}, {2 * n + 2}]}}" for n in range(3)]
    for pipelines, nodes, expected in (([pairs[0], three], 5, [([0, 4], "borrowed", [0, 1]), ([2, 3], "reinstantiated", [1])]),
                                       (pairs, 6, [([4, 5], "kept", [2]), ([0, 2, 3], "merged", [0, 1])])):
        layout = "parallel.pipelines=[" + ",".join("{stages=[" + ",".join(stages) + "]}" for stages in pipelines) + "]"
        answer = commands.run("whatif", "job.toml", f"cluster.local_nodes={nodes}", layout, "cluster.device_memory_gib=0.012",
                              f"train.global_batch_size={2 * len(pipelines)}", "train.microbatches=2", "--lose", "1", "--json")
        after = json.loads(answer.stdout)["after"]["pipelines"]
        commands.expect(f"whatif: {expected[-1][1]}", answer, [(p["nodes"], p["change"], p["sources"]) for p in after] == expected)
    # Six layers are on three nodes of two devices; the fourth is idle.
    idle = ["job.toml", "--cluster", "4x2xH100", "parallel.llm.dp=1"]
    answer = commands.run("whatif", *idle, "--lose", "3", "--json")
    change = json.loads(answer.stdout)
    commands.expect("an idle node is no loss", answer, change["lost"] == [3] and not change["copies"]
                    and change["after"]["pipelines"][0]["change"] == "kept" and change["costs"] == "computed")
    answer = commands.run("whatif", *idle, "--join", "1", "--json")
    commands.expect("a node joins machines that are not here", answer, json.loads(answer.stdout)["joined"] == [4])
    commands.expect("whatif says what is computed alone", answer, {kind["factor"] for kind in json.loads(answer.stdout)["corrections"]["kinds"]} == {None})


def check_memory(commands):
    """A layout by hand whose state does not fit is answered with one sentence, whoever is asked."""
    pair = ["cluster.local_nodes=2", "parallel.pipelines=[{stages=[{node=0,llm=[0,300]},{node=1,llm=[300,602]}]}]",
            "modules.llm.config={hidden_size=16384,num_hidden_layers=600,intermediate_size=65536,num_attention_heads=128}",
            "train.global_batch_size=4", "train.microbatches=1"]
    for memory, where in ((), "the nodes of this machine"), (("cluster.device_memory_gib=20",), "device 0 of node 0"):
        said = set()
        for command in ("validate", "plan", "simulate", "train"):
            answer = commands.run(command, "job.toml", *pair, *memory)
            found = re.search(r"parameters, gradients and optimizer of .* take .*, there are [^;\n]*", answer.stderr)
            # Another machine may have room for what this one has not.
            code = 0 if command == "validate" and not memory else 2
            commands.expect(f"{command} says that state does not fit", subprocess.CompletedProcess("", answer.returncode != code, answer.stdout, answer.stderr),
                            found and where in found[0])
            said.add(found[0] if found else "")
        commands.expect(f"one sentence for {where}", subprocess.CompletedProcess("", 0, "\n".join(said), ""), len(said) == 1)


# Clears a screen, and turns the direction of what follows.
ACTING = "\x1b[2J\u202eelif"


def model_of(value):
    """A file of one tensor with a name that would act on a terminal."""
    header = json.dumps({f"llm.{ACTING}": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, ensure_ascii=False).encode()
    return struct.pack("<Q", len(header)) + header + struct.pack("<f", value)


def check_terminal(commands):
    """What stands in data sets and run folders does not act on a terminal."""
    def expect_shown(what, answer, times, code=0):
        said = answer.stdout + answer.stderr
        commands.expect(what, subprocess.CompletedProcess("", 0 if answer.returncode == code else 1, answer.stdout, answer.stderr),
                        "\x1b" not in said and "\u202e" not in said and said.count("\\x1b[2J\\u202eelif") == times)

    bad = {"id": ACTING + "2", "image": ACTING, "conversations": [{"from": "human", "value": "<image>"}, {"from": "gpt", "value": "x"}]}
    (commands.folder / "acting.json").write_text(json.dumps([{**SAMPLES[0], "id": ACTING}, bad]))
    source = "data.sources[0].json=acting.json"
    # The id of a good sample; of a bad one its id, its file and what was not found.
    expect_shown("data show writes ids and reasons out", commands.run("data", "show", "job.toml", source), 3)
    expect_shown("data check writes them out", commands.run("data", "check", "job.toml", source), 4, code=3)

    run = commands.folder / "acting"
    run.mkdir()
    resolved = commands.run("validate", "job.toml", "--resolved", source, "train.global_batch_size=2", "train.microbatches=1")
    (run / "resolved.toml").write_text(resolved.stdout)
    twice = "".join(json.dumps({"step": step, "ids": [ACTING, ACTING]}) + "\n" for step in (1, 2))
    (run / "samples.jsonl").write_text(twice)
    expect_shown("data audit writes ids out", commands.run("data", "audit", "acting"), 2, code=1)

    for name, value in (("acting-a", 1), ("acting-b", 2)):
        (commands.folder / name / "model").mkdir(parents=True)
        (commands.folder / name / "model" / "model.safetensors").write_bytes(model_of(value))
    expect_shown("compare writes names out", commands.run("compare", "acting-a", "acting-b"), 1)

    commands.run("train", "job.toml", "train.steps=1", "job.run_dir=acting-saved", "checkpoint.every_steps=1", "train.global_batch_size=4", "--reference")
    manifest = commands.folder / "acting-saved" / "checkpoints" / "step-1" / "manifest.json"
    made = json.loads(manifest.read_text())
    made["job"] = made["written_at"] = made["build"] = ACTING
    manifest.write_text(json.dumps(made))
    expect_shown("checkpoint show writes out what was saved", commands.run("checkpoint", "show", "acting-saved"), 3)
    expect_shown("checkpoint list does so too", commands.run("checkpoint", "list", "acting-saved"), 1)
    check_parts(commands, manifest)


def check_parts(commands, manifest):
    """A part of a newer state than the checkpoint's is told with the checkpoint, and to who looks at the job."""
    made = json.loads(manifest.read_text())
    lost = made["shards"].pop(0)
    made["missing"] = [{**{key: lost[key] for key in ("parameter", "kind", "box")}, "held_by": "node 1"}]
    made["progress"]["step"] = 2
    part = manifest.parents[1] / "step-2.incomplete-1"
    part.mkdir()
    (part / "manifest.json").write_text(json.dumps(made))
    name = made["parameters"][lost["parameter"]]["name"]
    words = ["of step 2 only a part is saved; nobody held any more " + name, "(last held by node 1)", "where another save of step 2 has that"]
    shown = commands.run("checkpoint", "show", "acting-saved")
    commands.expect("checkpoint show tells of a newer part", shown,
                    "progress    step 1," in shown.stdout and "newer  " in shown.stdout and all(word in shown.stdout for word in words))
    shown = commands.run("checkpoint", "show", "acting-saved", "--json")
    of_part = json.loads(shown.stdout).get("incomplete", {"where": "", "error": "", "fix": ""})
    commands.expect("and so for programs", shown, of_part["where"].endswith(part.name) and words[0] in of_part["error"] and words[2] in of_part["fix"])
    verified = commands.run("checkpoint", "verify", "acting-saved")
    commands.expect("checkpoint verify tells of it beside what is whole", verified,
                    "step 1: " in verified.stdout and "step 2: " in verified.stdout and all(word in verified.stdout for word in words))
    verified = commands.run("checkpoint", "verify", "acting-saved", "--json")
    row = json.loads(verified.stdout)[-1]
    commands.expect("and so for programs", verified, (row["step"], row["whole"], row["incomplete"]) == (2, False, of_part))
    verified = commands.run("checkpoint", "verify", "acting-saved", "--step", "1")
    commands.expect("not of another step than it is asked for", verified, "step 2" not in verified.stdout)
    shown = commands.run("checkpoint", "show", "acting-saved", "--step", "1")
    commands.expect("not where an older step is asked for", shown, "newer  " not in shown.stdout)
    warned = commands.run("validate", "job.toml", "job.run_dir=acting-saved")
    commands.expect("validate warns of a part that a run before has left", warned,
                    all(word in warned.stderr for word in words) and "the newest whole checkpoint is of step 1" in warned.stderr)


def check_layers(commands):
    """Layers are held against what stages promise; without --data the job's data need not be there."""
    (commands.folder / "elsewhere.toml").write_text(JOB.replace("samples.json", "nowhere.json"))
    answer = commands.run("check", "elsewhere.toml", "--layers", "--json")
    stages = json.loads(answer.stdout or '{"stages": []}')["stages"]
    commands.expect("check without data", answer,
                    [(stage["kind"], stage["alike"]) for stage in stages] == [("llm.embed", 1), ("llm.block", 4), ("llm.head", 1)]
                    and all("moved" in stage["kept"] and not stage["breaches"] and not stage["not_tried"] for stage in stages))
    refused = commands.run("check", "elsewhere.toml", "--data")
    commands.expect_refusal("check on data that are not there", refused, "nowhere.json")
    answer = commands.run("check", "job.toml", "--data", "--samples", "2")
    commands.expect("check on the job's data", answer, "All promises are kept." in answer.stdout and "llm 0-5" in answer.stdout)


def main(binary):
    with tempfile.TemporaryDirectory() as folder:
        commands = Commands(binary, pathlib.Path(folder))
        (commands.folder / "job.toml").write_text(JOB)
        (commands.folder / "samples.json").write_text(json.dumps(SAMPLES))
        check_all(commands)
    print(f"{commands.failed} answers are wrong")
    return 1 if commands.failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
