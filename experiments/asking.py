"""Asks the program: JSON in, JSON out, each question once."""

import functools
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


@functools.lru_cache(maxsize=None)
def asked(binary, words, text):
    run = subprocess.run([binary, *words], input=text, capture_output=True, text=True, timeout=300)
    if run.returncode != 0:
        sys.exit(f"troupe {' '.join(words)}: {run.stderr}")
    return run.stdout


def ask(binary, words, problem=None):
    return json.loads(asked(binary, tuple(map(str, words)), None if problem is None else json.dumps(problem)))


def ask_once(binary, words, problem):
    """The same for a large question that comes once: nothing of it is kept."""
    return json.loads(asked.__wrapped__(binary, tuple(map(str, words)), json.dumps(problem)))


def at_once(work, things):
    """Two at a time; each is a process of its own."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, things))


def table_of(head, rows):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows))
