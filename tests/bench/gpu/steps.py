"""The steps of gpu-bench: names, commands, and what their results are true of."""

import dataclasses
import importlib.metadata
import sys

HERE = "tests/bench/gpu"
# Raised where a peer's measurement comes to mean something else: then it is taken again.
PEERS = 1
ATTENTION_SIZES = {"full": [(4096, 128), (16384, 128), (16384, 64), (65536, 128), (131072, 128)], "small": [(512, 64)]}


@dataclasses.dataclass
class Step:
    command: list
    ours: bool = False  # Measures our program: true of a build. Else of the versions of other systems.
    skipped: str = ""  # Why it cannot be taken.

    def of(self, gpu, build):
        return {"gpu": gpu, "build": build} if self.ours else {"gpu": gpu, "peers": PEERS, "torch": version("torch")}


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def bench_step(folder, name, *words):
    """A program of ours that measures a GPU, where the pack has it."""
    missing = "" if (folder / name).is_file() else f"the pack has no {name} (scripts/build release bench_{name.removesuffix('_bench')})"
    return Step([str(folder / name), *words], ours=True, skipped=missing)


def attention_steps(folder, device, small):
    heads = ["--heads", "4", "--kv-heads", "2"] if small else []
    sizes = ATTENTION_SIZES["small" if small else "full"]
    steps = {}
    for tokens, dim in sizes:
        name = f"attention-peers-{tokens}" + ("" if dim == 128 else f"-head-{dim}")
        size = ["--tokens", str(tokens), "--dim", str(dim), *heads]
        steps[name] = Step([sys.executable, f"{HERE}/attention_peers.py", *size, "--device", device])
    steps["attention-troupe"] = bench_step(folder, "gpu_attention_bench", str(max(tokens for tokens, _ in sizes)))
    return steps


def script(name, *words):
    return [sys.executable, f"{HERE}/{name}.py", *words]


def training_step(folder, device, model, size, limit_s, *words):
    """Our program at a model of llama_job.py or mm_job.py; its limit leaves time to tell of the steps that it has taken."""
    return Step(script("llama_troupe", str(folder / "troupe"), str(folder / model), "--model", model, "--size", size, "--device", device,
                       "--limit", str(0.93 * limit_s), *words), ours=True)


def idle_step(folder, device, size, limit_s):
    words = script("idle_troupe", str(folder / "troupe"), str(folder / "idle"), "--size", size, "--limit", str(0.93 * limit_s))
    return Step(words, ours=True, skipped="" if device.startswith("cuda") else f"CUPTI tells of CUDA's kernels, not of {device}'s")


def curve_step(folder, device, small, limit_s):
    """Our program and torch one after the other: both in one step, as one says nothing without the other."""
    size = ["--size", "small", "--steps", "20"] if small else ["--size", "curve"]
    return Step(script("curve", str(folder / "troupe"), str(folder / "curve"), *size, "--device", device, "--limit", str(0.6 * limit_s)),
                ours=True)


def steps(folder, device, small, limit_s):
    """By name, in their order: what is cheap and says most comes first. `folder`: where the pack is unpacked."""
    llama, mm = ("small", "small") if small else ("1b", "2b")
    peer = script("llama_transformers", "--device", device, "--size", llama)
    return {
        **attention_steps(folder, device, small),
        "memory-troupe": bench_step(folder, "gpu_memory_bench"),
        "curve-bf16": curve_step(folder, device, small, limit_s),
        "llama-1b-troupe": training_step(folder, device, "llama", llama, limit_s),
        "llama-1b-transformers-masters-layers": Step([*peer, "--variant", "masters", "--compile", "layers"]),
        "llama-1b-transformers-masters": Step([*peer, "--variant", "masters"]),
        "llama-1b-transformers-autocast": Step([*peer, "--variant", "autocast"]),
        "llama-1b-idle": idle_step(folder, device, llama, limit_s),
        "mm-2b-troupe": training_step(folder, device, "mm", mm, limit_s, "--steps", "11"),
        "mm-2b-transformers": Step(script("mm_transformers", "--device", device, "--size", mm)),
    }


def chosen(names, wanted):
    """Those of `names` that are wanted, or begin with what is wanted and a dash; all where nothing is."""
    unknown = [want for want in wanted if not any(fits(name, want) for name in names)]
    if unknown:
        sys.exit(f"no step '{unknown[0]}'; there are {', '.join(names)}")
    return [name for name in names if not wanted or any(fits(name, want) for want in wanted)]


def fits(name, want):
    return name == want or name.startswith(f"{want}-")
