"""Table A5 of Heterogeneous Parallelism: encoder and LLM on one grid (H), on the same GPUs (C) or on GPUs of their own (NC), chosen
by the program.

`troupe solve layout` is asked once for each, with the row's own number of GPUs. On one grid both are one module, so that they share
their tensor, pipeline and data parallelism; else both are free in it. What layers cost, and what tensor parallelism brings, is from `troupe profile` of H100s
that are not here. The better one is that with more tokens per second and GPU.
"""

import functools
import pathlib

import inputs
from asking import ask, at_once, table_of

HERE = pathlib.Path(__file__).resolve().parent
PLACEMENTS = {"H": ("disjoint", "colocated"), "C": ("shared", "colocated"), "NC": ("disjoint", "apart")}


ON_PAR = 0.01  # The table calls -0.9 % on par.


def best_of_three(spent):
    """By GPU seconds of H, C and NC."""
    least = min(spent, key=spent.get)
    return "H/C" if least != "NC" and abs(spent["H"] - spent["C"]) <= ON_PAR * spent["C"] else least


@functools.lru_cache(maxsize=None)
def layers(binary, device, words):
    """Blocks of encoder and LLM of a job with these sizes: {module: {tp: {tokens: point}}}; and the head's, per tp."""
    profile = ask(binary, ["profile", HERE / "heterogeneous" / "model.toml", *words, "--cluster", f"1x8x{device}", "--json"])["profile"]
    found = {}
    for kind in profile["kinds"]:
        if kind["cp"] == 1 and kind["kind"] in ("vision.block", "llm.block", "llm.head"):
            found.setdefault(kind["kind"], {})[kind["tp"]] = {point["tokens"]: point for point in kind["points"]} | {"bytes": kind["parameter_bytes"]}
    return found


def words_of(table, words, encoder, llm):
    sizes = {f"modules.vision.config.{key}": encoder[key] for key in ("embed_dim",)} | {"modules.vision.config.hidden_size": llm["hidden_size"]}
    sizes |= {f"modules.llm.config.{key}": llm[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads")}
    return (*words, *(f"{key}={value}" for key, value in sizes.items()))


def per_row(points, parts):
    """Milliseconds of a row in a long batch."""
    return sum(points[16384]["linear"][part] - points[8192]["linear"][part] for part in parts) / 8192


def encoder_ms(points, table, vision_rows, parts):
    """Of one layer and sample, whose pictures attend each to itself."""
    pictures = vision_rows / table["image_rows"]
    return per_row(points, parts) * vision_rows + pictures * sum(points[table["image_rows"]]["attention"][part] for part in parts)


def llm_ms(points, table, parts):
    point = points[table["sequence"]]
    return sum(point["linear"][part] + point["attention"][part] for part in parts)


def module(name, depth, state_bytes, times, next_modules):
    """`times`: per tp, (forward, backward) of a sample; the speed-up is what they say."""
    return {"name": name, "next": next_modules, "layers": depth, "state_bytes": state_bytes, "valid_tp": list(times),
            "speedup": {f"{tp},1": sum(times[1]) / sum(ms) for tp, ms in times.items()}}


def problem(binary, table, words, row):
    """The row's models and one sample, as `solve layout` takes them."""
    encoder, llm = (table[kind][name] for kind, name in zip(("encoders", "llms"), row["model"].split("+")))
    blocks, degrees = layers(binary, table["device"], words_of(table, words, encoder, llm)), table["tensor_degrees"]
    rows = table["sequence"] * row["vision_percent"] / 100 * table["rows_per_vision_token"]
    vision, llm_blocks, head = blocks["vision.block"], blocks["llm.block"], blocks["llm.head"]
    depths, again = (encoder["depth"], llm["num_hidden_layers"]), (0,) * encoder["recompute"]
    vision_ms = {tp: (depths[0] * encoder_ms(vision[tp], table, rows, (0,)), depths[0] * encoder_ms(vision[tp], table, rows, (1, 2, *again)))
                 for tp in degrees}
    language_ms = {tp: tuple(depths[1] * llm_ms(llm_blocks[tp], table, parts) + llm_ms(head[tp], table, parts) for parts in ((0,), (1, 2))) for tp in degrees}
    per_parameter = table["state_bytes_per_parameter"] / 2  # Of a profile's bytes, which are two for each.
    # With recomputation a layer keeps its input.
    kept = 2 * encoder["embed_dim"] if encoder["recompute"] else vision[1][8192]["linear"][3] / 8192
    sample = {"vision": {"forward_ms": vision_ms[1][0], "backward_ms": vision_ms[1][1], "activation_bytes": depths[0] * rows * kept,
                         "boundary_bytes": 2 * llm["hidden_size"] * rows / table["rows_per_vision_token"]},
              "llm": {"forward_ms": language_ms[1][0], "backward_ms": language_ms[1][1],
                      "activation_bytes": depths[1] * llm_blocks[1][table["sequence"]]["linear"][3]}}
    state = [depths[0] * vision[1]["bytes"] * per_parameter, (depths[1] * llm_blocks[1]["bytes"] + 2 * head[1]["bytes"]) * per_parameter]
    return {"modules": [module("vision", depths[0], state[0], vision_ms, ["llm"]), module("llm", depths[1], state[1], language_ms, [])],
            "samples": [sample], "devices_per_node": table["devices_per_node"], "device_memory_bytes": table["device_memory_gb"] * 1e9,
            "microbatch_sizes": table["microbatch_sizes"], "objective": "dflop"}


def on_one_grid(asked):
    """The same problem with one module of all layers; its layers take the same, so that stages may be cut anywhere."""
    modules, sample = asked["modules"], asked["samples"][0]
    whole = {key: sum(part.get(key, 0) for part in sample.values()) for key in ("forward_ms", "backward_ms", "activation_bytes")}
    alone = [sample[each["name"]]["forward_ms"] + sample[each["name"]]["backward_ms"] for each in modules]
    speedup = {degrees: sum(alone) / sum(ms / each["speedup"][degrees] for ms, each in zip(alone, modules)) for degrees in modules[0]["speedup"]}
    one = {"name": "model", "next": [], "layers": sum(each["layers"] for each in modules), "state_bytes": sum(each["state_bytes"] for each in modules),
           "valid_tp": modules[0]["valid_tp"], "speedup": speedup}
    return asked | {"modules": [one], "samples": [{"model": whole}]}


def placed(binary, table, words, row, word):
    placement, gpus = PLACEMENTS[word]
    asked = problem(binary, table, words, row)
    answer = ask(binary, ["solve", "layout"], (on_one_grid(asked) if word == "H" else asked) | {
        "placement": placement, "counts_rows": False, "devices": row[gpus], "global_batch": table["global_batch"][str(row["colocated"])]})
    used = {name: "/".join(str(layout[axis]) for axis in ("tp", "cp", "pp", "dp")) for name, layout in answer["layouts"].items()}
    return {"layouts": used, "step_ms": answer["expected_step_ms"], "gpus": row[gpus], "memory_gb": max(answer["memory_bytes"].values()) / 1e9}


def heterogeneous(binary, changes=()):
    """Per (model, share of vision, GPUs): both placements, which is better, and what is printed."""
    table, words = inputs.load("heterogeneous", changes)
    words = words.get("model", ())
    large = [row for row in table["rows"] if row["colocated"] == 256 and row["model"].endswith("+120B")]
    wanted = [(row | {"step_ms": step_ms}, True) for row, step_ms in zip(table["rows"], table["step_ms"])]
    wanted += [({"model": row["model"], "vision_percent": row["vision_percent"], **more}, False) for more in table["further"] for row in large]

    def of(one):
        row, printed = one
        found = {word: placed(binary, table, words, row, word) for word in PLACEMENTS}
        # Tokens per second and GPU: the same tokens, so the fewer GPU seconds the better.
        spent = {word: each["step_ms"] * each["gpus"] for word, each in found.items()}
        return {**found, "c_over_nc_percent": 100 * (spent["NC"] / spent["C"] - 1), "c_over_h_percent": 100 * (spent["H"] / spent["C"] - 1),
                "best": "C" if spent["C"] < spent["NC"] else "NC", "best_of_three": best_of_three(spent), "published": row if printed else None}
    rows = at_once(of, wanted)
    return {(row["model"], row["vision_percent"], row["colocated"]): made for (row, _), made in zip(wanted, rows)}


def hit(row):
    """Print has H/C where both are on par: there either is the same."""
    printed, ours = row["published"]["best"], row["best_of_three"]
    return ours != "NC" if printed == "H/C" else ours == printed


def show_heterogeneous(rows):
    lines = []
    for (model, share, gpus), row in rows.items():
        printed = row["published"] or {}
        used = {word: ", ".join(row[word]["layouts"].values()) for word in PLACEMENTS}
        steps = {word: f"{row[word]['step_ms'] / 1000:.2f}" for word in PLACEMENTS}
        over = {key: f"{printed[key]:+.1f}" if key in printed else "" for key in ("c_over_nc_percent", "c_over_h_percent")}
        lines.append([model, f"{share}", f"{gpus:,}, {row['NC']['gpus']:,}", used["H"], steps["H"], printed.get("encoder", ""), used["C"],
                      f"{printed['step_ms'] / 1000:.2f}" if printed else "", steps["C"], used["NC"], steps["NC"],
                      over["c_over_h_percent"], f"{row['c_over_h_percent']:+.1f}", over["c_over_nc_percent"], f"{row['c_over_nc_percent']:+.1f}",
                      printed.get("best", "extrapolated"), row["best_of_three"], ("yes" if hit(row) else "**no**") if printed else ""])
    return table_of(["Model", "Vis%", "GPUs of H and C, NC", "H: one grid (TP/CP/PP/DP)", "step, s", "encoder of C, published", "C: encoder, LLM", "step, s, published (A2)", "ours",
                     "NC: encoder, LLM", "step, s", "C over H, %, published", "ours", "C over NC per GPU, %, published", "ours", "best, published", "ours", "same"], lines)
