#!/usr/bin/python3
"""Published tables, computed again; prints ours beside theirs. README.md says what differs.

    reproduce.py TROUPE oobleck | cornstarch | entrain
"""

import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
REPLAY = ["--cluster", "30x1xA40-48G", "--microbatch-size", "2", "--recompute", "--storage-gb-per-s", "30",
          "--node-storage-gb-per-s", "0.25"]
OOBLECK = {"gpt3-2.7b": {"6h": (7.27, 7.29), "1h": (6.53, 7.23), "10m": (1.76, 6.89)},
           "gpt3-6.7b": {"6h": (4.14, 4.33), "1h": (2.69, 4.22), "10m": (0.26, 3.55)}}


def ask(binary, words, problem=None):
    text = None if problem is None else json.dumps(problem)
    run = subprocess.run([binary, *words], input=text, capture_output=True, text=True, timeout=300)
    if run.returncode != 0:
        sys.exit(f"troupe {' '.join(map(str, words))}: {run.stderr}")
    return json.loads(run.stdout)


def replayed(binary, model, every, *more):
    """Samples per second of each way to recover."""
    answer = ask(binary, ["replay", HERE / "oobleck" / f"{model}.toml", *REPLAY, "--failure-every", every, "--json", *more])
    return {mode: answer["recovery"][mode]["samples_per_s"] for mode in ("checkpoint", "live")}


def oobleck(binary, seeds=10):
    """Per (model, mean time between failures): means over seeds, and failures exactly on time."""
    rows = {}
    for model, published in OOBLECK.items():
        for every, theirs in published.items():
            drawn = [replayed(binary, model, every, "--arrivals", "random", "--seed", str(seed)) for seed in range(seeds)]
            random_ones = {mode: statistics.mean(each[mode] for each in drawn) for mode in ("checkpoint", "live")}
            rows[model, every] = {"published": dict(zip(("checkpoint", "live"), theirs)), "random": random_ones,
                                  "periodic": replayed(binary, model, every)}
    return rows


def frozen_problem(encoder, llm, table, aware):
    """Only the projector trains. Who does not know that takes every backward for twice its forward."""
    def layers(module, input_grad_ms):
        forward_ms = module["forward_ms"] / module["layers"]
        return [{"forward_ms": forward_ms, "input_grad_ms": input_grad_ms, "weight_grad_ms": forward_ms}] * module["layers"]
    input_grad_ms = llm["backward_ms"] if aware else llm["forward_ms"]
    projector = {"name": "projector", "next": ["llm"], "attach": "encoder",
                 "layers": [{"forward_ms": 0, "input_grad_ms": 0, "weight_grad_ms": 0}]}
    return {"devices": table["stages"], "microbatches": table["microbatches"], "modules": [
        {"name": "encoder", "freeze": aware, "next": ["projector"], "layers": layers(encoder, encoder["forward_ms"] / encoder["layers"])},
        projector,
        {"name": "llm", "freeze": aware, "layers": layers(llm, input_grad_ms / llm["layers"])}]}


def iteration_s(binary, cuts, encoder, llm, table):
    """1F1B of stages that were cut somehow, with what they really cost."""
    stages = []
    for number, stage in enumerate(cuts):
        share = {run["module"]: run["layers"][1] - run["layers"][0] for run in stage["runs"]}
        of_encoder, of_llm = share.get("encoder", 0) / encoder["layers"], share.get("llm", 0) / llm["layers"]
        stages.append({"name": f"s{number}", "next": [f"s{number + 1}"] if number + 1 < len(cuts) else [],
                       "forward_ms": of_encoder * encoder["forward_ms"] + of_llm * llm["forward_ms"],
                       "input_grad_ms": of_llm * llm["backward_ms"], "weight_grad_ms": 0})
    return ask(binary, ["solve", "schedule"], {"stages": stages, "microbatches": table["microbatches"], "schedule": "1f1b"})["step_ms"] / 1000


def cornstarch(binary):
    table = json.loads((HERE / "cornstarch" / "table-3.2.json").read_text())
    rows = {}
    for name, published in table["published_s"].items():
        encoder, llm = table["encoders"][name[:2]], table["llms"][name[2]]
        rows[name] = {"published": published}
        for word, aware in (("aware", True), ("unaware", False)):
            cuts = ask(binary, ["solve", "module-partition"], frozen_problem(encoder, llm, table, aware))["stages"]
            rows[name][word] = iteration_s(binary, cuts, encoder, llm, table)
    return rows


def uneven_samples(table, llm, seed, together):
    """Log-normal times; `together`: one draw makes a sample long or short for both modules."""
    drawn = random.Random(seed)
    def time_ms(module, normal):
        variance = math.log(1 + (module["deviation_ms"] / module["mean_ms"]) ** 2)
        return math.exp(math.log(module["mean_ms"]) - variance / 2 + math.sqrt(variance) * normal)
    samples = []
    for _ in range(table["samples_per_replica"] * table["replicas"]):
        first, second = drawn.gauss(0, 1), drawn.gauss(0, 1)
        samples.append({"encoder_ms": time_ms(table["encoder"], first), "llm_ms": time_ms(llm, first if together else second)})
    return samples


def dealt(binary, samples, table, balanced):
    """Samples of each replica: as Entrain assigns them (section 4.3), or as they come."""
    count, each = table["replicas"], table["samples_per_replica"]
    if not balanced:
        return [samples[replica * each:(replica + 1) * each] for replica in range(count)]
    replicas = ask(binary, ["solve", "replicas"], {"samples": samples, "speeds": [1] * count})["replicas"]
    return [[samples[index] for index in replica] for replica in replicas]


def step(binary, batch, stages, how, table, seed):
    """Time of a step, in which replicas wait for each other, and their mean deviations."""
    how = dict(how)
    replicas = dealt(binary, batch, table, how.pop("balanced_replicas", False))
    problems = [{"samples": samples, "seed": seed, "microbatches": table["microbatches"], "encoder_stages": stages[0],
                 "llm_stages": stages[1], **how} for samples in replicas]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda problem: ask(binary, ["solve", "simulate"], problem), problems))
    return [max(each["step_ms"] for each in answers)] + [statistics.mean(each[key] for each in answers) for key in ("encoder_std_ms", "llm_std_ms")]


def entrain(binary, models=("1b", "3b"), togethers=(False, True), batches=3):
    """Per (LLM, whether times of a sample go together, system): means over batches."""
    table = json.loads((HERE / "entrain" / "table-4.1.json").read_text())
    rows = {}
    for model in models:
        llm = table["llms"][model]
        for together in togethers:
            drawn = [uneven_samples(table, llm, seed, together) for seed in range(batches)]
            for system, how in table["systems"].items():
                steps = [step(binary, batch, llm["stages"][system], how, table, seed) for seed, batch in enumerate(drawn)]
                means = [statistics.mean(values) for values in zip(*steps)]
                rows[model, together, system] = {"step_ms": means[0], "std_ms": means[1:], "published_std": llm["published_std"][system]}
    return rows


def show_oobleck(rows):
    print("samples/s: checkpoint, live\nmodel      failures       published         random       periodic")
    for (model, every), row in rows.items():
        cells = (f"{row[kind]['checkpoint']:7.2f} {row[kind]['live']:6.2f}" for kind in ("published", "random", "periodic"))
        print(f"{model:10} {every:5}    " + " ".join(cells))


def show_cornstarch(rows):
    print("iteration in s: aware, unaware, ratio\nmodel          published                    ours")
    for name, row in rows.items():
        cells = (f"{each['aware']:8.2f} {each['unaware']:8.2f} {each['unaware'] / each['aware']:5.2f}" for each in (row["published"], row))
        print(f"{name:5} " + "  ".join(cells))


def show_entrain(rows):
    print("step in ms; std of forward times of microbatches: vision, LLM; published\nllm  samples      system")
    for (model, together, system), row in rows.items():
        ours, theirs = (" ".join(f"{value:7.1f}" for value in row[key]) for key in ("std_ms", "published_std"))
        print(f"{model:4} {'together' if together else 'independent':12} {system:10} {row['step_ms']:8.0f}  {ours}  {theirs}")


if __name__ == "__main__":
    tables = {"oobleck": (oobleck, show_oobleck), "cornstarch": (cornstarch, show_cornstarch), "entrain": (entrain, show_entrain)}
    if len(sys.argv) != 3 or sys.argv[2] not in tables:
        sys.exit(__doc__)
    compute, show = tables[sys.argv[2]]
    show(compute(str(pathlib.Path(sys.argv[1]).resolve())))
