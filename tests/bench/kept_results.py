#!/usr/bin/python3
"""What a bench reported, kept: one JSON line per run in a file that all runs append to, and a table of it.

    kept_results.py FILE        # in Markdown, a row per measure

A line has what every kept line has (tests/support/kept_lines.py; `passed`: it came to its end, and no goal was missed), and `figures`:
what it reported, each with its `ratio` where there is a bound. A bench that is stopped or fails keeps what it had until then.
"""

import contextlib
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import run_benches  # noqa: E402
from tests.support import kept_lines  # noqa: E402
from tests.support.kept_lines import add_option, commit_of  # noqa: E402, F401  What benches need besides.

_reported = []


def emit(row):
    """Reports a measure (README.md), and keeps it for `recorded`."""
    print(json.dumps(row), flush=True)
    _reported.append(row)


@contextlib.contextmanager
def recorded(path, commit, words=None):
    """Says what a run of the program of this commit stands on, and appends to `path` (None: nothing) what was reported in
    the block, however that ends. Its value is a dictionary: `passed` false there says that a goal was missed which no
    figure has."""
    begin, said = len(_reported), {"passed": True}
    with kept_lines.kept(path, commit, kept_lines.command_line(sys.argv if words is None else words)) as line:
        print(f"commit {commit}, {line['cores']} cores, load of the machine before: {line['load']:.2f}", file=sys.stderr, flush=True)
        try:
            yield said
        finally:
            figures = [run_benches.with_ratio(row) for row in _reported[begin:]]
            line |= {"passed": said["passed"] and bool(figures) and all(row.get("goal") != "MISSED" for row in figures), "figures": figures}


def table(lines):
    """Markdown of kept lines, a row per measure. Lines of a kind that has no measures are left out."""
    rows = [kept_lines.row(["Date", "Commit", "Measure", "Size", "Value", "Bound", "Ratio", "Goal", "Cores, load", "Command"]), "|---" * 10 + "|"]
    for line in lines:
        for row in line["figures"] if isinstance(line.get("figures"), list) else []:
            rows.append(kept_lines.row([
                line["date"][:10], line["commit"] or "-", row["measure"], row.get("size", ""),
                f"{run_benches.figure(row['value'])} {row.get('unit', '')}".strip(), run_benches.figure(row.get("bound")),
                run_benches.figure(row.get("ratio")), row.get("goal", ""), f"{line['cores']}, {line['load']:.2f}",
                f"`{row.get('command', line['command'])}`"]))
    return "\n".join(rows)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    print(table(kept_lines.read(pathlib.Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
