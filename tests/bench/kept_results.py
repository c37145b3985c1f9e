#!/usr/bin/python3
"""What a bench reported, kept: one JSON line per run in a file that all runs append to, and a table of it.

    kept_results.py FILE        # in Markdown, a row per measure

A line: `date`; `commit`, that the program was built from; `command`; `cores` that the bench may use; `load`, the
machine's before it began; `passed`: it came to its end, and no goal was missed; `figures`, what it reported, each with
its `ratio` where there is a bound. A bench that is stopped or fails keeps what it had until then, not passed, and `error`.
"""

import contextlib
import datetime
import json
import os
import pathlib
import subprocess
import sys

import run_benches

_reported = []


def emit(row):
    """Reports a measure (README.md), and keeps it for `recorded`."""
    print(json.dumps(row), flush=True)
    _reported.append(row)


def add_option(parser):
    parser.add_argument("--record", type=pathlib.Path, metavar="FILE", help="append what this run gives, as a JSON line")


def commit_of(binary):
    """What `troupe --version` says in brackets; None where that cannot be asked."""
    try:
        done = subprocess.run([str(binary), "--version"], check=True, stdout=subprocess.PIPE, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.partition("(")[2].partition(")")[0] or None


def command_line(words):
    """How the run is repeated: from the repository's root, and without the file that it is kept in."""
    shown, left = [], iter(words[1:])
    for word in left:
        if word == "--record":
            next(left, None)
        elif not word.startswith("--record="):
            shown.append(word)
    program = os.path.relpath(pathlib.Path(words[0]).resolve(), run_benches.ROOT)
    return " ".join(["python3", program, *(f"'{word}'" if " " in word else word for word in shown)])


def append(path, line):
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


@contextlib.contextmanager
def recorded(path, commit, words=None):
    """Says what a run of the program of this commit stands on, and appends to `path` (None: nothing) what was reported in
    the block, however that ends. Its value is a dictionary: `passed` false there says that a goal was missed which no
    figure has."""
    begin, load, said = len(_reported), os.getloadavg()[0], {"passed": True}
    line = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "commit": commit,
            "command": command_line(sys.argv if words is None else words), "cores": len(os.sched_getaffinity(0)),
            "load": round(load, 2)}
    print(f"commit {line['commit']}, {line['cores']} cores, load of the machine before: {load:.2f}", file=sys.stderr, flush=True)
    try:
        yield said
    except BaseException as error:
        line["error"] = str(error) or type(error).__name__
        raise
    finally:
        figures = [run_benches.with_ratio(row) for row in _reported[begin:]]
        line["passed"] = ("error" not in line and said["passed"] and bool(figures) and
                          all(row.get("goal") != "MISSED" for row in figures))
        if path is not None:
            append(path, {**line, "figures": figures})


def table(lines):
    """Markdown of kept lines, a row per measure. Lines of a kind that has no measures are left out."""
    rows = ["| Date | Commit | Measure | Size | Value | Bound | Ratio | Goal | Cores, load | Command |", "|---" * 10 + "|"]
    for line in lines:
        for row in line["figures"] if isinstance(line.get("figures"), list) else []:
            cells = [line["date"][:10], line["commit"] or "-", row["measure"], row.get("size", ""),
                     f"{run_benches.figure(row['value'])} {row.get('unit', '')}".strip(), run_benches.figure(row.get("bound")),
                     run_benches.figure(row.get("ratio")), row.get("goal", ""), f"{line['cores']}, {line['load']:.2f}",
                     f"`{row.get('command', line['command'])}`"]
            rows.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    print(table([json.loads(line) for line in pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]))


if __name__ == "__main__":
    main()
