#!/usr/bin/python3
"""Sources are as clang-format writes them.

    check_format.py ROOT

Fix: clang-format -i FILE
"""

import os
import pathlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

FOLDERS = ["runtime", "scheduler", "balancer", "kernels", "models", "transport", "engine", "actors", "app", "tests"]


def is_formatted(file):
    run = subprocess.run(["clang-format", "--dry-run", "-Werror", str(file)], capture_output=True, text=True)
    return run.returncode == 0


def main(root):
    if shutil.which("clang-format") is None:
        print("SKIPPED: clang-format is not installed; scripts/setup installs it")
        return 77
    files = [file for folder in FOLDERS for suffix in ("*.hpp", "*.cpp", "*.cu")
             for file in sorted((root / folder).rglob(suffix))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [file for file, good in zip(files, pool.map(is_formatted, files)) if not good]
    for file in wrong:
        print(f"{file.relative_to(root)}: clang-format -i {file.relative_to(root)}")
    print(f"{len(files)} files, {len(wrong)} not formatted")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
