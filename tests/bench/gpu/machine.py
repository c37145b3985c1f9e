"""What nvidia-smi and the installed packages tell of a machine, and what a GPU does meanwhile."""

import contextlib
import importlib.metadata
import platform
import statistics
import subprocess

FACTS = {"gpu": "name", "driver": "driver_version", "memory_mib": "memory.total", "sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem",
         "sm_mhz_max": "clocks.max.sm", "memory_mhz_max": "clocks.max.mem", "power_limit_w": "power.limit"}
WATCHED = {"memory_mib": "memory.used", "sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem", "power_w": "power.draw",
           "celsius": "temperature.gpu", "kernel_percent": "utilization.gpu"}


def number(text):
    """The number that `text` is, or the text."""
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def query(names):
    return ["nvidia-smi", f"--query-gpu={','.join(names.values())}", "--format=csv,noheader,nounits"]


def facts():
    """The first GPU, its clocks at this moment, and versions; only versions where there is no nvidia-smi."""
    told = {"host": platform.node(), "kernel": platform.release(), "python": platform.python_version()}
    for package in ("torch", "triton", "transformers"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            told[package] = importlib.metadata.version(package)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        lines = subprocess.run(query(FACTS), capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
        told.update(zip(FACTS, (number(word.strip()) for word in lines[0].split(","))))
    return {**told, "gpu": told.get("gpu", "none")}


class Watch:
    """Asks nvidia-smi twice a second, into a file."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.file = open(self.path, "w", encoding="utf-8")
        try:
            # By lines, so that nothing is left in its buffer when it is ended.
            self.process = subprocess.Popen(["stdbuf", "-oL", *query(WATCHED), "-lms", "500"], stdout=self.file, stderr=subprocess.DEVNULL)
        except OSError:
            self.process = None
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.file.close()

    def told(self):
        """Most memory and power; and while the GPU was busy, where it drew over half of its most power, the medians of its clocks and
        of the share of time in which a kernel ran."""
        return summary_of(self.path.read_text(encoding="utf-8"))


def summary_of(text):
    samples = []
    for line in text.splitlines():
        values = [number(word.strip()) for word in line.split(",")]
        if len(values) == len(WATCHED) and all(isinstance(value, float) for value in values):
            samples.append(dict(zip(WATCHED, values)))
    if not samples:
        return {}
    most = {name: max(sample[name] for sample in samples) for name in WATCHED}
    busy = [sample for sample in samples if sample["power_w"] > most["power_w"] / 2]
    medians = {f"{name}_busy": statistics.median(sample[name] for sample in busy) for name in ("sm_mhz", "memory_mhz", "kernel_percent")}
    return {"samples": len(samples), **{f"{name}_max": most[name] for name in ("memory_mib", "power_w", "celsius")}, **medians}
