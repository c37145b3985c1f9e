"""Every policy x schedule x freezing: the list of cases, a slice of it by commit, and the record of a whole run."""

import datetime
import json
import os
import pathlib
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from drawn_cases import commit_here, drawn

POLICIES = ["in-order", "random", "disttrain", "llm-only", "karmarkar-karp", "dflop", "hierarchical", "deferral",
            "dflop-search", "deferral-exchange", "deferral-chain", "balanced-chain", "tapered", "auto"]
SCHEDULES = ["1f1b", "eager-1f1b", "split-1f1b", "zero-bubble", "eager-zero-bubble", "gpipe", "dip", "three-phase"]
PROJECTORS_ONLY = ["modules.vision.freeze=true", "modules.audio.freeze=true", "modules.llm.freeze=true"]
FREEZINGS = {
    "all": [],
    "encoders": ["modules.vision.freeze=true", "modules.audio.freeze=true"],
    "projectors": PROJECTORS_ONLY,
}
SLICE = 4  # Cases of 20 steps that take half a minute on two cores.


def overrides_of(name):
    policy, schedule, freezing = name.split("/")
    return ["train.dtype=fp64", *FREEZINGS[freezing], f"balancer.policy={policy}", f"scheduler.schedule={schedule}",
            "balancer.evaluations=40"]


def all_cases():
    return [f"{policy}/{schedule}/{freezing}" for freezing in FREEZINGS for policy in POLICIES
            for schedule in SCHEDULES]


def slice_of(commit):
    """The cases that a commit's hash draws: others for the next commit, the same whenever it is asked."""
    return drawn(all_cases(), SLICE, commit)


class Ledger:
    """Results of the matrix by case. Kept in a file, a run that was stopped goes on where it was; results of another
    build, or on other devices, count for nothing. `devices`: what parity.py is told of these (`--late 0.4`)."""

    def __init__(self, binary, path=None, devices=()):
        self.program = subprocess.run([str(binary), "--version"], capture_output=True, text=True, timeout=60,
                                      check=True).stdout.splitlines()[0]
        self.path, self.lock, self.results = path, threading.Lock(), {}
        self.devices = " ".join(devices)
        if path and path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                if (entry["program"], entry.get("devices")) == (self.program, self.devices):
                    self.results[entry["case"]] = entry

    def passed(self, name):
        return self.results.get(name, {}).get("passed", False)

    def add(self, name, passed, seconds, why):
        entry = {"case": name, "passed": passed, "seconds": round(seconds, 1), "why": why, "program": self.program,
                 "devices": self.devices}
        with self.lock:
            self.results[name] = entry
            if self.path:
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")

    def record(self, path, steps, seconds):
        """Writes what is known as one page of JSON to be kept beside the sources."""
        names = all_cases()
        known = {name: self.results[name] for name in names if name in self.results}
        failures = {name: entry["why"] for name, entry in known.items() if not entry["passed"]}
        page = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "commit": commit_here(),
            "program": self.program,
            "command": " ".join(["tests/engine/parity.py BINARY --matrix FILE", *filter(None, [self.devices]), f"--record {path}"]),
            "checked": f"{steps} steps in fp64 against both references, and the recorded plans",
            "cores": os.cpu_count(),
            "wall_seconds_of_this_run": round(seconds),
            "case_seconds_in_all": round(sum(entry["seconds"] for entry in known.values())),
            "cases": len(names),
            "passed": len(known) - len(failures),
            "failed": len(failures),
            "not_run": len(names) - len(known),
            "failures": failures,
            "seconds": {name: entry["seconds"] for name, entry in known.items()},
        }
        path.write_text(json.dumps(page, indent=1) + "\n", encoding="utf-8")
