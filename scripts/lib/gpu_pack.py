"""What gpu-check and gpu-bench share: the program packed for a machine with a GPU, and steps that end in time."""

import contextlib
import gzip
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of the machine itself, or of its LibTorch.
THERE = ("libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libutil.so", "ld-linux", "libstdc++", "libgcc_s",
         "libtorch", "libc10", "libgomp", "libcud", "libcup")
# Carried stripped, with their libraries, where they were built: the name in the pack, and where builds leave them.
PROGRAMS = {
    "troupe": ["troupe"],
    "test_kernels": ["tests/test_kernels"],
    "test_engine": ["tests/test_engine"],
    "gpu_attention_bench": ["bench/gpu_attention_bench", "tests/bench/gpu_attention_bench", "tests/gpu_attention_bench"],
    "gpu_memory_bench": ["bench/gpu_memory_bench"],
}


def libraries(program):
    """Files that `program` loads and that another machine may lack, as the program names them."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for line in told.splitlines():
        name, _, place = line.strip().partition(" => ")
        if place.startswith("/") and not name.startswith(THERE):
            yield name, place.split(" (")[0]


def programs(build):
    """Name and file of each program that was built."""
    for name, places in PROGRAMS.items():
        if found := next((build / place for place in places if (build / place).is_file()), None):
            yield name, found


def timeless(info):
    """The same program packs to the same bytes, whenever."""
    info.mtime = 0
    return info


@contextlib.contextmanager
def packed(out):
    """A compressed archive to be written, whose bytes follow from its content alone."""
    with open(out, "wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed:
        with tarfile.open(fileobj=compressed, mode="w") as tar:
            yield tar


def pack(build, out):
    build = ROOT / build
    built = dict(programs(build))
    if "troupe" not in built:
        sys.exit(f"{build / 'troupe'} is not there: scripts/build makes it")
    apart, needed = build / "tests" / "apart.so", {}
    with tempfile.TemporaryDirectory() as folder, packed(ROOT / out) as tar:
        for name, program in built.items():
            stripped = pathlib.Path(folder) / name
            subprocess.run(["strip", "-o", stripped, program], check=True)
            tar.add(stripped, name, filter=timeless)
            needed.update(libraries(program))
        if apart.is_file():
            tar.add(apart, "tests/apart.so", filter=timeless)
        for name, place in needed.items():
            tar.add(os.path.realpath(place), f"lib/{name}", filter=timeless)
    print(f"{out}: {(ROOT / out).stat().st_size / 2**20:.1f} MiB: {', '.join(built)}")


def torch_folders():
    """Where the LibTorch of this machine's Python lies, and what it needs."""
    if folder := os.environ.get("TORCH_DIR"):
        packages = pathlib.Path(folder).parent
    elif found := importlib.util.find_spec("torch"):  # Found, not imported: that takes seconds.
        packages = pathlib.Path(found.submodule_search_locations[0]).parent
    else:
        sys.exit("torch is not there: this machine needs LibTorch for Python, or TORCH_DIR says where it is")
    return [packages / "torch" / "lib", *sorted(packages.glob("nvidia/*/lib"))]


def unpack(tar, folder):
    """The unpacked program, and what its environment must say."""
    with tarfile.open(tar) as packed:
        packed.extractall(folder)
    return str(folder / "troupe"), {"LD_LIBRARY_PATH": ":".join(map(str, [folder / "lib", *torch_folders()])), "OMP_NUM_THREADS": "1"}


def take(name, command, limit_s, log, environment=None, watch=lambda: None):
    """Runs a step, its output into `log`; calls `watch` every second. Its processes end with it."""
    begin = time.monotonic()
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                                   env={**os.environ, **(environment or {})})
        try:
            code = wait_for(process, begin + limit_s, watch)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Its nodes too, whatever ended it: they hold the GPU.
            process.wait()
    text = log.read_text(encoding="utf-8", errors="replace")
    return {"step": name, "code": code, "seconds": round(time.monotonic() - begin, 1), "end": text[-1500:]}


def wait_for(process, until, watch):
    """The process's exit code, or "no end"."""
    while (left := until - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(1.0, left))
        watch()
    return "no end"
