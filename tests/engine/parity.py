"""Parity: pipelined runs of node processes over UCX against the reference runs.

Every case trains the same job three times and compares final parameters, losses and first gradients:
the pipelined run; `--reference` (one sample at a time), within a tolerance; and
`--reference --microbatches plan`, to the bit. Uses ../shared/data/real-mini; skips without it.

    parity.py BINARY [CASE...]          prints `N passed, M failed, K skipped` last
"""

import filecmp
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
REAL_MINI = ROOT.parent / "shared" / "data" / "real-mini"
JOB = ROOT / "configs" / "real-mini.toml"
STEPS = 20

PROJECTORS_ONLY = ["modules.vision.freeze=true", "modules.audio.freeze=true", "modules.llm.freeze=true"]
THREE_STAGES = (
    "parallel.pipelines=[{stages=["
    '{node=0,vision=[0,3],audio="all"},{node=1,vision=[3,6],llm=[0,2]},{node=1,llm=[2,7]}]},'
    '{stages=[{node=2,vision="all"},{node=3,audio="all",llm=[0,4]},{node=2,llm=[4,7]}]}]'
)

# name: (overrides, which samples, steps)
CASES = {
    "fp64": (["train.dtype=fp64"], None, STEPS),
    "fp32": (["train.dtype=fp32"], None, STEPS),
    "one-microbatch": (["train.dtype=fp64", "train.microbatches=1"], None, STEPS),
    "three-microbatches": (["train.dtype=fp64", "train.microbatches=3"], None, STEPS),
    "eight-microbatches": (["train.dtype=fp32", "train.microbatches=8"], None, STEPS),
    "vision-frozen": (["train.dtype=fp64", "modules.vision.freeze=true"], None, STEPS),
    "projectors-only": (["train.dtype=fp64", *PROJECTORS_ONLY], None, STEPS),
    "text-only": (["train.dtype=fp64"], "text", STEPS),
    "text-only-projectors": (["train.dtype=fp32", *PROJECTORS_ONLY], "text", 3),
    "audio-only": (["train.dtype=fp64"], "audio", STEPS),
    "tied-head": (["train.dtype=fp64", "modules.llm.config.tie_word_embeddings=true"], None, STEPS),
    "encoders-cut": (["train.dtype=fp64", THREE_STAGES], None, STEPS),
    "bf16": (["train.dtype=bf16"], None, 5),
    "full-resolution": (["train.dtype=fp64", "data.max_pixels=1003520", "data.max_seq_len=20000"], None, 2),
}


class Failure(Exception):
    pass


def train(binary, folder, name, overrides, steps, *flags):
    """Runs a job and returns its run folder."""
    run = folder / name
    command = [str(binary), "train", str(JOB), *overrides, f"train.steps={steps}", f"job.run_dir={run}",
               "train.dump_gradients=true", "debug.parameter_hashes=true", *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if result.returncode != 0:
        raise Failure(f"{' '.join(command)}\nexit {result.returncode}\n{result.stdout[-1500:]}{result.stderr[-1500:]}")
    return run


def losses(run):
    with open(run / "metrics.jsonl", encoding="utf-8") as file:
        return [json.loads(line)["loss"] for line in file]


def same_bits(a, b, what):
    if not filecmp.cmp(a / "model/model.safetensors", b / "model/model.safetensors", shallow=False):
        raise Failure(f"final parameters differ in their bits: {what}")
    gradients = "gradients/step-1.safetensors"
    if not filecmp.cmp(a / gradients, b / gradients, shallow=False):
        raise Failure(f"gradients of step 1 differ in their bits: {what}")
    if losses(a) != losses(b):
        raise Failure(f"losses differ in their bits: {what}")


def within(binary, a, b, *tolerances):
    result = subprocess.run([str(binary), "compare", str(a), str(b), *tolerances], capture_output=True, text=True)
    if result.returncode != 0:
        raise Failure(f"compare {' '.join(tolerances)}\n{result.stdout}{result.stderr}")
    return result.stdout


def check_audit(run, steps):
    """Every step trained samples, and none twice within the epoch."""
    with open(run / "samples.jsonl", encoding="utf-8") as file:
        ids = [identity for line in file for identity in json.loads(line)["ids"]]
    if len(set(ids)) != len(ids) or len(ids) != steps * 16:
        raise Failure(f"{len(ids)} samples in samples.jsonl, {len(set(ids))} different, expected {steps * 16}")


def subset(folder, kind):
    """Writes the samples that have only text, or only audio, to a data set of their own."""
    with open(REAL_MINI / "samples.json", encoding="utf-8") as file:
        samples = json.load(file)
    wanted = {"text": lambda s: "image" not in s and "audio" not in s,
              "audio": lambda s: "audio" in s and "image" not in s}[kind]
    chosen = [sample for sample in samples if wanted(sample)]
    chosen += [dict(sample, id=f"{sample['id']}-{copy}") for copy in range(2) for sample in chosen]
    path = folder / f"{kind}.json"
    path.write_text(json.dumps(chosen), encoding="utf-8")
    return f'data.sources=[{{format="llava",json="{path}",media="{REAL_MINI}"}}]'


def run_case(binary, folder, name):
    overrides, kind, steps = CASES[name]
    if kind:
        overrides = [*overrides, subset(folder, kind)]
    pipelined = train(binary, folder, "pipelined", overrides, steps)
    check_audit(pipelined, steps)
    by_plan = train(binary, folder, "by-plan", overrides, steps, "--reference", "--microbatches", "plan")
    same_bits(pipelined, by_plan, "pipelined against --reference --microbatches plan")
    if "train.dtype=bf16" in overrides:
        return "to the bit against the plan's microbatches"
    oracle = train(binary, folder, "oracle", overrides, steps, "--reference")
    if "train.dtype=fp64" in overrides:
        within(binary, pipelined, oracle, "--rtol", "1e-10", "--loss-rtol", "1e-10", "--gradient-rtol", "1e-10")
    else:
        within(binary, pipelined, oracle, "--loss-rtol", "1e-5", "--gradient-rtol", "1e-5")
    if name == "fp64":
        again = train(binary, folder, "again", overrides, steps)
        same_bits(pipelined, again, "the same run twice")
        replayed = train(binary, folder, "replayed", overrides, steps, "--reference", "--microbatches",
                         str(pipelined))
        same_bits(pipelined, replayed, "the recorded plans replayed")
    return "ok"


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    names = sys.argv[2:] or list(CASES)
    if not REAL_MINI.is_dir():
        print(f"skipped: {REAL_MINI} is not there")
        print(f"0 passed, 0 failed, {len(names)} skipped")
        return 0
    os.environ["OMP_NUM_THREADS"] = "1"
    passed = failed = 0
    for name in names:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"troupe-parity-{name}-"))
        try:
            print(f"{name}: {run_case(binary, folder, name)}", flush=True)
            passed += 1
        except (Failure, subprocess.TimeoutExpired) as failure:
            print(f"{name}: FAILED\n{failure}", flush=True)
            failed += 1
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
