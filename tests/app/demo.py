#!/usr/bin/python3
"""The demo keeps its promise, even in fewer steps: its loss falls by at least half, as its own summary finds.

    demo.py TROUPE ROOT
"""

import pathlib
import subprocess
import sys
import tempfile


def main(binary, root):
    with tempfile.TemporaryDirectory(prefix="troupe-demo-") as name:
        folder = pathlib.Path(name)
        subprocess.run([binary, "data", "make", str(folder / "data")], check=True, capture_output=True, timeout=60)
        train = subprocess.run([binary, "train", str(root / "configs" / "demo.toml"), f"job.run_dir={folder}/run", "train.steps=60",
                                f'data.sources=[{{json="{folder}/data/samples.json"}}]'],
                               cwd=folder, capture_output=True, text=True, timeout=500, check=False)
        if train.returncode != 0:
            sys.exit(f"the demo ended with {train.returncode}:\n{train.stdout[-800:]}{train.stderr[-800:]}")
        summary = subprocess.run([sys.executable, str(root / "scripts" / "lib" / "demo_summary.py"), str(folder / "run")],
                                 timeout=60, check=False)
        return summary.returncode


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()))
