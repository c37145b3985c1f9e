"""Runs the cases of a script: a line for each, and a last line that scripts/test adds up."""

import subprocess
import time
import traceback


class Failure(Exception):
    """What a case expects does not hold."""


class Skipped(Exception):
    """This machine cannot run the case."""


def expect(condition, what):
    """Ends the case with `what` where it does not hold."""
    if not condition:
        raise Failure(what)


def run_cases(cases, run):
    """Calls `run` with each case, a function with a sentence for a name; returns the script's exit code."""
    cases = list(cases)
    if not cases:
        print("failed: no case of that name\n0 passed, 1 failed, 0 skipped")
        return 1
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in cases:
        begin = time.monotonic()
        try:
            run(case)
            verdict, reason = "passed", ""
        except Skipped as why:
            verdict, reason = "skipped", f": {why}"
        except (Failure, subprocess.SubprocessError) as why:
            verdict, reason = "failed", f": {why}"
        except Exception:  # The script's own fault ends this case, not those behind it.
            verdict, reason = "failed", f":\n{traceback.format_exc()}"
        counts[verdict] += 1
        seconds = time.monotonic() - begin
        print(f"{verdict}: {case.__name__.replace('_', ' ')} ({seconds:.1f} s){reason}", flush=True)
    print(", ".join(f"{number} {name}" for name, number in counts.items()))
    return 1 if counts["failed"] else 0
