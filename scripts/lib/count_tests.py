#!/usr/bin/python3
"""Adds up what CTest and Catch2 left behind; prints what failed or was skipped, and the last line of scripts/test.

    count_tests.py [--broken-builds N] BUILD...

Each BUILD holds CTest's results.xml and, per Catch2 program, tests/NAME.xml. A program counts as many as it has
test cases; one that ended before its report was complete counts the cases that it finished and one failure more.
A script counts as many as it says itself ("3 passed, 0 failed, 1 skipped" on a line), else as one. Reasons of skipped
cases are repeated: Catch2's, and a script's lines that begin with "skipped:". A build that failed counts as one failure.
"""

import argparse
import html
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

CASES = re.compile(
    r'<OverallResultsCases successes="(\d+)" failures="(\d+)" expectedFailures="(\d+)"(?: skips="(\d+)")?/>')
TALLY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)
SKIPPED = re.compile(r"<Skip\b[^>]*>\s*(.*?)\s*</Skip>", re.DOTALL)
FINISHED = re.compile(r'<OverallResult success="(true|false)"(?: skips="(\d+)")?')


def count_catch2(text, failed):
    """(passed, failed, skipped) of one program's report; `failed`: CTest saw it fail."""
    whole = CASES.search(text)
    if whole:
        passed, bad, expected, skipped = (int(x or 0) for x in whole.groups())
        # A program can fail after its last case: in a destructor, or by a sanitizer.
        return passed + expected, max(bad, 1 if failed else 0), skipped
    verdicts = FINISHED.findall(text)
    skipped = sum(1 for good, skips in verdicts if good == "true" and int(skips or 0) > 0)
    passed = sum(1 for good, _ in verdicts if good == "true") - skipped
    return passed, len(verdicts) - passed - skipped + 1, skipped


def count_script(output, failed):
    """(passed, failed, skipped) of a program that is none of Catch2's."""
    tallies = TALLY.findall(output)
    if not tallies:
        return (0, 1, 0) if failed else (1, 0, 0)
    passed, bad, skipped = (int(number) for number in tallies[-1])
    return passed, max(bad, 1 if failed else 0), skipped


def count_build(build):
    """(passed, failed, skipped); the tests that failed, as (name, output); lines about what was skipped."""
    totals, failures, skips = [0, 0, 0], [], []
    results = build / "results.xml"
    if not results.exists():
        return [0, 1, 0], [(f"{build}: no results", "ctest left no results.xml")], []
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        report = build / "tests" / f"{name}.xml"
        failed = status not in ("run", "notrun", "disabled") or case.find("failure") is not None
        output = (case.findtext("system-out") or "").strip()
        if report.exists():
            text = report.read_text(errors="replace")
            counts = count_catch2(text, failed)
            skips += [f"{build.name}: {name}: skipped: {html.unescape(why)}" for why in SKIPPED.findall(text)]
        elif status in ("notrun", "disabled") or case.find("skipped") is not None:
            counts = (0, 0, 1)
            if "Unable to find" in output or "not found" in (case.find("skipped").get("message", "")
                                                              if case.find("skipped") is not None else ""):
                counts = (0, 1, 0)
        else:
            counts = count_script(output, failed)
            skips += [f"{build.name}: {name}: {line}" for line in output.splitlines() if line.startswith("skipped:")]
        totals = [a + b for a, b in zip(totals, counts)]
        if counts[1]:
            failures.append((f"{build.name}: {name}", output))
    return totals, failures, skips


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--broken-builds", type=int, default=0)
    parser.add_argument("builds", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    totals, failures, skips = [0, arguments.broken_builds, 0], [], []
    for build in arguments.builds:
        counts, failed, skipped = count_build(build)
        print(f"{build.name}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
        totals = [a + b for a, b in zip(totals, counts)]
        failures += failed
        skips += skipped
    for name, output in failures:
        lines = output.splitlines()
        print(f"\n--- failed: {name}")
        print("\n".join((["..."] if len(lines) > 60 else []) + lines[-60:]))
    print("".join(f"\n{line}" for line in skips))
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] or totals[0] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
