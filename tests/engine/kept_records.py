#!/usr/bin/python3
"""Results of runs that take too long for every day, kept as lines of JSON and shown as a table.

    kept_records.py             writes RECORDS.md from records.jsonl, both beside this file
    kept_records.py --check     exit 1 where the table is not that of the lines

chaos.py, reconfiguration.py and recovery.py append a line for each of their cases with `--record FILE`, or TROUPE_RECORDS=FILE in the
environment. A line has what every kept line has (tests/support/kept_lines.py), `case`, `numbers` that were counted until it ended,
`seconds`, and, where it has not passed, `result`: failed, skipped, or ended by somebody. Where the file is records.jsonl the table
is written anew with each line.

Of memory chaos.py counts `memory_mib`, of each node that nothing was done to [MiB held in its second quarter, MiB at the end], and `head`, of the
head that was looked at over most steps {mib: the same two, as the middles of their quarters; steps (between these), kib_per_step, of: heads there were};
empty where no head lived for long (`Script.check_heads`).
"""

import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.support import kept_lines  # noqa: E402

LINES, TABLE = (pathlib.Path(__file__).with_name(name) for name in ("records.jsonl", "RECORDS.md"))
ENVIRONMENT = "TROUPE_RECORDS"
ORDERS = ("TROUPE_CHAOS_EVENTS", "TROUPE_CHAOS_PATIENCE", "TROUPE_THOROUGH")  # What scripts are told of a run but by their command line.
COMMIT_SHOWN = 8


def add_argument(parser):
    kept_lines.add_option(parser, default=os.environ.get(ENVIRONMENT) or None)


def result_of(ended):
    return {"Skipped": "skipped"}.get(type(ended).__name__, "failed" if isinstance(ended, Exception) else "ended")


class Keeper:
    """Of a script that was called with these words, itself first."""

    def __init__(self, path, words, binary):
        self.path = pathlib.Path(path).resolve() if path else None
        if self.path == LINES:
            kept_lines.read(LINES)  # Before anything runs, as its table is made of all of it.
        self.about = (kept_lines.commit_of(binary), kept_lines.command_line(words, binary, ORDERS)) if path else (None, None)

    def keep(self, case, run):
        """Calls `run` with numbers to add to; whatever it throws goes on behind the line that tells of it."""
        begin = time.monotonic()
        try:
            with kept_lines.kept(self.path, *self.about) as line:
                line |= {"case": case, "numbers": {}}
                try:
                    run(line["numbers"])
                except BaseException as ended:
                    line["result"] = result_of(ended)
                    raise
                finally:
                    line["seconds"] = round(time.monotonic() - begin)
        finally:
            if self.path == LINES:
                write_table()

    def keep_case(self, bench, case):
        """The same of a script whose cases share a bench."""
        def run(numbers):
            bench.numbers = numbers
            case(bench)
        self.keep(case.__name__, run)


# ---- the table ------------------------------------------------------------------------------------

HEAD = """# Long runs, as they were kept

Written by `tests/engine/kept_records.py` from `records.jsonl` beside it, a line for each case; not by hand. Results of a commit say
nothing of a later one. Rows marked *from notes* were run before lines were kept: they have what had been written down of them
(notes, and `tests/bench/RESULTS.md`), and no more.

| When (UTC) | Commit | Command | Case | Result | Took | Machine | What was seen |
|---|---|---|---|---|---|---|---|
"""


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
    if key == "head":
        return "head {} to {} MiB in {steps:,} steps, {kib_per_step:+} KiB a step, of {of} heads".format(*value["mib"], **value) if value else ""
    words = {"seed": "seed {}", "samples": "{}", "events": "{} events", "jobs": "{} jobs", "steps": "{:,} steps", "windows": "{} windows",
             "by_rounding": "{} of them as far as rounding goes", "worst_parameters": "parameters within {:.2g}",
             "worst_losses": "losses within {:.2g}", "worst": "equal the reference within {:.2g}", "off": "off by {:.2g} at the end",
             "apart": "undisturbed runs by {:.2g}", "nodes": "{} nodes", "layouts": "{} layouts", "copies": "each layer on {} nodes at least"}
    # What has no words yet is shown all the same.
    return words[key].format(value) if key in words else f"{key} {value}"


def row_of(line):
    seen = [text for text in (in_words(key, value) for key, value in line["numbers"].items()) if text]
    seen += [line[key] for key in ("error", "remark") if line.get(key)]
    if line.get("from") == "notes":
        seen.append("*from notes*")
    machine = ", ".join([*([f"{line['cores']} cores"] if line.get("cores") else []),
                         *([f"load {line['load']}"] if line.get("load") is not None else [])])
    return kept_lines.row([(line["date"] or "")[:16].replace("T", " "), (line["commit"] or "")[:COMMIT_SHOWN], f"`{line['command']}`",
                           line["case"].replace("_", " "), "passed" if line["passed"] else line["result"], in_time(line.get("seconds")),
                           machine, "; ".join(seen)])


def table_of(lines):
    return HEAD + "".join(row_of(line) + "\n" for line in lines)


def write_table():
    TABLE.write_text(table_of(kept_lines.read(LINES)), encoding="utf-8")


def main(words):
    if words not in ([], ["--check"]):
        sys.exit(f"usage: {pathlib.Path(__file__).name} [--check]")
    if words:
        is_same = TABLE.is_file() and TABLE.read_text(encoding="utf-8") == table_of(kept_lines.read(LINES))
        print(f"{TABLE.name} is{'' if is_same else ' not'} that of {LINES.name}{'' if is_same else ' (fix: run kept_records.py)'}")
        return 0 if is_same else 1
    write_table()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
