#!/usr/bin/python3
"""Files stay small enough to read in one sitting.

    check_sizes.py ROOT

Limits: headers 250 lines, sources 400.
A larger file needs a line `// Size: why` among its first ten.
"""

import pathlib
import sys

FOLDERS = ["runtime", "scheduler", "balancer", "kernels", "models", "transport", "engine", "actors", "app", "tests"]
LIMITS = {".hpp": 250, ".cpp": 400, ".cu": 400}


def main(root):
    faults, count = [], 0
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in LIMITS:
                continue
            count += 1
            lines = file.read_text(errors="replace").splitlines()
            excused = any(line.startswith("// Size:") for line in lines[:10])
            if len(lines) > LIMITS[file.suffix] and not excused:
                faults.append(f"{file.relative_to(root)}: {len(lines)} lines, limit {LIMITS[file.suffix]}")
            if file.suffix == ".hpp" and "#pragma once" not in lines:
                faults.append(f"{file.relative_to(root)}: no #pragma once")
    print("\n".join(faults + [f"{count} files, {len(faults)} faults"]))
    return 1 if faults or not count else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
