#!/usr/bin/python3
"""Runs bench programs and their peers, one after the other; prints a table; writes bench.json.

    run_benches.py [--list | --targets] [--output FILE] [NAME...]

Called by scripts/bench, which builds first. How programs report is described in README.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import textwrap
import time

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
TIMEOUT_S = 1800
MEASURE_MAX = 90  # Characters of the table's first column.
# Programs that a bench runs besides its own.
ALSO_BUILT = {"recovery": ["transport"]}
# Nothing to measure with on this machine: not a failure.
EXIT_SKIPPED = 77


def find_benches(folder=FOLDER):
    """Files by bench name: {"actor": {"bench": [path], "peer": [path]}}."""
    benches = {}
    for path in sorted(folder.iterdir()):
        for role in ("bench", "peer"):
            name, found, _ = path.name.partition(f"_{role}.")
            if found and path.suffix in (".cpp", ".py", ".sh"):
                benches.setdefault(name, {"bench": [], "peer": []})[role].append(path)
    return benches


def select(benches, names):
    """The chosen part of `benches`; exits with code 2 on a name that is not there."""
    unknown = [name for name in names if name not in benches]
    if unknown:
        print(f"bench: no bench '{unknown[0]}'; known: {', '.join(benches)}", file=sys.stderr)
        sys.exit(2)
    return {name: benches[name] for name in (names or benches)}


def targets(chosen):
    """What the chosen benches need built."""
    own = [name for name, files in chosen.items() if any(path.suffix == ".cpp" for path in files["bench"])]
    others = [other for name in chosen for other in ALSO_BUILT.get(name, [])]
    return ["bench_" + name for name in dict.fromkeys(own + others)]


def command_of(path, build):
    """The command line that runs a file."""
    if path.suffix == ".cpp":
        return [str(build / "bench" / path.stem)]
    if path.suffix == ".sh":
        return ["/bin/bash", str(path)]
    reference = pathlib.Path(os.environ.get("REFERENCE_PYTHON", ""))
    return [str(reference) if reference.is_file() else "/usr/bin/python3", str(path)]


def parse_lines(text, source):
    """Measurements of a program's standard output. Lines that are no JSON objects are its own words: printed as they are."""
    rows = []
    for line in text.splitlines():
        if not line.startswith("{"):
            print(line, flush=True)
            continue
        try:
            row = json.loads(line)
        except ValueError:
            raise ValueError(f"{source}: not valid JSON: {line[:80]}") from None
        if not isinstance(row.get("measure"), str):
            raise ValueError(f"{source}: no `measure` in: {line[:80]}")
        if not isinstance(row.get("value"), (int, float)):
            raise ValueError(f"{source}: no number `value` in: {line[:80]}")
        rows.append(row)
    return rows


def run_file(path, build):
    """Rows of one file and what went wrong (or None)."""
    command = command_of(path, build)
    shown = " ".join(os.path.relpath(part, ROOT) if part.startswith(str(ROOT)) else part for part in command)
    environment = dict(os.environ, OMP_NUM_THREADS="1", TROUPE_BUILD=str(build), TROUPE_BINARY=str(build / "troupe"))
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
        rows = parse_lines(done.stdout, path.name)
    except subprocess.TimeoutExpired:
        return [], f"{path.name}: ended after {TIMEOUT_S} s"
    except (OSError, ValueError) as error:
        return [], str(error)
    for row in rows:
        row.setdefault("command", shown)
    if done.returncode == EXIT_SKIPPED:
        return rows, None
    return rows, f"{path.name}: exit code {done.returncode}" if done.returncode else None


def merge(bench_rows, peer_rows):
    """Peers' values become the bounds of the measures of the same name (and size)."""
    def key(row):
        return row["measure"], str(row.get("size", ""))

    peers = {key(row): row for row in peer_rows}
    rows = []
    for row in bench_rows:
        peer = peers.pop(key(row), None)
        if peer is not None and "bound" not in row:
            row = dict(row, bound=peer["value"], bound_command=peer["command"])
        rows.append(with_ratio(row))
    # What only a peer measured still says something.
    return rows + [with_ratio(dict(row, measure=row["measure"] + " (peer)")) for row in peers.values()]


def with_ratio(row):
    """Adds `ratio`: 1 means the bound is reached, more is better, whichever way the measure counts."""
    value, bound = row["value"], row.get("bound")
    if not isinstance(bound, (int, float)):
        return row
    upper, lower = (bound, value) if row.get("better") == "lower" else (value, bound)
    return dict(row, ratio=upper / lower) if lower else row


def figure(number):
    """Four figures, no exponent where it can be helped: 1234567 -> 1,234,567; 0.01234 -> 0.01234."""
    if not isinstance(number, (int, float)):
        return ""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def table(rows):
    """The table as text; measures with a long size are cut, bench.json has them whole."""
    header = ["measure", "value", "bound", "ratio", "goal", "command"]
    lines = [header]
    for row in rows:
        size = f" {row['size']}" if row.get("size") not in (None, "") else ""
        unit = f" {row['unit']}" if row.get("unit") else ""
        lines.append([textwrap.shorten(row["measure"] + size, MEASURE_MAX, placeholder=" ..."), figure(row["value"]) + unit, figure(row.get("bound")),
                      figure(row.get("ratio")), row.get("goal", ""), row["command"]])
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    return "\n".join("  ".join([line[0].ljust(widths[0])] + [line[i].rjust(widths[i]) for i in (1, 2, 3, 4)] + [line[5]])
                     for line in lines)


def machine():
    """What the numbers were measured on."""
    model = "unknown"
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform()}


def run_all(benches, build):
    """All rows and all problems, benches in order of their names."""
    rows, problems = [], []
    for name, files in benches.items():
        print(f"[bench] {name}", file=sys.stderr)
        measured = {"bench": [], "peer": []}
        for role in ("bench", "peer"):
            for path in files[role]:
                found, problem = run_file(path, build)
                measured[role] += found
                problems += [problem] if problem else []
        rows += merge(measured["bench"], measured["peer"])
    return rows, problems


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--targets", action="store_true", help="print the build targets")
    parser.add_argument("--output", default=str(ROOT / "bench.json"))
    options = parser.parse_args(arguments)
    chosen = select(find_benches(), options.names)
    if options.list:
        print("\n".join(chosen))
        return 0
    if options.targets:
        print(" ".join(targets(chosen)))
        return 0
    build = pathlib.Path(os.environ.get("TROUPE_BUILD", ROOT / "build" / "release"))
    started = time.time()
    rows, problems = run_all(chosen, build)
    if rows:
        print(table(rows))
    result = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "machine": machine(), "seconds": round(time.time() - started, 1), "rows": rows, "problems": problems}
    pathlib.Path(options.output).write_text(json.dumps(result, indent=1) + "\n")
    for problem in problems:
        print(f"bench: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
