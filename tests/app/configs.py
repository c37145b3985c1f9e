#!/usr/bin/python3
"""Every job file of configs/ is valid or lacks nothing but its data; the first one that README.md explains trains on
the data that it names, and as a job that waits for its nodes.

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
    # A replay trains nothing: that these models are too large for this machine is true, and no fault of theirs.
    too_large = [line for line in problems if "papers" in file.parts and line.startswith("warning: memory: ")
                 and line.endswith("training would be refused on this machine")]
    good = len(absent) + len(too_large) == len(problems) and (run.returncode == 0 or absent)
    state = "valid but for its data, which is not here" if absent else "valid, for a replay" if too_large else "valid"
    print(f"{name}: {state if good else 'WRONG'}" + ("" if good else "\n" + run.stderr))
    return good


def carry_out(folder, name, *words):
    """Runs a command of the binary in `folder`; prints what was wrong with it."""
    run = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True, text=True, timeout=120)
    if run.returncode != 0:
        print(f"{name}: WRONG: {' '.join(map(str, words[1:]))}\n{run.stdout[-500:]}{run.stderr[-500:]}")
    return run.returncode == 0


def follow_readme(binary, root):
    """True if the commands of "A first job file", "Stop, and go on" and "Several machines" do what they say."""
    first, saving, watched, by_hand = re.findall(r"```toml\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)[:4]
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "first.toml").write_text(first)
        (pathlib.Path(folder) / "saving.toml").write_text(first + saving)
        (pathlib.Path(folder) / "watched.toml").write_text(first + watched)
        # One section takes the place of the other; local nodes join as those of other shells would.
        joined = first[:first.index("[cluster]")] + re.sub(r'listen = "\S+"', 'listen = "127.0.0.1:0"', by_hand)
        (pathlib.Path(folder) / "joined.toml").write_text(joined + "local_nodes = 2\n")
        good = (carry_out(folder, "README.md", binary, "data", "make", "runs/demo-data", "-n", 40)
                and carry_out(folder, "README.md", binary, "train", "first.toml", "train.steps=2",
                              "modules.vision.freeze=true")
                and carry_out(folder, "README.md", binary, "train", "saving.toml", "train.steps=3", "checkpoint.every_steps=2")
                and carry_out(folder, "README.md", binary, "train", "--resume", "runs/first", "cluster.nodes=1", "cluster.local_nodes=1",
                              "parallel.pipelines=[]", "parallel.mode=auto", "train.steps=4")
                and carry_out(folder, "README.md", binary, "validate", "watched.toml")
                and carry_out(folder, "README.md", binary, "checkpoint", "list", "runs/first")
                and carry_out(folder, "README.md", binary, "checkpoint", "verify", "runs/first")
                and carry_out(folder, "README.md", binary, "train", "first.toml", "train.steps=1", "--fresh")
                and carry_out(folder, "README.md", binary, "key", "new", "runs/first.key")
                and carry_out(folder, "README.md", binary, "train", "joined.toml", "train.steps=1"))
    print("README.md: " + ("its first job trains" if good else "WRONG"))
    return good


def main(binary, root):
    files = sorted((root / "configs").rglob("*.toml"))
    failed = sum(not check(binary, root, file, file.relative_to(root)) for file in files)
    failed += not follow_readme(binary, root)
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
