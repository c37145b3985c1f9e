"""Claims of the papers whose clusters are larger than any here: OrchMLLM, Heterogeneous Parallelism. claims.py says what a claim is."""

import math

RANGE = "{:.2f} to {:.2f}"


def listed(values, digits=2):
    return ", ".join(f"{value:.{digits}f}" for value in values)


def both(rows):
    """Ablations of every model, on the whole cluster and on the small one."""
    return [row["ablations"] for size in ("whole", "part") for row in rows[size].values()]


def gains(rows):
    """Utilization with all phases balanced over none balanced, each with the mini-batch that it has room for."""
    return [row["ablations"]["all"] / row["ablations"]["mfu_none"] for row in rows["whole"].values()]


def over_llm(rows, size):
    return [row["ablations"]["all"] / row["ablations"]["llm"] for row in rows[size].values()]


def balance_gains(rows):
    return min(gains(rows)) > 1.1, listed(gains(rows))


def grows(values):
    return values == sorted(values)


def gain_grows(rows):
    return grows(gains(rows)), listed(gains(rows))


def llm_alone_is_less(rows):
    found = over_llm(rows, "part")
    return min(min(found), min(over_llm(rows, "whole"))) > 1.02 and grows(found), f"{listed(found)}; on the whole cluster {listed(over_llm(rows, 'whole'))}"


def each_alone(rows):
    ordered = all(row["none"] < min(row["audio"], row["vision"]) and max(row["audio"], row["vision"]) < row["llm"] < row["all"] for row in both(rows))
    return ordered, ""


def tailored(rows):
    less = [1 - row[case] / row["all"] for row in both(rows) for case in ("all pad", "all rmpad")]
    return min(less) > 0, f"by {100 * min(less):.2f} to {100 * max(less):.1f} %"


def rigid_is_far(rows):
    less = [1 - row[case] / row["all"] for row in both(rows) for case in ("all pad", "all rmpad")]
    return min(less) >= 0.05, f"{listed([100 * one for one in less], 1)} %"


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
    shares = [row["overhead_ms"] / 1000 / row["forward_s"] for row in rows["overhead"].values()]
    return max(shares) < 0.02, f"{100 * max(shares):.2f} % at most"


def gathers_cost(rows):
    found = {size: min(row["all-gather"]["off"] / row["all-gather"]["on"] for row in rows[size].values() if "all-gather" in row) for size in ("part", "whole")}
    return found["part"] > 2 and found["whole"] > found["part"], f"{found['part']:.0f} times as long at least, on the whole cluster {found['whole']:.0f}"


def in_range(values, printed):
    return all(printed[0] <= value <= printed[1] for value in values)


def gains_have_size(rows):
    printed = [rows["published"][key] for key in ("mfu_gain", "throughput_gain")]
    ours = [gains(rows), [row["ablations"]["throughput_gain"] for row in rows["whole"].values()]]
    return all(in_range(*pair) for pair in zip(ours, printed)), f"{listed(ours[0])} for {RANGE.format(*printed[0])}; {listed(ours[1])} for {RANGE.format(*printed[1])}"


def utilization_is(rows):
    ours, printed = rows["whole"]["mllm-84b"]["ablations"]["all"], rows["published"]["mfu_84b"]
    return max(ours / printed, printed / ours) <= 1.25, f"{ours:.1f} % for {printed} %"


def llm_alone_is(rows):
    ours = rows["part"]["mllm-84b"]["llm_alone"] / rows["whole"]["mllm-84b"]["ablations"]["all"]
    printed = rows["published"]["llm_alone_mfu_84b"] / rows["published"]["mfu_84b"]
    return math.isclose(ours, printed, rel_tol=0.25), f"{ours:.2f} for {printed:.2f}"


def overhead_growth(found):
    values = [row["overhead_ms"] for row in found]
    return values[-1] / values[0]


def overhead_grows(rows):
    ours = overhead_growth(list(rows["overhead"].values()))
    printed = overhead_growth([row["published"] for row in rows["overhead"].values()])
    return ours >= 2, f"{ours:.2f} times, in print {printed:.2f}"


def forward_is(rows):
    ratios = [row["forward_s"] / row["published"]["forward_s"] for row in rows["overhead"].values()]
    return min(ratios) >= 0.5 and max(ratios) <= 2, f"{RANGE.format(min(ratios), max(ratios))} of it"


ORCHMLLM = [
    ("R1", True, "on 2,560 ranks balancing all phases raises the utilization of every model", balance_gains),
    ("R2", True, "it does so the more, the larger the model", gain_grows),
    ("R3", True, "balancing the LLM alone, as methods that balance before the step do, reaches less, and the less, the larger the model (128 ranks)", llm_alone_is_less),
    ("R4", True, "every phase alone gains over none, the LLM most, and all three together more than any, on 2,560 ranks and on 128", each_alone),
    ("R5", True, "one algorithm for both encoders, with paddings or without, is worse than one for each", tailored),
    ("R6", True, "node-wise placement lowers what the worst rank sends off its node of each encoder's inputs", near_stays),
    ("R7", True, "composition at least halves what the exchange of encoded rows takes", composed),
    ("R8", True, "exchanges take less than 2 % of the forward at every size of Table 2", exchange_is_small),
    ("R9", True, "gathering everything on every rank takes longer than exchanging it, and the more, the larger the cluster", gathers_cost),
    ("RM1", False, "the gains are the published ones", gains_have_size),
    ("RM2", False, "node-wise placement takes 43.6 to 72.2 % off a modality's volume between nodes (Figure 13)", printed_reduction),
    ("RM3", False, "MLLM-84B on 2,560 ranks reaches the published utilization within a quarter", utilization_is),
    ("RM4", False, "the LLM alone balanced, with mini-batches of 18, MLLM-84B reaches the published share of that within a quarter", llm_alone_is),
    ("RM5", False, "one algorithm for both encoders is significantly lower: by 5 % or more", rigid_is_far),
    ("RM6", False, "exchanges take twice as long or more in the largest cluster as in the smallest", overhead_grows),
    ("RM7", False, "the forward takes Table 2's time within a factor of 2", forward_is),
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
    ("H2", False, "with LLMs of 70B and 120B the colocated encoder then has the printed layout", encoders_placed),
    ("H3", False, "colocated steps take the time of Table A2 within a quarter", steps_are),
    ("HM1", False, "where the table says H/C, a colocated layout is the better too", best_is("H/C", "C")),
    ("HM2", False, "from an encoder of 6B on, GPUs of their own are the better (NC)", best_is("NC", "NC")),
    ("HM3", False, "beside 120B the advantage of C falls by 5 points or more from the smallest encoder to the largest", advantage_falls),
    ("HM4", False, "on 72 GPUs the colocated encoder has the printed layout", small_encoders_placed),
]
