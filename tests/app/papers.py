#!/usr/bin/python3
"""Who beats whom in configs/papers, and that `troupe replay` answers a wrong command line.

    papers.py TROUPE ROOT
"""

import pathlib
import subprocess
import sys
import tempfile

MACHINES = ["--microbatch-size", "2", "--recompute"]


def oobleck_claims(tables, binary):
    """Table 2.2 with failures on time: the same on every run, and the harder case for checkpoints."""
    for model in tables.OOBLECK:
        rows = {every: tables.replayed(binary, model, every) for every in ("6h", "1h", "10m")}
        yield f"{model}: live beats checkpoints at every rate", all(row["live"] > row["checkpoint"] for row in rows.values()), rows
        for mode in ("live", "checkpoint"):
            throughputs = [row[mode] for row in rows.values()]
            yield f"{model}, {mode}: more failures, fewer samples", throughputs == sorted(throughputs, reverse=True), rows
        ratios = [row["live"] / row["checkpoint"] if row["checkpoint"] else float("inf") for row in rows.values()]
        yield f"{model}: the advantage grows with the rate", ratios == sorted(ratios), rows
        yield f"{model}: live keeps more than half", rows["10m"]["live"] > rows["6h"]["live"] / 2, rows


def cornstarch_claims(tables, binary):
    rows = tables.cornstarch(binary)
    gains = {name: row["unaware"] / row["aware"] for name, row in rows.items()}
    yield "knowing what is frozen never costs", min(gains.values()) >= 1 - 1e-9, gains
    yield "it gains least where one module outweighs all: LLS, SSL", set(sorted(gains, key=gains.get)[:2]) == {"LLS", "SSL"}, gains
    big = [name for name, row in rows.items() if row["published"]["unaware"] / row["published"]["aware"] >= 1.3]
    yield "what gains 1.3x or more in print does so here", all(gains[name] >= 1.3 for name in big), gains
    for llm in "SML":
        times = [row["aware"] for name, row in rows.items() if name[2] == llm]
        yield f"LLM {llm}: larger encoders, longer iterations", times == sorted(times), times


def entrain_claims(tables, binary):
    rows = tables.entrain(binary, models=("3b",), batches=1)
    for together in (False, True):
        ours, disttrain, dip = (rows["3b", together, system] for system in ("entrain", "disttrain", "dip"))
        case = "together" if together else "independent"
        yield f"{case}: Entrain's step beats DistTrain's", ours["step_ms"] < disttrain["step_ms"], rows
        for other in (disttrain, dip):
            # Independent samples with long tails: one sample can exceed a whole microbatch's share of the LLM.
            sides = 2 if together else 1
            yield f"{case}: microbatches differ less", all(a < b for a, b in zip(ours["std_ms"][:sides], other["std_ms"])), rows
        if together:
            yield f"{case}: Entrain's step beats DIP's", ours["step_ms"] < dip["step_ms"], rows


def refusals(binary, root, folder):
    trace = pathlib.Path(folder) / "bad.csv"
    trace.write_text("0,add,a\n5,joined,b\n")
    table = [(2, "which failures", []), (2, "which failures", ["--failures", str(trace), "--failure-every", "1h"]),
             (3, "bad.csv:2", ["--failures", str(trace)]), (2, "nodes x devices x device", ["--failure-every", "1h", "--cluster=3x4"]),
             (2, "--arrivals", ["--failure-every", "1h", "--arrivals", "never"]),
             (2, "10,000 nodes", ["--failure-every", "1h", "--cluster=20000x1xA40-48G"]),
             (2, "node_storage", ["--failure-every", "1h", "--node-storage-gb-per-s", "-1"])]
    for code, says, words in table:
        cluster = [] if any(word.startswith("--cluster=") for word in words) else ["--cluster", "30x1xA40-48G"]
        run = subprocess.run([binary, "replay", "configs/papers/oobleck/gpt3-2.7b.toml", *MACHINES, *cluster, *words], cwd=root,
                             capture_output=True, text=True, timeout=60)
        yield f"replay {words}", run.returncode == code and says in run.stderr and not run.stdout, (run.returncode, run.stderr)


def table_for_people(binary, root):
    run = subprocess.run([binary, "replay", "configs/papers/oobleck/gpt3-2.7b.toml", *MACHINES, "--cluster", "30x1xA40-48G", "--failure-every", "1h"],
                         cwd=root, capture_output=True, text=True, timeout=60)
    yield "the table", run.returncode == 0 and "samples/s" in run.stdout and not run.stderr, run


def main(binary, root):
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(root / "configs" / "papers"))
    import reproduce as tables
    wrong = held = 0
    with tempfile.TemporaryDirectory() as folder:
        for claims in (oobleck_claims(tables, binary), cornstarch_claims(tables, binary), entrain_claims(tables, binary),
                       refusals(binary, root, folder), table_for_people(binary, root)):
            for claim, holds, seen in claims:
                held, wrong = held + bool(holds), wrong + (not holds)
                if not holds:
                    print(f"does not hold: {claim}\n  {seen}")
    print(f"{held} claims hold, {wrong} do not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()))
