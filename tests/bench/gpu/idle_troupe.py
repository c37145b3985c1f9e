#!/usr/bin/env python3
"""How long a GPU runs no kernel while our program trains llama_job.py's model: gaps inside of actions too, which no trace of ours has.

    idle_troupe.py PROGRAM FOLDER --size 1b|small [--steps 14] [--limit S]

FOLDER is made anew. Compiles kernel_times.cpp, which CUPTI tells of each kernel; without a compiler or CUPTI it says what is missing.
Being watched takes time of its own, so the share is rather too large.
"""

import argparse
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import llama_job
from llama_troupe import steps_of, train
from report import emit

HERE = pathlib.Path(__file__).resolve().parent


def cuda_folders():
    """Where CUPTI may lie: of torch's packages, and of the machine."""
    if found := importlib.util.find_spec("torch"):
        yield from sorted((pathlib.Path(found.submodule_search_locations[0]).parent / "nvidia").glob("cu*"))
    yield pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))


def compiled(folder, candidates):
    """The library, and "" or why there is none."""
    places = [(place / "include", library.parent) for place in candidates if (place / "include" / "cupti.h").is_file()
              for library in sorted(place.glob("lib*/libcupti.so.*[0-9]"))]
    if not places:
        return None, "no cupti.h beside a libcupti.so, neither in torch's packages nor in CUDA_HOME"
    include, library = places[0]
    name = next(iter(sorted(library.glob("libcupti.so.*[0-9]")))).name
    out = folder / "kernel_times.so"
    command = ["c++", "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{include}", str(HERE / "kernel_times.cpp"), "-o", str(out), f"-L{library}",
               f"-l:{name}"]
    # Our program's libraries are not for the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    except OSError as why:
        return None, f"no c++: {why}"
    return (out, "") if done.returncode == 0 else (None, f"kernel_times.cpp does not compile: {done.stderr[-300:]}")


def spans_of(text):
    """Begin and end of each kernel, in nanoseconds; a line that is cut is none."""
    lines = (line.split() for line in text.splitlines())
    return sorted((int(words[0]), int(words[1])) for words in lines if len(words) == 2)


def idle_of(spans, last, window_ns):
    """Of the `window_ns` up to `last`, the last kernel's end: the share in which none ran, and the longest gap."""
    at, idle, longest = last - window_ns, 0, 0
    for begin, end in spans:
        if begin > at:
            idle, longest = idle + begin - at, max(longest, begin - at)
        at = max(at, end)
    return idle / window_ns, longest


def measured(steps, texts, count=llama_job.MEASURED_STEPS):
    """A row of the last `count` steps, from the process that ran most kernels; None where something is missing."""
    spans = max((spans_of(text) for text in texts), key=len, default=[])
    if len(steps) <= count or not spans:
        return None
    window_ns = int(1e6 * sum(step["step_ms"] for step in steps[-count:]))
    last = max(end for _, end in spans)
    share, longest = idle_of(spans, last, window_ns)
    return {"idle_share": round(share, 5), "longest_gap_ms": round(1e-6 * longest, 3), "window_ms": round(1e-6 * window_ns, 1),
            "kernels": sum(end > last - window_ns for _, end in spans)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--size", required=True, choices=llama_job.SIZES)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--limit", type=float, default=90)
    options = parser.parse_args()
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    row = {"measure": f"idle-llama-{options.size}", "system": "troupe"}
    library, why = compiled(folder, cuda_folders())
    if library is None:
        emit({**row, "error": why})
        return 0
    job = llama_job.write_job(folder, options.size, options.steps)
    watched = ["env", f"CUDA_INJECTION64_PATH={library}", f"KERNEL_TIMES={folder / 'kernels'}"]
    code, seconds = train([*watched, options.program, "train", str(job), "--fresh", "cluster.device=cuda"], options.limit)
    steps, texts = steps_of(folder / "run"), [path.read_text(encoding="utf-8") for path in sorted(folder.glob("kernels.*"))]
    result = measured(steps, texts)
    emit({**row, **(result or {"error": f"{len(steps)} steps, and {len(texts)} processes with kernels, in {seconds} s; it ended with {code}"})})
    return 0 if result else 1


if __name__ == "__main__":
    sys.exit(main())
