#!/usr/bin/python3
"""Every job file of configs/ is valid, or lacks nothing but its data.

    configs.py TROUPE ROOT
"""

import pathlib
import subprocess
import sys


def main(binary, root):
    failed, files = 0, sorted((root / "configs").rglob("*.toml"))
    for file in files:
        run = subprocess.run([binary, "validate", str(file)], cwd=root, capture_output=True, text=True, timeout=60)
        problems = [line for line in run.stderr.splitlines()
                    if not line.startswith("  fix:") and not line.endswith("Nothing was started.")]
        absent = [line for line in problems if "data.sources" in line and "is not there" in line]
        if len(absent) == len(problems) and (run.returncode == 0 or problems):
            state = "valid" if not problems else "valid but for its data, which is not here"
        else:
            failed += 1
            state = "WRONG\n" + run.stderr
        print(f"{file.relative_to(root)}: {state}")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
