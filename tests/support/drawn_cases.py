"""Of many cases that show much the same, each commit draws a few, so that in time all of them are run."""

import hashlib
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
THOROUGH = "TROUPE_THOROUGH"  # In the environment (scripts/test --thorough): nothing is drawn, all are run.


def commit_here():
    """The hash of the checked-out commit; a fixed word where there is no git."""
    try:
        found = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=20)
    except OSError:
        return "none"
    return found.stdout.strip() if found.returncode == 0 else "none"


def drawn(names, number, commit):
    """`number` of the names, in their order: others for the next commit, the same whenever it is asked."""
    names = list(names)
    chosen = sorted(names, key=lambda name: hashlib.sha256(f"{commit} {name}".encode()).digest())[:number]
    return sorted(chosen, key=names.index)


def drawn_here(names, number):
    """The same by the checked-out commit; all of them where the run is to be thorough."""
    return list(names) if os.environ.get(THOROUGH) else drawn(names, number, commit_here())


def some_here(cases, number):
    """`number` of a script's cases, which are functions; all where the run is to be thorough."""
    cases = list(cases)
    names = drawn_here([case.__name__ for case in cases], number)
    if len(names) < len(cases):
        print(f"{len(names)} of {len(cases)} cases, drawn by commit {commit_here()} ({THOROUGH}=1: all)", flush=True)
    return [case for case in cases if case.__name__ in names]


def third_of(count):
    """How many of so many are drawn of what takes minutes: at least one, of none nothing."""
    return (count + 2) // 3


def third_here(cases):
    """A third of them, for a script that takes minutes."""
    cases = list(cases)
    return some_here(cases, third_of(len(cases)))


def named_or_third(cases, wanted, products=(), number=0):
    """Those of a script's cases whose names are wanted; where none is asked for, a third of them as above, and `number` of the
    products, which are too many for a third."""
    if wanted:
        return [case for case in [*cases, *products] if case.__name__ in wanted]
    return [*third_here(cases), *(some_here(products, number) if products else [])]
