#!/usr/bin/python3
"""Every job file of configs/ and experiments/ is valid or lacks nothing but its data. What README.md does with its own: readme.py.

    configs.py TROUPE ROOT
"""

import pathlib
import subprocess
import sys


def check(binary, root, file, name):
    """Prints what was found; False where the file is wrong."""
    run = subprocess.run([binary, "validate", str(file)], cwd=root, capture_output=True, text=True, timeout=60)
    problems = [line for line in run.stderr.splitlines()
                if not line.startswith("  fix:") and not line.endswith("Nothing was started.")]
    absent = [line for line in problems if "data.sources" in line and "is not there" in line]
    # A replay trains nothing: that these models are too large for this machine is true, and no fault of theirs.
    too_large = [line for line in problems if "experiments" in file.parts and line.startswith("warning: memory: ")
                 and line.endswith("training would be refused on this machine")]
    good = len(absent) + len(too_large) == len(problems) and (run.returncode == 0 or absent)
    state = "valid but for its data, which is not here" if absent else "valid, for a replay" if too_large else "valid"
    print(f"{name}: {state if good else 'WRONG'}" + ("" if good else "\n" + run.stderr))
    return good


def main(binary, root):
    files = sorted(file for folder in ("configs", "experiments") for file in (root / folder).rglob("*.toml"))
    failed = sum(not check(binary, root, file, file.relative_to(root)) for file in files)
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
