"""The work of scripts/gpu-check: what to carry to a machine with a GPU, and the steps taken there."""

import hashlib
import json
import os
import pathlib
import platform
import shlex
import signal
import sys
import tempfile

from gpu_pack import ROOT, pack, take, unpack

PARITY = ["fp64", "fp32", "bf16", "modality-fp64", "modality-deferral-split", "text-only", "two-devices-per-node", "replicas-5-3-zero-bubble",
          "standby-one-pipeline", "encoders-twice", "layouts-split-auto"]


def steps(binary, device, run):
    """Name and command of each step; the first ones are quick."""
    python, words, tests = sys.executable, device_words(binary, device), pathlib.Path(binary).parent
    demo = ["train", "configs/demo.toml", f'data.sources=[{{json="{run}/data/samples.json"}}]', f"job.run_dir={run}/demo", *words]
    halves = [[binary, *demo, "--fresh", "train.steps=20", "checkpoint.every_steps=10"],
              [binary, "train", "--resume", f"{run}/demo", "train.steps=40"]]
    profile = ["profile", "configs/demo.toml", demo[2], f"job.run_dir={run}/demo", "--force", "-v", *words]
    return {
        "doctor": [binary, "doctor", "--json"],
        "kernels": [f"{tests}/test_kernels", "[gpu]"],
        "nccl": [f"{tests}/test_engine", "[gpu]"],
        "data": [binary, "data", "make", f"{run}/data"],
        "profile": [binary, *profile],
        "demo": [binary, *demo, "--fresh"],
        **{f"parity-{case}": [python, "tests/engine/parity.py", binary, case, "--device", device] for case in PARITY},
        "recovery": [python, "tests/engine/recovery.py", binary, "a_killed_node_changes", "--device", device],
        "resume": ["sh", "-c", " && ".join(shlex.join(map(str, words)) for words in halves)],
    }


def device_words(binary, device):
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from device_words import device_words as words
    return words(binary, device)


def run(tar, out):
    out = pathlib.Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    results = out / "gpu-check.jsonl"
    device, limit_s = os.environ.get("GPU_CHECK_DEVICE", "cuda"), float(os.environ.get("GPU_CHECK_STEP_S", 150))
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()] if results.exists() else []
    of = {"device": device, "pack": hashlib.sha256((ROOT / tar).read_bytes()).hexdigest()[:16]}
    done = {line["step"] for line in lines if line["code"] == 0 and of.items() <= line.items()}
    with tempfile.TemporaryDirectory(prefix="troupe-gpu-") as folder:
        binary, environment = unpack(ROOT / tar, pathlib.Path(folder))
        wanted = os.environ.get("GPU_CHECK_STEPS", "").split()
        for name, command in steps(binary, device, folder).items():
            if (wanted and name not in wanted and name != "data") or (name in done and name != "data"):
                continue
            taken = {**take(name, command, limit_s, out / f"{name}.log", environment), **of, "machine": platform.node()}
            with open(results, "a", encoding="utf-8") as file:
                file.write(json.dumps(taken) + "\n")
            print(f"{name}: {'passed' if taken['code'] == 0 else taken['code']} ({taken['seconds']} s)", flush=True)
            if taken["code"] != 0:
                print(taken["end"], flush=True)
    told = (line for line in map(json.loads, results.read_text(encoding="utf-8").splitlines()) if of.items() <= line.items())
    failed = [name for name, line in {line["step"]: line for line in told}.items() if line["code"] != 0]
    print(f"{len(failed)} steps failed" + (f": {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that a step's processes end with this one.
    verb, *words = sys.argv[1:]
    if verb == "pack":
        pack(*words)
        return 0
    if verb == "steps":
        print("\n".join(steps("troupe", "cuda", "RUN")))
        return 0
    return run(*words)


if __name__ == "__main__":
    sys.exit(main())
