#!/usr/bin/python3
"""Results of runs that take too long for every day, kept as lines of JSON and shown as a table.

    kept_records.py             writes RECORDS.md from records.jsonl, both beside this file
    kept_records.py --check     exit 1 where the table is not that of the lines

chaos.py, reconfiguration.py and recovery.py append a line for each of their cases with `--record FILE`, or TROUPE_RECORDS=FILE in the
environment: passed, failed, skipped or ended by somebody. A line says when, at which commit, by which command, on how many cores, beside
which load, and what came of it. It is written when a case ends, also where it ends by a failure: what was counted until then is in it.
"""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.support.drawn_cases import commit_here  # noqa: E402

LINES, TABLE = (pathlib.Path(__file__).with_name(name) for name in ("records.jsonl", "RECORDS.md"))
ENVIRONMENT = "TROUPE_RECORDS"
ORDERS = ("TROUPE_CHAOS_EVENTS", "TROUPE_CHAOS_PATIENCE", "TROUPE_THOROUGH")  # What scripts are told of a run but by their command line.
WHY_MAX = 200  # Characters.
COMMIT_SHOWN = 8


def add_argument(parser):
    parser.add_argument("--record", type=pathlib.Path, metavar="FILE", default=os.environ.get(ENVIRONMENT) or None,
                        help="append a line for each case (tests/engine/kept_records.py)")


def without_paths(text):
    """Where things lie is this machine's alone."""
    return re.sub(r"(?<![\w.])(/[\w.@+-]+){2,}/?", "PATH", text)


def shown_command(script, words, binary):
    """What can be typed elsewhere."""
    shown, skips = [], False
    orders = [f"{name}={os.environ[name]}" for name in ORDERS if os.environ.get(name)]
    for word in words:
        if not skips and not word.startswith("--record"):
            is_binary = not word.startswith("-") and pathlib.Path(word).resolve() == pathlib.Path(binary).resolve()
            shown.append("BINARY" if is_binary else without_paths(word))
        skips = word == "--record"
    return " ".join([*orders, f"tests/engine/{script}", *shown])


def program_of(binary):
    """The first line of `--version`; nothing where it cannot be asked."""
    try:
        told = subprocess.run([str(binary), "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return without_paths(told.splitlines()[0]) if told else ""


class Keeper:
    """Of a script that was called with these words."""

    def __init__(self, path, script, words, binary):
        self.path = pathlib.Path(path).resolve() if path else None
        self.about = self.path and {"commit": commit_here(), "program": program_of(binary), "command": shown_command(script, words, binary),
                                    "cores": os.cpu_count()}

    def keep(self, case, run):
        """Calls `run` with numbers to add to; whatever it throws goes on behind the line that tells of it."""
        numbers, load, begin, result, why = {}, os.getloadavg()[0], time.monotonic(), "passed", ""
        try:
            run(numbers)
        except BaseException as ended:
            result = {"Skipped": "skipped"}.get(type(ended).__name__, "failed" if isinstance(ended, Exception) else "ended")
            why = (without_paths(str(ended)).splitlines() or [type(ended).__name__])[0][:WHY_MAX]
            raise
        finally:
            if self.path:
                line = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"), **self.about, "case": case,
                        "load": round(load, 2), "result": result, **({"why": why} if why else {}),
                        "seconds": round(time.monotonic() - begin), "numbers": numbers}
                self.append(line)

    def keep_case(self, bench, case):
        """The same of a script whose cases share a bench."""
        def run(numbers):
            bench.numbers = numbers
            case(bench)
        self.keep(case.__name__, run)

    def append(self, line):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


# ---- the table ------------------------------------------------------------------------------------

HEAD = """# Long runs, as they were kept

Written by `tests/engine/kept_records.py` from `records.jsonl` beside it, a line for each case; not by hand. Results of a commit say
nothing of a later one. Rows marked *from notes* were run before lines were kept: they have what had been written down of them
(notes, and `tests/bench/RESULTS.md`), and no more.

| When (UTC) | Commit | Command | Case | Result | Took | Machine | What was seen |
|---|---|---|---|---|---|---|---|
"""


def read_records(path):
    lines = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError as fault:
            sys.exit(f"{path.name}, line {number}: no JSON ({fault}); fix: take out what is no line of a run")
    return lines


def in_time(seconds):
    return "" if seconds is None else f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"


def in_words(key, value):
    """A number that a case told of, with its name."""
    if key == "slowest":
        slowest = [f"{kind} {took['s']} s" + (f" of {took['of']}" if "of" in took else "") for kind, took in value.items()]
        return f"slowest: {', '.join(slowest)}" if slowest else ""
    if key == "slowest_ms":
        return f"slowest: {', '.join(f'{what} {took} ms' for what, took in value.items())}" if value else ""
    if key == "memory_mib":
        return f"memory {' and '.join(f'{before} to {after} MiB' for before, after in value)}" if value else ""
    words = {"seed": "seed {}", "events": "{} events", "jobs": "{} jobs", "steps": "{:,} steps", "windows": "{} windows",
             "by_rounding": "{} of them as far as rounding goes", "worst_parameters": "parameters within {:.2g}",
             "worst_losses": "losses within {:.2g}", "worst": "equal the reference within {:.2g}", "off": "off by {:.2g} at the end",
             "apart": "undisturbed runs by {:.2g}", "nodes": "{} nodes", "layouts": "{} layouts", "copies": "each layer on {} nodes at least"}
    # What has no words yet is shown all the same.
    return words[key].format(value) if key in words else f"{key} {value}"


def row_of(line):
    seen = [text for text in (in_words(key, value) for key, value in line["numbers"].items()) if text]
    seen += [line[key] for key in ("why", "remark") if line.get(key)]
    if line.get("from") == "notes":
        seen.append("*from notes*")
    machine = ", ".join([*([f"{line['cores']} cores"] if line.get("cores") else []),
                         *([f"load {line['load']}"] if line.get("load") is not None else [])])
    cells = [line.get("date") or "", (line.get("commit") or "")[:COMMIT_SHOWN], f"`{line['command']}`", line["case"].replace("_", " "),
             line["result"], in_time(line.get("seconds")), machine, "; ".join(seen)]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def table_of(lines):
    return HEAD + "".join(row_of(line) + "\n" for line in lines)


def main(words):
    if words not in ([], ["--check"]):
        sys.exit(f"usage: {pathlib.Path(__file__).name} [--check]")
    table = table_of(read_records(LINES))
    if words:
        is_same = TABLE.is_file() and TABLE.read_text(encoding="utf-8") == table
        print(f"{TABLE.name} is{'' if is_same else ' not'} that of {LINES.name}{'' if is_same else ' (fix: run kept_records.py)'}")
        return 0 if is_same else 1
    TABLE.write_text(table, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
