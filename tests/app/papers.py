#!/usr/bin/python3
"""Who beats whom in configs/papers, and that `troupe replay` answers a wrong command line.

    papers.py TROUPE ROOT
"""

import json
import pathlib
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path("configs/papers/oobleck")
MACHINES = ["--cluster", "30x1xA40-48G", "--microbatch-size", "2", "--recompute", "--storage-gb-per-s", "0.25"]


def replay(binary, root, model, *words):
    return subprocess.run([binary, "replay", str(FOLDER / f"{model}.toml"), *MACHINES, *words], cwd=root,
                          capture_output=True, text=True, timeout=60)


def throughputs(binary, root, model, every):
    run = replay(binary, root, model, "--failure-every", every, "--json")
    return {name: mode["samples_per_s"] for name, mode in json.loads(run.stdout)["recovery"].items()}


def orders(binary, root, model):
    """Claims of Table 2.2 that do not hold here."""
    rows = {every: throughputs(binary, root, model, every) for every in ("6h", "1h", "10m")}
    claims = {"live beats checkpoints at every rate": all(row["live"] > row["checkpoint"] for row in rows.values())}
    for mode in ("live", "checkpoint"):
        claims[f"{mode}: more failures, fewer samples"] = \
            rows["6h"][mode] > rows["1h"][mode] > rows["10m"][mode]
    ratios = [row["live"] / row["checkpoint"] for row in rows.values()]
    claims["the advantage grows with the rate"] = ratios == sorted(ratios)
    claims["live keeps more than half of its throughput"] = rows["10m"]["live"] > rows["6h"]["live"] / 2
    return [f"{model}: {claim}: {rows}" for claim, holds in claims.items() if not holds]


def refusals(binary, root, folder):
    trace = pathlib.Path(folder) / "bad.csv"
    trace.write_text("0,add,a\n5,joined,b\n")
    table = [(2, "which failures", []), (2, "which failures", ["--failures", str(trace), "--failure-every", "1h"]),
             (3, "bad.csv:2", ["--failures", str(trace)]), (2, "NODESxDEVICES", ["--failure-every", "1h", "--cluster=3x4"])]
    wrong = []
    for code, says, words in table:
        base = MACHINES if not any(word.startswith("--cluster=") for word in words) else MACHINES[2:]
        run = subprocess.run([binary, "replay", str(FOLDER / "gpt3-2.7b.toml"), *base, *words], cwd=root,
                             capture_output=True, text=True, timeout=60)
        if run.returncode != code or says not in run.stderr or run.stdout:
            wrong.append(f"{words}: exit code {run.returncode}: {run.stderr}")
    return wrong


def main(binary, root):
    wrong = [fault for model in ("gpt3-2.7b", "gpt3-6.7b") for fault in orders(binary, root, model)]
    with tempfile.TemporaryDirectory() as folder:
        wrong += refusals(binary, root, folder)
    table = replay(binary, root, "gpt3-2.7b", "--failure-every", "1h")
    if table.returncode != 0 or "samples/s" not in table.stdout or table.stderr:
        wrong.append(f"the table: {table.stdout}{table.stderr}")
    print("\n".join(wrong) or "all orders hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
