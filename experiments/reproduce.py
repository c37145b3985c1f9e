#!/usr/bin/python3
"""Published tables, computed again; prints ours beside theirs. README.md says what differs.

    reproduce.py TROUPE oobleck | cornstarch | entrain | orchmllm | heterogeneous [--write]
                                                                   the table
    reproduce.py TROUPE claims [--write]                           all of them, and what holds and what does not
    reproduce.py TROUPE oobleck-sensitivity | ... [--write]        the same with each chosen input changed: minutes
    reproduce.py TROUPE inputs [--write]                           every input and where it comes from

`--write` puts what is printed into README.md.
"""

import json
import math
import pathlib
import random
import re
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import claims
import inputs
import placements
import ranks
from asking import ask, at_once, table_of

RUNS_ALL_AHEAD = ("dip",)  # Schedules that are published with room for all microbatches.
PUBLISHED_NAMES = {"disttrain": "DistTrain", "dip": "DIP", "entrain": "Entrain"}


def replayed(binary, table, model, every, arrivals, seed=0, words=()):
    """Samples per second of each way to recover."""
    flags = [f"--{name.replace('_', '-')}={table[name]}" for name in
             ("microbatch_size", "checkpoint_every", "live_checkpoint_every", "link_gb_per_s", "storage_gb_per_s",
              "node_storage_gb_per_s", "coordination_s", "restart_s", "compute_share")]
    cluster = f"{table['nodes']}x{table['devices_per_node']}x{table['device']}"
    answer = ask(binary, ["replay", HERE / "oobleck" / f"{model}.toml", *words, *flags, *["--recompute"] * table["recompute"], "--lost", "silent",
                          "--cluster", cluster, "--failure-every", every, "--arrivals", arrivals, "--seed", seed, "--json"])
    return {mode: answer["recovery"][mode]["samples_per_s"] for mode in ("checkpoint", "live")}


def oobleck(binary, changes=()):
    """Per (model, mean time between failures): means over seeds, and failures exactly on time."""
    table, words = inputs.load("oobleck", changes)
    cells = [(model, every) for model in table["published"] for every in table["failure_every"]]
    seeds = range(table["seeds"])
    runs = [(model, every, table["arrivals"], seed) for model, every in cells for seed in seeds]
    runs += [(model, every, "periodic", 0) for model, every in cells]
    found = dict(zip(runs, at_once(lambda run: replayed(binary, table, *run, words.get(run[0], ())), runs)))
    rows = {}
    for model, every in cells:
        drawn = [found[model, every, table["arrivals"], seed] for seed in seeds]
        means = {mode: statistics.mean(each[mode] for each in drawn) for mode in ("checkpoint", "live")}
        rows[model, every] = {"published": table["published"][model][every], "random": means, "periodic": found[model, every, "periodic", 0]}
    return rows


def frozen_problem(encoder, llm, table, aware):
    """Only the projector trains. Who does not know that takes every backward for a multiple of its forward."""
    whole = table["assumed_backward_over_forward"]

    def layers(module, input_grad_ms, weight_grad_ms):
        count = module["layers"]
        return [{"forward_ms": module["forward_ms"] / count, "input_grad_ms": input_grad_ms / count, "weight_grad_ms": weight_grad_ms / count}] * count

    def assumed(module):
        return layers(module, module["forward_ms"] * whole / 2, module["forward_ms"] * whole / 2)

    projector = {"name": "projector", "next": ["llm"], "attach": "encoder",
                 "layers": [{"forward_ms": 0, "input_grad_ms": 0, "weight_grad_ms": 0}]}
    return {"devices": table["stages"], "microbatches": table["microbatches"], "modules": [
        {"name": "encoder", "freeze": aware, "next": ["projector"], "layers": assumed(encoder)},
        projector,
        {"name": "llm", "freeze": aware, "layers": layers(llm, llm["backward_ms"], 0) if aware else assumed(llm)}]}


def iteration_s(binary, cuts, encoder, llm, table):
    """1F1B of stages that were cut somehow, with what they really cost."""
    stages = []
    for number, stage in enumerate(cuts):
        share = {run["module"]: run["layers"][1] - run["layers"][0] for run in stage["runs"]}
        of_encoder, of_llm = share.get("encoder", 0) / encoder["layers"], share.get("llm", 0) / llm["layers"]
        stages.append({"name": f"s{number}", "next": [f"s{number + 1}"] if number + 1 < len(cuts) else [],
                       "forward_ms": of_encoder * encoder["forward_ms"] + of_llm * llm["forward_ms"],
                       "input_grad_ms": of_llm * llm["backward_ms"], "weight_grad_ms": 0})
    return ask(binary, ["solve", "schedule"], {"stages": stages, "microbatches": table["microbatches"], "schedule": "1f1b",
                                               "link_ms": table["link_ms"]})["step_ms"] / 1000


def cornstarch(binary, changes=()):
    table, _ = inputs.load("cornstarch", changes)

    def of(name):
        encoder, llm = table["encoders"][name[:2]], table["llms"][name[2]]
        row = {"published": table["published_s"][name]}
        for word, aware in (("aware", True), ("unaware", False)):
            cuts = ask(binary, ["solve", "module-partition"], frozen_problem(encoder, llm, table, aware))["stages"]
            row[word] = iteration_s(binary, cuts, encoder, llm, table)
        return row
    return dict(zip(table["published_s"], at_once(of, table["published_s"])))


def quantiles(distribution, mean_ms, deviation_ms, normals, drawn):
    """A time for each normal number, in the same order of size."""
    if distribution == "log-normal":
        variance = math.log(1 + (deviation_ms / mean_ms) ** 2)
        return [math.exp(math.log(mean_ms) - variance / 2 + math.sqrt(variance) * normal) for normal in normals]
    if distribution != "gamma":
        sys.exit(f"there is no distribution '{distribution}': log-normal, gamma")
    shape = (mean_ms / deviation_ms) ** 2
    sizes = sorted(drawn.gammavariate(shape, mean_ms / shape) for _ in normals)
    by_rank = sorted(range(len(normals)), key=normals.__getitem__)
    return [size for _, size in sorted(zip(by_rank, sizes))]


def uneven_samples(table, llm, seed, dependence):
    """Times of a sample in both modules; `dependence`: correlation of the normal numbers behind them."""
    drawn = random.Random(seed)
    pairs = [(drawn.gauss(0, 1), drawn.gauss(0, 1)) for _ in range(table["samples_per_replica"] * table["replicas"])]
    seconds = [dependence * first + math.sqrt(1 - dependence ** 2) * second for first, second in pairs]
    encoder, (over, under) = table["encoder"], llm["encoder_over_llm"]
    encoder_ms = quantiles(table["distribution"], encoder["mean_ms"], encoder["deviation_ms"], [first for first, _ in pairs], drawn)
    llm_ms = quantiles(table["distribution"], encoder["mean_ms"] * under / over, llm["deviation_ms"], seconds, drawn)
    return [{"encoder_ms": first, "llm_ms": second} for first, second in zip(encoder_ms, llm_ms)]


def dealt(binary, samples, table, balanced):
    """Samples of each replica: as Entrain assigns them (section 4.3), or as they come."""
    count, each = table["replicas"], table["samples_per_replica"]
    if not balanced:
        return [samples[replica * each:(replica + 1) * each] for replica in range(count)]
    replicas = ask(binary, ["solve", "replicas"], {"samples": samples, "speeds": [1] * count})["replicas"]
    return [[samples[index] for index in replica] for replica in replicas]


def step(binary, batch, stages, system, table, seed):
    """Time of a step, in which replicas wait for each other, and their mean deviations."""
    how = {key: system[key] for key in ("policy", "schedule", "colocated")} | {key: table[key] for key in ("backward_over_forward", "link_ms")}
    if system["schedule"] not in RUNS_ALL_AHEAD:
        how["max_in_flight"] = table["max_in_flight"]
    answers = [ask(binary, ["solve", "simulate"], {"samples": samples, "seed": seed, "microbatches": table["microbatches"],
                                                   "encoder_stages": stages[0], "llm_stages": stages[1], **how})
               for samples in dealt(binary, batch, table, system["balanced_replicas"])]
    return [max(each["step_ms"] for each in answers)] + [statistics.mean(each[key] for each in answers) for key in ("encoder_std_ms", "llm_std_ms")]


def entrain(binary, changes=()):
    """Per (LLM, how the times of a sample depend on each other, system): means over batches."""
    table, _ = inputs.load("entrain", changes)
    cells = [(model, case, system) for model in table["llms"] for case in table["dependences"] for system in table["systems"]]
    seeds = range(table["batches"])

    def of(run):
        model, case, system, seed = run
        llm = table["llms"][model]
        batch = uneven_samples(table, llm, seed, table["dependences"][case])
        return step(binary, batch, llm["stages"][system], table["systems"][system], table, seed)
    runs = [(*cell, seed) for cell in cells for seed in seeds]
    found = dict(zip(runs, at_once(of, runs)))
    rows = {}
    for cell in cells:
        steps = [found[(*cell, seed)] for seed in seeds]
        means = [statistics.mean(values) for values in zip(*steps)]
        rows[cell] = {"step_ms": means[0], "std_ms": means[1:], "steps_ms": [each[0] for each in steps],
                      "published_std": table["llms"][cell[0]]["published_std"][cell[2]]}
    return rows


EXPERIMENTS = {"oobleck": oobleck, "cornstarch": cornstarch, "entrain": entrain, "orchmllm": ranks.orchmllm,
               "heterogeneous": placements.heterogeneous}


def ratio(row):
    """Live over checkpoint."""
    value = claims.advantage(row)
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def show_oobleck(rows):
    kinds = ("published", "random", "periodic")
    lines = [[model, every] + [f"{row[kind][mode]:.2f}" for mode in ("checkpoint", "live") for kind in kinds] + [ratio(row[kind]) for kind in kinds]
             for (model, every), row in rows.items()]
    return table_of(["Model", "Failures", "Varuna, published", "checkpoint: random", "on time", "Oobleck, published", "live: random", "on time",
                     "published ratio", "random", "on time"], lines)


def show_cornstarch(rows):
    lines = [[name] + [f"{each[word]:.2f}" for word in ("aware", "unaware") for each in (row["published"], row)]
             + [f"{each['unaware'] / each['aware']:.2f}" for each in (row["published"], row)] for name, row in rows.items()]
    return table_of(["Model", "aware, published", "ours", "unaware, published", "ours", "ratio, published", "ours"], lines)


def show_entrain(rows):
    """Beside each other system's step: how much longer it is than Entrain's, and the standard error over batches."""
    lines = []
    for (model, case, system), row in rows.items():
        ratios = [theirs / ours for theirs, ours in zip(row["steps_ms"], rows[model, case, "entrain"]["steps_ms"])]
        error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0
        over = "1" if system == "entrain" else f"{statistics.mean(ratios):.3f} ± {error:.3f}"
        lines.append([model, case, PUBLISHED_NAMES[system], f"{row['step_ms']:.0f}", over]
                     + [f"{ours:.0f} ({theirs:.0f})" for ours, theirs in zip(row["std_ms"], row["published_std"])])
    return table_of(["LLM", "Times of a sample", "System", "step, ms", "over Entrain's", "vision deviation, ours (published)",
                     "LLM deviation, ours (published)"], lines)


SHOWN = {"oobleck": show_oobleck, "cornstarch": show_cornstarch, "entrain": show_entrain, "orchmllm": ranks.show_orchmllm,
         "heterogeneous": placements.show_heterogeneous}


ORDER = ("cornstarch", "entrain", "heterogeneous", "oobleck", "orchmllm")
TITLES = {"orchmllm": "OrchMLLM", "heterogeneous": "Heterogeneous Parallelism"}


def show_claims(all_rows):
    """What does not hold here stands first, the orders that are missed before the sizes."""
    found = [(experiment, *claim) for experiment in ORDER for claim in claims.judged(experiment, all_rows[experiment])]
    blocks = []
    for title, wanted in (("**Does not reproduce** (printed so, not so here)", False), ("**Reproduces**", True)):
        lines = [f"- {code} ({TITLES.get(experiment, experiment.capitalize())}): {says}{': ' + numbers if numbers else ''}."
                 for experiment, code, _, says, holds, numbers in found if holds == wanted]
        blocks.append("\n".join([title + ":", "", *lines]))
    return "\n\n".join(blocks)


def shown_value(entry):
    values = list(dict.fromkeys(json.dumps(value).strip('"') for value in entry.values()))
    return ", ".join(values[:4]) + (", ..." if len(values) > 4 else "")


def where_from(says):
    if says["origin"] == "paper":
        return says.get("elsewhere") or (f"Table {says['table']}" if "table" in says else f"\"{says['quote']}\"")
    if says["origin"] == "computed":
        return f"{says['formula']} ({says['of']})"
    matched = f"to match {says['matches']}; " if "matches" in says else ""
    rest = "".join(f"; {says[key]}" for key in ("formula", "fixed") if key in says)
    return matched + says["why"] + rest


def show_inputs():
    """What was chosen stands first."""
    found = [(entry.says, f"{entry.file} `{entry.path}`", shown_value(entry)) for entry in inputs.entries()
             if not entry.path.startswith("published")]
    found += [(says, f"in the program: {name}", str(says["value"])) for name, says in inputs.provenance()["program"].items()]
    lines = [[name, value, says["origin"], where_from(says)] for origin in reversed(inputs.ORIGINS) for says, name, value in found
             if says["origin"] == origin]
    return table_of(["Input", "Value", "Origin", "Where from"], lines)


def changes_of(experiment, rows):
    """Claims that come out other than README.md says."""
    return [f"{code} {'holds' if holds else 'fails'}" for code, expected, _, holds, _ in claims.judged(experiment, rows) if holds != expected]


def sensitivity(binary, experiment, only="*"):
    """(entry, what it is changed to, claims that come out differently), the unchanged case first."""
    compute, first = EXPERIMENTS[experiment], ranks.SMALLER if experiment == "orchmllm" else []
    yield None, "", changes_of(experiment, compute(binary, first))
    for entry in inputs.entries():
        if entry.experiment == experiment and entry.origin == "chosen" and re.fullmatch(only.replace("*", ".*"), entry.path):
            for words, changes in entry.variations():
                print(f"{entry.path}: {words}", file=sys.stderr, flush=True)
                yield entry, words, changes_of(experiment, compute(binary, first + changes))


def sensitivity_line(entry, words, other):
    cells = [f"`{entry.path}`", shown_value(entry), words] if entry else ["all as they are", "", ""]
    return [*cells, ", ".join(other) or "nothing"]


def show_sensitivity(binary, experiment):
    lines = [sensitivity_line(*row) for row in sensitivity(binary, experiment)]
    return table_of(["Chosen input", "Value", "Changed to", "What comes out differently"], lines)


def marked(text, name):
    """Where the block of that name stands in README.md."""
    found = re.search(rf"<!-- begin: {re.escape(name)} -->\n(.*?)\n<!-- end -->", text, re.DOTALL)
    return None if found is None else found.span(1)


def write(name, block):
    file = HERE / "README.md"
    text = file.read_text()
    span = marked(text, name)
    if span is None:
        sys.exit(f"README.md has no block '{name}'")
    file.write_text(text[:span[0]] + block + text[span[1]:])


def blocks(binary, name):
    """(name, text) of what is printed."""
    if name == "inputs":
        return [(name, show_inputs())]
    if name.endswith("-sensitivity"):
        return [(name, show_sensitivity(binary, name.removesuffix("-sensitivity")))]
    if name != "claims":
        return [(name, SHOWN[name](EXPERIMENTS[name](binary)))]
    rows = {experiment: compute(binary) for experiment, compute in EXPERIMENTS.items()}
    return [(experiment, SHOWN[experiment](rows[experiment])) for experiment in rows] + [("claims", show_claims(rows))]


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--write"]
    names = [*EXPERIMENTS, *(f"{name}-sensitivity" for name in EXPERIMENTS), "claims", "inputs"]
    if len(words) != 2 or words[1] not in names:
        sys.exit(__doc__)
    for name, block in blocks(str(pathlib.Path(words[0]).resolve()), words[1]):
        print(block + "\n")
        if "--write" in sys.argv:
            write(name, block)
