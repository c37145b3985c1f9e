#!/usr/bin/python3
"""Which tests of a build the checked-out commit draws.

    drawn_tests.py BUILD LABEL           names of the tests with this CTest label that it draws, a line each
    drawn_tests.py BUILD LABEL --rest    of those that it does not

A third is drawn (tests/support/drawn_cases.py), others by the next commit, so that in time all of them run;
TROUPE_THOROUGH=1 draws all.
"""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "support"))

from drawn_cases import drawn_here, third_of


def labelled(listing, label):
    """Names of the tests that have the label, of CTest's own list of them."""
    return sorted(test["name"] for test in listing["tests"]
                  if any(label in property["value"] for property in test["properties"] if property["name"] == "LABELS"))


def main(words):
    if len(words) < 2 or words[2:] not in ([], ["--rest"]):
        sys.exit(__doc__)
    listing = subprocess.run(["ctest", "--test-dir", words[0], "--show-only=json-v1"], capture_output=True, text=True, timeout=60,
                             check=True).stdout
    names = labelled(json.loads(listing), words[1])
    chosen = drawn_here(names, third_of(len(names)))
    print("\n".join(name for name in names if (name in chosen) != ("--rest" in words)))


if __name__ == "__main__":
    main(sys.argv[1:])
