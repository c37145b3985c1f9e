#!/usr/bin/python3
"""What experiments says holds, does; what it says does not, does not; every input has its origin. Then a replay of days,
and that `troupe replay` answers a wrong command line.

    experiments.py TROUPE [origins] [oobleck] [cornstarch] [entrain] [orchmllm] [heterogeneous] [replay]     default: all of it
"""

import json
import pathlib
import re
import random
import subprocess
import sys
import tempfile

MACHINES = ["--microbatch-size", "2", "--recompute"]


def table_claims(tables, all_rows):
    """What README.md says holds, does; what it says does not reproduce, does not."""
    for experiment, rows in all_rows.items():
        for code, expected, says, holds, numbers in tables.claims.judged(experiment, rows):
            yield f"{code}, which should {'hold' if expected else 'not hold'}: {says}", holds == expected, (numbers, rows)
    # How much, so that planners do not get worse unseen.
    cases = tables.claims.cases(all_rows.get("entrain", {}))
    for (model, case), systems in cases.items():
        ours, disttrain, dip = (systems[system]["step_ms"] for system in ("entrain", "disttrain", "dip"))
        yield f"{model}, {case}: Entrain's step beats DistTrain's by 5 % or more", disttrain / ours >= 1.05, systems
        least = 1.08 if case == "together" else 0.95
        yield f"{model}, {case}: DIP's step is {least} of Entrain's or more", dip / ours >= least, systems


def numbers_apart(text):
    """The text without its numbers, and they."""
    number = r"\d+(?:\.\d+)?"
    return re.sub(number, "#", text), [float(found) for found in re.findall(number, text)]


def alike(one, other):
    """Equal but for the last digits, which another machine may round differently."""
    (words, numbers), (other_words, other_numbers) = numbers_apart(one), numbers_apart(other)
    return words == other_words and all(abs(a - b) <= 0.01 * max(abs(a), abs(b)) + 0.011 for a, b in zip(numbers, other_numbers))


def readme_claims(tables, all_rows, with_inputs):
    """README.md holds what the commands print."""
    text = (tables.HERE / "README.md").read_text()

    def block(name):
        span = tables.marked(text, name)
        return "" if span is None else text[span[0]:span[1]]
    made = [(name, tables.SHOWN[name](rows)) for name, rows in all_rows.items()]
    if len(all_rows) == len(tables.EXPERIMENTS):
        made.append(("claims", tables.show_claims(all_rows)))
    if with_inputs:
        made.append(("inputs", tables.show_inputs()))
    for name, shown in made:
        yield f"README.md: {name}", alike(block(name), shown), (block(name), shown)
    misses, held = text.find("**Does not reproduce**"), text.find("**Reproduces**")
    yield "README.md: what does not reproduce stands first", 0 < misses < held < text.index("\n## ") and text[:misses].count("\n") <= 12, text[:600]
    for experiment in all_rows:
        rows = [line.strip("| ").split(" | ") for line in block(f"{experiment}-sensitivity").splitlines()]
        yield f"README.md: {experiment} with nothing changed", any(row[0].startswith("all as they are") and row[-1] == "nothing" for row in rows), rows[:4]
        for entry in tables.inputs.entries():
            if entry.experiment == experiment and entry.origin == "chosen":
                for words, _ in entry.variations():
                    wanted = tables.sensitivity_line(entry, words, [])[:-1]
                    yield f"README.md: sensitivity of {wanted}", any(row[:-1] == wanted for row in rows), rows


def sensitivity_claims(tables, binary):
    """One input's rows, played again: they are README.md's, and another value of it changes what comes out."""
    text = (tables.HERE / "README.md").read_text()
    span = tables.marked(text, "cornstarch-sensitivity")
    lines = text[span[0]:span[1]].splitlines()
    found = [row for row in tables.sensitivity(binary, "cornstarch", only="stages") if row[0] is not None]
    yield "sensitivity to the number of stages: four others", len(found) == 4 and any(other for _, _, other in found), found
    for entry, words, other in found:
        line = f"| {' | '.join(tables.sensitivity_line(entry, words, other))} |"
        yield f"README.md: {line}", line in lines, lines


def unread_claims(tables, binary):
    """What is said not to be read, is not; what is said to be read, is."""
    table, _ = tables.inputs.load("oobleck")
    def played(*words):
        return tables.replayed(binary, table, "gpt3-2.7b", "1h", "periodic", 0, words)
    as_it_is = played()
    for word in ("train.steps=2", "train.microbatches=2"):
        yield f"a replay does not read {word}", played(word) == as_it_is, as_it_is
    yield "a replay reads data.max_seq_len", played("data.max_seq_len=1024") != as_it_is, as_it_is


def room_claims(tables, binary):
    """Less room changes a step, and has DIP's schedule run its phases more than once."""
    table, _ = tables.inputs.load("entrain", [("entrain/table-4.1.json", "max_in_flight", ("set", 5))])
    batch = tables.uneven_samples(table, table["llms"]["1b"], 0, 0)
    def stepped(**changes):
        return tables.step(binary, batch, table["llms"]["1b"]["stages"]["entrain"], table["systems"]["entrain"], table | changes, 0)[0]
    with_five = stepped()
    yield "a step takes longer with room for five microbatches", with_five > stepped(max_in_flight=table["microbatches"]), with_five
    yield "a step takes longer over links that take time", stepped(link_ms=10) > with_five, with_five
    yield "a step takes longer with longer backwards", stepped(backward_over_forward=4) > with_five, with_five
    problem = {"samples": batch[:table["samples_per_replica"]], "microbatches": table["microbatches"], "encoder_stages": 8, "llm_stages": 8,
               "policy": "in-order", "schedule": "dip", "colocated": True}
    def dip(room):
        asked = subprocess.run([binary, "solve", "simulate"], input=json.dumps(problem | {"max_in_flight": room}), capture_output=True,
                               text=True, timeout=60, check=True)
        return json.loads(asked.stdout)
    whole, short = dip(table["microbatches"]), dip(table["microbatches"] - 1)
    yield "DIP's phases run again with room for all but one, which takes longer", short["step_ms"] > whole["step_ms"], (short, whole)


def rank_claims(tables, binary):
    """What is counted of ranks is what the program says of them, and its composition ends where its placements do."""
    ranks = tables.ranks
    table, _ = tables.inputs.load("orchmllm")
    cluster = ranks.Cluster(binary, table, "mllm-84b", 32, 25, 0)
    dispatched, placed, answers = cluster.placed(cluster.batches())
    for phase in ranks.ENCODERS:
        counted = ranks.off_node(dispatched[phase][0], cluster.ranks, table["ranks_per_node"])[0]
        yield f"{phase}: what leaves a node", abs(counted - answers[phase]["inter_node_max"]) <= 1e-6 * counted > 0, (counted, answers[phase])
        composed = sorted(cluster.composed_moves(placed, phase))
        yield f"{phase}: composed moves", composed == sorted(dispatched[phase][1]) and len(composed) > 100, composed[:4]
        least, sent = (ranks.least_off_node(cluster.moves(placed, phase), cluster.ranks, table["ranks_per_node"]),
                       ranks.off_node(dispatched[phase][0], cluster.ranks, table["ranks_per_node"])[1])
        yield f"{phase}: a placement sends no less than its bound", 0 < least <= sent, (least, sent)
        here, there = ({member for batch in each[phase] for member in batch} for each in (cluster.drawn, placed))
        yield f"{phase}: nobody is lost", here == there, len(here ^ there)


def provenance_claims(inputs, root):
    """Every input says where it is from; printed ones are looked up where the paper lies beside the project."""
    faults = inputs.faults(inputs.papers(root.parent / "shared" / "papers"))
    yield "every input has its origin", not faults and len(inputs.inputs()) > 100, faults
    job = "oobleck/gpt3-2.7b.toml"
    yield "the count of inputs holds those of tables and job files", {(job, "train.dtype"), ("entrain/table-4.1.json", "encoder.mean_ms")} \
        <= {(file, path) for file, path, _ in inputs.inputs()}, inputs.inputs()
    yield from planted_faults(inputs)
    table, words = inputs.load("oobleck", [("oobleck/table-2.2.json", "nodes", ("times", 2)), (job, "train.dtype", ("set", "bf16"))])
    yield "changed inputs reach the experiment", table["nodes"] == 60 and words == {"gpt3-2.7b": ['train.dtype="bf16"']}, (table, words)


def planted_faults(inputs):
    """The check of origins sees what it is there for."""
    entry = "entrain/table-4.1.json"
    table = [("an input without an entry", "no.such.path", {"origin": "chosen", "why": "", "fixed": ""}, "covers no input"),
             ("a formula with another value", "replicas", {"origin": "computed", "formula": "512 / 4", "of": "it"}, "512 / 4 is 128"),
             ("computed from nothing", "replicas", {"origin": "computed"}, "by which formula"),
             ("a choice without a reason", "encoder.mean_ms", {"origin": "chosen", "vary": "factor"}, "not why"),
             ("a choice that is not varied", "encoder.mean_ms", {"origin": "chosen", "why": "so"}, "neither varied"),
             ("a source that is none", "replicas", {"origin": "paper"}, "from which table"),
             ("a number that is not printed", "replicas", {"origin": "paper", "quote": "batch of 512"}, "4 is not printed"),
             ("a quote that is not printed", "replicas", {"origin": "paper", "quote": "DP=4 everywhere"}, "does not say"),
             ("a table that is not printed", "replicas", {"origin": "paper", "table": "4.9"}, "4 is not printed"),
             ("no origin", "replicas", {}, "its origin")]
    paper = "Table 4.1: what there is\n\na\tbatch of 512\n\nDP=4"
    for what, path, says, wrong in table:
        found = inputs.entry_faults(inputs.Entry(entry, path, says), paper)
        yield f"origins: {what}", any(wrong in fault for fault in found), found
    good = [{"origin": "paper", "quote": "DP=4"}, {"origin": "computed", "formula": "sqrt(16)", "of": "it"}]
    yield "origins: good ones", not any(inputs.entry_faults(inputs.Entry(entry, "replicas", says), paper) for says in good), good
    listed, covers = inputs.entries(), sum(entry.covers("entrain/table-4.1.json", "encoder.mean_ms") for entry in inputs.entries())
    everything = inputs.entries
    try:
        inputs.entries = lambda: [entry for entry in listed if not entry.covers("entrain/table-4.1.json", "encoder.mean_ms")]
        missing = inputs.faults()
    finally:
        inputs.entries = everything
    yield "origins: an input that nobody explains", covers == 1 and missing == [f"{entry}: encoder.mean_ms has 0 entries in provenance.json"], missing


def drawn_trace(file):
    """Forty hours of 24 to 30 nodes: every tenth of an hour one or two go or come. Returns the nodes after each line's time."""
    drawn, alive, ever, lines, there = random.Random(3), list(range(28)), 28, [], {}
    lines += [f"0,add,n{node}" for node in alive]
    for number in range(1, 401):
        time_ms = number * 360_000
        for _ in range(drawn.choice((1, 1, 2))):
            if len(alive) > 24 and (len(alive) == 30 or drawn.random() < 0.5):
                lines.append(f"{time_ms},remove,n{alive.pop(drawn.randrange(len(alive)))}")
            else:
                alive.append(ever)
                lines.append(f"{time_ms},add,n{ever}")
                ever += 1
        there[time_ms] = len(alive)
    file.write_text("\n".join(lines) + "\n")
    return there


def trace_claims(binary, root, folder):
    """Hours of nodes that come and go, one drawn here and, where it lies beside the project, a recorded one."""
    drawn, recorded = pathlib.Path(folder) / "drawn.csv", root.parent / "shared" / "data" / "spot-traces" / "g4dn-trace.csv"
    there = drawn_trace(drawn)
    for file in [drawn] + [recorded] * recorded.is_file():
        run = subprocess.run([binary, "replay", "experiments/oobleck/gpt3-2.7b.toml", *MACHINES, "--cluster", "30x1xA40-48G", "--failures", str(file), "--json"],
                             cwd=root, capture_output=True, text=True, timeout=60)
        yield f"{file.name}: played", run.returncode == 0, run.stderr
        live, restart = (json.loads(run.stdout)["recovery"][mode] for mode in ("live", "checkpoint"))
        for mode in (live, restart):
            yield f"{file.name}: times add up", abs(sum(mode["time_share"].values()) - 1) < 1e-9, mode["time_share"]
            yield f"{file.name}: work fits its nodes", all(sum(event["pipelines"]) + event["idle"] <= event["nodes"] or not event["pipelines"]
                                                         for event in mode["events"]), mode["events"][:3]
        yield f"{file.name}: live recovery trains more", live["samples"] > restart["samples"] > 0, (live["samples"], restart["samples"])
        if file == drawn:
            # A join waits for the end of an iteration; a loss takes effect at once.
            counts = {event["time_ms"]: event["nodes"] for event in live["events"]}
            same = [time_ms for time_ms in there if time_ms in counts]
            yield "nodes are those of the trace", len(same) > 100 and all(abs(counts[time_ms] - there[time_ms]) <= 1 for time_ms in same), counts


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
        run = subprocess.run([binary, "replay", "experiments/oobleck/gpt3-2.7b.toml", *MACHINES, *cluster, *words], cwd=root,
                             capture_output=True, text=True, timeout=60)
        yield f"replay {words}", run.returncode == code and says in run.stderr and not run.stdout, (run.returncode, run.stderr)


def table_for_people(binary, root):
    run = subprocess.run([binary, "replay", "experiments/oobleck/gpt3-2.7b.toml", *MACHINES, "--cluster", "30x1xA40-48G", "--failure-every", "1h"],
                         cwd=root, capture_output=True, text=True, timeout=60)
    # A slow machine may make it say what it is busy with.
    quiet = all(re.fullmatch(r"troupe: .* \(\d+ s\)", line) for line in run.stderr.splitlines())
    yield "the table", run.returncode == 0 and "samples/s" in run.stdout and quiet, run


def parts(binary, root, folder, tables, wanted):
    """The claims of each part that is wanted; README.md's list at the top only with all of them."""
    names = [name for name in tables.EXPERIMENTS if name in wanted]
    all_rows = {name: tables.EXPERIMENTS[name](binary) for name in names}
    if "origins" in wanted:
        yield provenance_claims(tables.inputs, root)
        yield unread_claims(tables, binary)
        yield room_claims(tables, binary)
    yield table_claims(tables, all_rows)
    yield readme_claims(tables, all_rows, "origins" in wanted)
    if "cornstarch" in wanted:
        yield sensitivity_claims(tables, binary)
    if "orchmllm" in wanted:
        yield rank_claims(tables, binary)
    if "replay" in wanted:
        yield from (trace_claims(binary, root, folder), refusals(binary, root, folder), table_for_people(binary, root))


def main(binary, root, wanted):
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(root / "experiments"))
    import reproduce as tables
    everything = ["origins", *tables.EXPERIMENTS, "replay"]
    if not set(wanted) <= set(everything):
        sys.exit(__doc__)
    wrong = held = 0
    with tempfile.TemporaryDirectory() as folder:
        for claims in parts(binary, root, folder, tables, wanted or everything):
            for claim, holds, seen in claims:
                held, wrong = held + bool(holds), wrong + (not holds)
                if not holds:
                    print(f"does not hold: {claim}\n  {seen}")
    print(f"{held} claims hold, {wrong} do not")
    return 1 if wrong or not held else 0


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(__file__).resolve().parents[2], sys.argv[2:]))
