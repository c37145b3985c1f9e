"""Claims of the papers whose clusters are larger than any here: OrchMLLM, Heterogeneous Parallelism. claims.py says what a claim is."""

RANGE = "{:.2f} to {:.2f}"


def exchanges(rows, kind, size=None):
    return [value for name in ([size] if size else ["whole", "part"]) for row in rows[name].values() for key, value in row.items()
            if isinstance(key, tuple) and key[0] == kind]


def near_stays(rows):
    least = [1 - row["max_on"] / row["max_off"] for row in exchanges(rows, "inputs")]
    return min(least) > 0, f"by {100 * min(least):.1f} to {100 * max(least):.0f} %"


def printed_reduction(rows):
    ours = [1 - row["mean_on"] / row["mean_off"] for row in exchanges(rows, "node-wise", "part")]
    most = [1 - row["mean_bound"] / row["mean_off"] for row in exchanges(rows, "inputs", "part")]
    least = rows["published"]["node_wise_reduction"][0]
    return min(ours) >= least, f"{100 * min(ours):.1f} to {100 * max(ours):.0f} %; no placement takes more than {100 * max(most):.0f} % off encoders' inputs"


def composed(rows):
    ratios = [row["on"] / row["off"] for row in exchanges(rows, "composition")]
    return max(ratios) <= 0.5, f"{RANGE.format(min(ratios), max(ratios))} of it"


def exchange_is_small(rows):
    shares = [row["overhead_ms"] / 1000 / row["published"]["forward_s"] for row in rows["overhead"].values()]
    return max(shares) < 0.02, f"{100 * max(shares):.2f} % at most"


def gathers_cost(rows):
    found = {size: min(row["all-gather"]["off"] / row["all-gather"]["on"] for row in rows[size].values() if "all-gather" in row) for size in ("part", "whole")}
    return found["part"] > 2 and found["whole"] > found["part"], f"{found['part']:.0f} times as long at least, on the whole cluster {found['whole']:.0f}"


def overhead_growth(found):
    values = [row["overhead_ms"] for row in found]
    return values[-1] / values[0]


def overhead_grows(rows):
    ours = overhead_growth(list(rows["overhead"].values()))
    printed = overhead_growth([row["published"] for row in rows["overhead"].values()])
    return ours >= 2, f"{ours:.2f} times, in print {printed:.2f}"


ORCHMLLM = [
    ("R6", True, "node-wise placement lowers what the worst rank sends off its node of each encoder's inputs", near_stays),
    ("R7", True, "composition at least halves what the exchange of encoded rows takes", composed),
    ("R8", True, "exchanges take less than 2 % of the printed forward at every size of Table 2", exchange_is_small),
    ("R9", True, "gathering everything on every rank takes longer than exchanging it, and the more, the larger the cluster", gathers_cost),
    ("RM2", False, "node-wise placement takes 43.6 to 72.2 % off a modality's volume between nodes (Figure 13)", printed_reduction),
    ("RM6", False, "exchanges take twice as long or more in the largest cluster as in the smallest", overhead_grows),
]


def measured(rows, best=None):
    return {name: row for name, row in rows.items() if row["published"] and best in (None, row["published"]["best"])}


def names(rows):
    return ", ".join(f"{model} at {share} %" for model, share, _ in rows)


def best_is(printed, ours):
    def of(rows):
        wanted = measured(rows, printed)
        missed = [name for name, row in wanted.items() if row["best"] != ours]
        return not missed, f"{len(wanted) - len(missed)} of {len(wanted)}" + (f"; not {names(missed)}" if missed else "")
    return of


def own_layouts_gain(rows):
    wanted = measured(rows, "C")
    missed = [name for name, row in wanted.items() if row["c_over_h_percent"] <= 0]
    return not missed, f"{len(wanted) - len(missed)} of {len(wanted)}" + (f"; not {names(missed)}" if missed else "")


def encoders_placed(rows):
    wanted = {name: row for name, row in measured(rows, "C").items() if name[2] == 256}
    same = [row["C"]["layouts"]["vision"] == row["published"]["encoder"] for row in wanted.values()]
    return all(same), f"{sum(same)} of {len(same)}"


def small_encoders_placed(rows):
    wanted = {name: row for name, row in measured(rows).items() if name[2] == 72}
    same = [row["C"]["layouts"]["vision"] == row["published"]["encoder"] for row in wanted.values()]
    return all(same), f"{sum(same)} of {len(same)}"


def advantage_falls(rows):
    with_120b = {name: row for name, row in measured(rows).items() if name[0].endswith("+120B")}
    first, last = (list(with_120b.values())[at]["c_over_nc_percent"] for at in (0, -1))
    return last < first - 5, "; ".join(f"{name[0]} {row['c_over_nc_percent']:+.1f} % for {row['published']['c_over_nc_percent']:+.1f} %"
                                       for name, row in with_120b.items())


def steps_are(rows):
    ratios = [row["C"]["step_ms"] / row["published"]["step_ms"] for row in measured(rows).values()]
    return min(ratios) >= 0.75 and max(ratios) <= 1.25, f"{RANGE.format(min(ratios), max(ratios))} of it"


HETEROGENEOUS = [
    ("H1", True, "encoder and LLM on the same GPUs is the better where the table says C", best_is("C", "C")),
    ("H2", True, "with LLMs of 70B and 120B the colocated encoder then has the printed layout", encoders_placed),
    ("H3", True, "colocated steps take the time of Table A2 within a quarter", steps_are),
    ("HM1", True, "where the table says H/C, a colocated layout is the better too", best_is("H/C", "C")),
    ("HM2", False, "from an encoder of 6B on, GPUs of their own are the better (NC)", best_is("NC", "NC")),
    ("HM3", False, "beside 120B the advantage of C falls by 5 points or more from the smallest encoder to the largest", advantage_falls),
    ("HM4", False, "on 72 GPUs the colocated encoder has the printed layout", small_encoders_placed),
    ("HM5", True, "where the table says C, layouts of their own take less than one grid for both (H)", own_layouts_gain),
]
