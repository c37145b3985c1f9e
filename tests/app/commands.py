#!/usr/bin/python3
"""What the commands answer when all is well: exit code 0, results on stdout, nothing else there with --json.

    commands.py TROUPE
"""

import json
import pathlib
import subprocess
import sys
import tempfile

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

    def expect(self, what, answer, good):
        if answer.returncode == 0 and good:
            return
        self.failed += 1
        print(f"{what}: exit code {answer.returncode}\n{answer.stdout[-800:]}{answer.stderr[-800:]}")


def check_all(commands):
    answer = commands.run("--help")
    commands.expect("help names every command", answer,
                    all(f"\n  {name} " in answer.stdout for name in ("validate", "data", "compare", "solve", "plan", "report")))
    for name in ("validate", "compare", "solve", "data"):
        answer = commands.run(name, "--help")
        commands.expect(f"{name} explains itself", answer, "Usage:" in answer.stdout and not answer.stderr)
    answer = commands.run("--version")
    commands.expect("version has build facts", answer,
                    all(word in answer.stdout for word in ("troupe ", "compiler", "LibTorch", "CAF", "UCX")))

    answer = commands.run("validate", "job.toml", "train.steps=3", "--set", "job.seed=7")
    commands.expect("a good job has no problems", answer, "job.toml: no problems" in answer.stdout and not answer.stderr)
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
    answer = commands.run("balance", "job.toml", "--policy", "all", *batch)
    commands.expect("balance shows every policy", answer, "balanced-chain" in answer.stdout and "auto" in answer.stdout)

    answer = commands.run("data", "make", "demo", "-n", "10")
    commands.expect("data make writes a data set", answer, "wrote 10 samples" in answer.stdout)
    media = ['modules.vision={kind = "encoder", family = "qwen2-vl"}', 'modules.vision_projector.kind=projector',
             'modules.audio={kind = "encoder", family = "whisper"}', 'modules.audio_projector.kind=projector']
    answer = commands.run("data", "check", "job.toml", "data.sources[0].json=demo/samples.json", *media)
    commands.expect("what data make wrote is good", answer, "dropped none" in answer.stdout)

    check_planning(commands)
    answer = commands.run("solve", "--list")
    names = [line.split()[0] for line in answer.stdout.splitlines()]
    commands.expect("solve lists its problems", answer, "post-balance" in names)
    for name in names:
        answer = commands.run("solve", "--schema", name)
        commands.expect(f"solve --schema {name}", answer, len(answer.stdout) > 20)
    answer = commands.run("solve", "rearrange", stdin=json.dumps({"first": [[[0, 1]], [[0, 0]]], "second": [[[1, 0]], [[0, 0]]]}))
    commands.expect("solve reads stdin and prints one object", answer, "compute_ms" in json.loads(answer.stdout))


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
