"""What runs stood on and came to, kept: lines of JSON in a file that all of them append to.

Every line has `date`; `commit`, that the program was built from; `command`; `cores` that the run may use; `load`, the machine's before it
began; `passed`; and `error`, where it ended early. What else a line has is its writer's: tests/bench/kept_results.py and
tests/engine/kept_records.py, which make tables of theirs.
"""

import contextlib
import datetime
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTION = "--record"
ERROR_MAX = 200  # Characters.


def add_option(parser, default=None):
    parser.add_argument(OPTION, type=pathlib.Path, metavar="FILE", default=default,
                        help="append what this run comes to, as JSON lines (tests/support/kept_lines.py)")


def commit_of(binary):
    """What `troupe --version` says in brackets; None where that cannot be asked."""
    try:
        told = subprocess.run([str(binary), "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return told.partition("(")[2].partition(")")[0] or None


def without_paths(text):
    """Where things lie is this machine's alone."""
    return re.sub(r"(?<![\w.])(/[\w.@+-]+){2,}/?", "PATH", text)


def command_line(words, binary=None, orders=()):
    """How a run is repeated elsewhere, from the repository's root: without the file that it is kept in, the program as BINARY, and behind
    what the environment says of `orders`."""
    shown = [f"{name}={shlex.quote(os.environ[name])}" for name in orders if os.environ.get(name)]
    shown += ["python3", os.path.relpath(pathlib.Path(words[0]).resolve(), ROOT)]
    left = iter(words[1:])
    for word in left:
        if word == OPTION:
            next(left, None)
        elif binary and not word.startswith("-") and pathlib.Path(word).resolve() == pathlib.Path(binary).resolve():
            shown.append("BINARY")
        elif not word.startswith(f"{OPTION}="):
            shown.append(shlex.quote(without_paths(word)))
    return " ".join(shown)


def error_of(ended):
    """Its first line, or its name."""
    return (without_paths(str(ended)).strip().splitlines() or [type(ended).__name__])[0][:ERROR_MAX]


@contextlib.contextmanager
def kept(path, commit, command):
    """Appends a line of the block to `path` (None: nothing), however that ends; its value is the line, to be added to. A file that cannot
    be written is told of before the block runs."""
    if path is not None:
        path = pathlib.Path(path).resolve()  # A run may go elsewhere.
        open(path, "a", encoding="utf-8").close()
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    line = {"date": now, "commit": commit, "command": command, "cores": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 2),
            "passed": True}
    try:
        yield line
    except BaseException as ended:
        line |= {"passed": False, "error": error_of(ended)}
        raise
    finally:
        if path is not None:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def read(path):
    lines = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError as fault:
            sys.exit(f"{path.name}, line {number}: no JSON ({fault}); fix: take out what is no line of a run")
    return lines


def row(cells):
    """Of a table in Markdown."""
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
