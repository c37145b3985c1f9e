"""The work of scripts/gpu-check: what to carry to a machine with a GPU, and the steps taken there."""

import contextlib
import hashlib
import json
import os
import pathlib
import platform
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of the machine itself, or of its LibTorch.
THERE = ("libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libutil.so", "ld-linux", "libstdc++", "libgcc_s", "libtorch", "libc10",
         "libgomp", "libcud", "libcup")
PARITY = ["fp64", "fp32", "bf16", "modality-fp64", "modality-deferral-split", "text-only", "two-devices-per-node", "replicas-5-3-zero-bubble",
          "standby-one-pipeline", "encoders-twice", "layouts-split-auto"]


def steps(binary, device, run):
    """Name and command of each step; the first ones are quick."""
    python, words = sys.executable, device_words(binary, device)
    demo = ["train", "configs/demo.toml", f'data.sources=[{{json="{run}/data/samples.json"}}]', f"job.run_dir={run}/demo", *words]
    halves = [[binary, *demo, "--fresh", "train.steps=20", "checkpoint.every_steps=10"],
              [binary, "train", "--resume", f"{run}/demo", "train.steps=40"]]
    profile = ["profile", "configs/demo.toml", demo[2], f"job.run_dir={run}/demo", "--force", "-v", *words]
    return {
        "doctor": [binary, "doctor", "--json"],
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


def libraries(program):
    """Files that `program` loads and that another machine may lack, as the program names them."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for line in told.splitlines():
        name, _, place = line.strip().partition(" => ")
        if place.startswith("/") and not name.startswith(THERE):
            yield name, place.split(" (")[0]


def pack(build, out):
    program = ROOT / build / "troupe"
    apart = ROOT / build / "tests" / "apart.so"
    if not program.is_file():
        sys.exit(f"{program} is not there: scripts/build makes it")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(ROOT / out, "w") as tar:
        stripped = pathlib.Path(folder) / "troupe"
        subprocess.run(["strip", "-o", stripped, program], check=True)
        tar.add(stripped, "troupe")
        if apart.is_file():
            tar.add(apart, "tests/apart.so")
        for name, place in libraries(program):
            tar.add(os.path.realpath(place), f"lib/{name}")
    print(f"{out}: {(ROOT / out).stat().st_size / 2**20:.1f} MiB")


def torch_folders():
    """Where the LibTorch of this machine's Python lies, and what it needs."""
    if folder := os.environ.get("TORCH_DIR"):
        packages = pathlib.Path(folder).parent
    else:
        found = subprocess.run([sys.executable, "-c", "import torch; print(torch.__path__[0])"], capture_output=True, text=True, check=True)
        packages = pathlib.Path(found.stdout.strip()).parent
    return [packages / "torch" / "lib", *sorted(packages.glob("nvidia/*/lib"))]


def unpack(tar, folder):
    with tarfile.open(tar) as packed:
        packed.extractall(folder)
    program = folder / "troupe"
    os.environ["LD_LIBRARY_PATH"] = ":".join(map(str, [folder / "lib", *torch_folders()]))
    os.environ["OMP_NUM_THREADS"] = "1"
    return str(program)


def take(name, command, limit_s, log):
    begin = time.monotonic()
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = "no end"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Its nodes too, whatever ended it: they hold the GPU.
            process.wait()
    text = log.read_text(encoding="utf-8", errors="replace")
    return {"step": name, "code": code, "seconds": round(time.monotonic() - begin, 1), "end": text[-1500:]}


def run(tar, out):
    out = pathlib.Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    results = out / "gpu-check.jsonl"
    device, limit_s = os.environ.get("GPU_CHECK_DEVICE", "cuda"), float(os.environ.get("GPU_CHECK_STEP_S", 150))
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()] if results.exists() else []
    of = {"device": device, "pack": hashlib.sha256((ROOT / tar).read_bytes()).hexdigest()[:16]}
    done = {line["step"] for line in lines if line["code"] == 0 and of.items() <= line.items()}
    with tempfile.TemporaryDirectory(prefix="troupe-gpu-") as folder:
        binary = unpack(ROOT / tar, pathlib.Path(folder))
        wanted = os.environ.get("GPU_CHECK_STEPS", "").split()
        for name, command in steps(binary, device, folder).items():
            if (wanted and name not in wanted and name != "data") or (name in done and name != "data"):
                continue
            taken = {**take(name, command, limit_s, out / f"{name}.log"), **of, "machine": platform.node()}
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
