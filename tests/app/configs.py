#!/usr/bin/python3
"""Every job file of configs/, and the one that README.md explains, is valid or lacks nothing but its data.

    configs.py TROUPE ROOT
"""

import pathlib
import re
import subprocess
import sys
import tempfile


def check(binary, root, file, name):
    """Prints what was found; False where the file is wrong."""
    run = subprocess.run([binary, "validate", str(file)], cwd=root, capture_output=True, text=True, timeout=60)
    problems = [line for line in run.stderr.splitlines()
                if not line.startswith("  fix:") and not line.endswith("Nothing was started.")]
    absent = [line for line in problems if "data.sources" in line and "is not there" in line]
    good = len(absent) == len(problems) and (run.returncode == 0 or problems)
    state = "valid" if not problems else "valid but for its data, which is not here"
    print(f"{name}: {state if good else 'WRONG'}" + ("" if good else "\n" + run.stderr))
    return good


def main(binary, root):
    files = sorted((root / "configs").rglob("*.toml"))
    failed = sum(not check(binary, root, file, file.relative_to(root)) for file in files)
    first = re.search(r"```toml\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "first.toml"
        file.write_text(first.group(1))
        failed += not check(binary, root, file, "README.md")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
