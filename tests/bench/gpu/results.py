"""The one file that gpu-bench leaves: what was measured, with what, on which machine. Whatever interrupts it, it is whole."""

import json
import os

from report import key_of


class Results:
    """{"machine": {...}, "steps": [{"step", "of", "code", "rows", ...}, ...]}; one entry per step and `of`, the newest last.

    `of` says what an entry is true of: the GPU's name and the build, or for other systems their versions.
    """

    def __init__(self, path):
        self.path = path
        self.told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"machine": {}, "steps": []}

    def find(self, step, of):
        return next((entry for entry in self.told["steps"] if entry["step"] == step and entry["of"] == of), None)

    def put(self, entry):
        self.told["steps"] = [old for old in self.told["steps"] if (old["step"], old["of"]) != (entry["step"], entry["of"])] + [entry]
        self.save()

    def save(self):
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps(self.told, indent=1) + "\n", encoding="utf-8")
        os.replace(beside, self.path)


def is_done(entry, again=False):
    """Whether a step need not be taken. `again`: what failed in it is tried once more."""
    if entry is None or entry["code"] != 0:
        return False
    return not (again and any("error" in row for row in entry["rows"]))


def kept_rows(entry, again=False):
    """Rows that need not be measured: those that have times, and those after which a GPU is lost to its process."""
    rows = entry["rows"] if entry else []
    return [row for row in rows if "error" not in row or ("CUDA error" in row["error"] and not again)]


def latest_rows(told):
    """Of each measurement on the present GPU the newest row that has times, with its step's name and what was watched meanwhile."""
    gpu, rows = told["machine"].get("gpu"), {}
    for entry in told["steps"]:
        if entry["of"].get("gpu") != gpu:
            continue
        for row in entry["rows"]:
            if "error" not in row:
                rows[(entry["step"], key_of(row))] = {**row, "step": entry["step"], "watched": entry.get("watched", {})}
    return list(rows.values())
