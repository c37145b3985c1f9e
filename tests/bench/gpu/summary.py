"""Tables of gpu-bench's file: each of ours beside its peer, the goal, and whether it is reached."""

import statistics

from llama_job import PEAK_TFLOPS, UPDATE_BYTES, memory_tb_per_s
from results import latest_rows

FLEX_GOAL, TOKENS_GOAL, MFU_GOAL, BUSY_GOAL, BANDWIDTH_GOAL = 1.1, 1.2, 0.45, 0.97, 0.8
IMAGE_MASKS = ("embedded", "packed")
CURVE_END = 10  # Steps whose mean is a curve's end.


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def verdict(ratio, goal):
    """What stands beside a goal; nothing is reached by what has not been measured."""
    if ratio is None:
        return "-"
    return "reached" if ratio >= goal else "**missed**"


def shown(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


def times_of(row):
    """Forward and backward of an attention row."""
    return (row["forward_ms"], row["backward_ms"]) if row else (None, None)


def pair(row):
    forward, backward = times_of(row)
    return "-" if row is None else f"{forward:.3f} + {backward:.3f}"


def ratios(ours, peer):
    """Peer over ours: forward, backward, both."""
    if not ours or not peer:
        return None, None, None
    mine, theirs = times_of(ours), times_of(peer)
    return theirs[0] / mine[0], theirs[1] / mine[1], sum(theirs) / sum(mine)


def fastest(rows):
    return min(rows, key=lambda row: sum(times_of(row)), default=None)


def attention_line(size, rows):
    """One mask at one size: FlexAttention is the peer under images, what is fastest else."""
    ours = next((row for row in reversed(rows) if row["step"] == "attention-troupe"), None)
    peers = {row["peer"]: row for row in rows if "peer" in row}
    flex = fastest([row for name, row in peers.items() if name.startswith("flex")])
    other = fastest([row for name, row in peers.items() if not name.startswith("flex") and name != "matrix"])
    has_goal = size["mask"] in IMAGE_MASKS
    forward, backward, both = ratios(ours, flex if has_goal else fastest(list(peers.values())))
    worst = None if both is None else min(forward, backward)
    return [size["mask"], str(size["tokens"]), str(size["dim"]), pair(ours), pair(flex), pair(other), pair(peers.get("matrix")),
            shown(forward), shown(backward), shown(both), f"{FLEX_GOAL} x FlexAttention" if has_goal else "-",
            verdict(worst, FLEX_GOAL) if has_goal else "-"]


def attention_table(rows):
    sizes = {}
    for row in rows:
        if "mask" in row and "forward_ms" in row:
            sizes.setdefault((row["mask"], row["tokens"], row["dim"], row["heads"], row["kv_heads"]), []).append(row)
    lines = [attention_line({"mask": mask, "tokens": tokens, "dim": dim}, rows)
             for (mask, tokens, dim, _, _), rows in sorted(sizes.items(), key=lambda item: (item[0][2], item[0][1], item[0][0]))]
    head = ["mask", "tokens", "head size", "ours, ms", "FlexAttention (best of two rules)", "flash or cuDNN", "matrix",
            "forward, x", "backward, x", "both, x", "goal", ""]
    return table(head, lines) if lines else "No attention has been measured."


def memory_table(rows, gpu):
    """Kernels that memory bounds: the bytes that they have to move, over the time that they take."""
    peak, lines = memory_tb_per_s(gpu), []
    for row in rows:
        if row.get("measure") == "memory":
            speed = 1e-9 * row["bytes"] / row["ms"]
            share = speed / peak if peak else None
            percent = "-" if share is None else f"{100 * share:.1f} %"
            lines.append([row["kernel"], f"{row['ms']:.3f}", f"{speed:.2f}", percent, verdict(share, BANDWIDTH_GOAL)])
    head = ["kernel", "ms", "TB/s", "of the memory's bandwidth", f"goal {100 * BANDWIDTH_GOAL:.0f} %"]
    return table(head, lines) if lines else "No kernel that memory bounds has been measured."


def mfu(row):
    return row["tokens_per_s"] * row["flops_per_token"] / (1e12 * PEAK_TFLOPS)


def busy(row):
    """Share of a step in which the device is at an action: gaps inside of one do not show."""
    return (row["compute_ms_median"] + row["update_ms_median"]) / row["step_ms"] if "compute_ms_median" in row else None


def bandwidth(row, gpu):
    """Share of the memory's bandwidth that updates take; None: it is not known."""
    peak = memory_tb_per_s(gpu)
    if peak is None or "parameters" not in row or not row.get("update_ms_median"):
        return None
    return 1e-9 * UPDATE_BYTES * row["parameters"] / row["update_ms_median"] / peak


def memory_left(ours, peer):
    """The peer's memory over ours."""
    used = [row["watched"].get("memory_mib_max") if row else None for row in (ours, peer)]
    return used[1] / used[0] if all(used) else None


def training_tables(rows, gpu):
    """A table and its goals for each model that was trained."""
    models = {}
    for row in rows:
        if "tokens_per_s" in row:
            models.setdefault(row["measure"], []).append(row)
    return "\n\n".join(training_table(model, measured, gpu) for model, measured in models.items()) or "No training has been measured."


def training_table(model, measured, gpu):
    ours = next((row for row in reversed(measured) if row["system"] == "troupe"), None)
    peers = [row for row in measured if row["system"] != "troupe"]
    lines = []
    for row in ([ours] if ours else []) + peers:
        speed = " ".join(f"{row[key]:.0f}" for key in ("tokens_per_s", "tokens_per_s_min", "tokens_per_s_max"))
        watched = [shown(row["watched"].get(key), 0) for key in ("memory_mib_max", "sm_mhz_busy", "kernel_percent_busy")]
        lines.append([row["system"], speed, shown(row["step_ms"], 1), f"{100 * mfu(row):.1f} %", *watched])
    head = [model, "tokens/s: median, least, most", "step, ms", f"MFU of {PEAK_TFLOPS:.0f} TFLOP/s", "GPU memory at most, MiB",
            "SM clock, MHz", "a kernel runs, % of time (nvidia-smi)"]
    return table(head, lines) + "\n\n" + training_goals(ours, peers, gpu)


def curve_table(rows):
    """Losses in bf16 beside torch's from the same weights and tokens; torch in fp32 beside them says what rounding does."""
    curves = {(row["system"], row["dtype"]): row["losses"] for row in rows if "losses" in row}
    reference, lines = curves.get(("torch", "bf16")), []
    for (system, dtype), losses in curves.items():
        line = [f"{system}, {dtype}", str(len(losses)), shown(losses[0], 4), shown(statistics.mean(losses[-CURVE_END:]), 4)]
        apart = [abs(loss - other) for loss, other in zip(losses, reference or [])]
        most = max(apart, default=None)
        lines.append([*line, shown(most, 4), str(apart.index(most) + 1) if apart else "-", shown(statistics.mean(apart) if apart else None, 4)])
    head = ["curve of losses", "steps", "first", f"mean of the last {CURVE_END}", "largest distance from torch's in bf16", "at step",
            "mean distance"]
    return table(head, lines) if lines else "No curve has been measured."


def idle_table(rows):
    """What a GPU does not do while our program trains on it, by CUPTI."""
    lines = [[row["measure"].removeprefix("idle-"), f"{100 * row['idle_share']:.2f} %", shown(row["longest_gap_ms"], 3), str(row["kernels"]),
              verdict(1 - row["idle_share"], BUSY_GOAL)] for row in rows if "idle_share" in row]
    head = ["no kernel runs", "share of steps", "longest gap, ms", "kernels", f"goal below {100 * (1 - BUSY_GOAL):.0f} %"]
    return table(head, lines) if lines else ""


def training_goals(ours, peers, gpu):
    best = max(peers, key=lambda row: row["tokens_per_s"], default=None)
    ratio = ours["tokens_per_s"] / best["tokens_per_s"] if ours and best else None
    left = memory_left(ours, best)
    shares = [(f"MFU of {100 * MFU_GOAL:.0f} %", mfu(ours) if ours else None, MFU_GOAL),
              (f"at actions {100 * BUSY_GOAL:.0f} % of a step", busy(ours) if ours else None, BUSY_GOAL),
              (f"AdamW and the norm at {100 * BANDWIDTH_GOAL:.0f} % of memory bandwidth", bandwidth(ours, gpu) if ours else None, BANDWIDTH_GOAL)]
    return table(["goal", "measured", ""],
                 [[f"{TOKENS_GOAL} x the tokens/s of the fastest transformers", shown(ratio), verdict(ratio, TOKENS_GOAL)],
                  ["no more memory than these", "-" if left is None else f"{1 / left:.2f} of theirs", verdict(left, 1)],
                  *([goal, "-" if share is None else f"{100 * share:.1f} %", verdict(share, least)] for goal, share, least in shares)])


def open_table(told):
    """Steps without a result, and ways that failed."""
    lines, gpu = [], told["machine"].get("gpu")
    for entry in {entry["step"]: entry for entry in told["steps"] if entry["of"].get("gpu") == gpu}.values():
        if "skipped" in entry or entry["code"] != 0:
            lines.append([entry["step"], entry.get("skipped", f"ended with {entry['code']}, {len(entry['rows'])} rows")])
        for row in entry["rows"]:
            if "error" in row:
                which = [str(row[key]) for key in ("peer", "mask", "tokens") if key in row]
                lines.append([entry["step"], " ".join([*which, row["error"]]).replace("|", "/").replace("\n", " ")[:160]])
    return table(["not measured", "why"], lines) if lines else ""


def text(told):
    rows, machine = latest_rows(told), told["machine"]
    where = f"{machine.get('gpu')}, driver {machine.get('driver', 'none')}, torch {machine.get('torch', 'none')}"
    gpu = str(machine.get("gpu"))
    parts = (where, attention_table(rows), memory_table(rows, gpu), curve_table(rows), training_tables(rows, gpu), idle_table(rows), open_table(told))
    return "\n\n".join(part for part in parts if part)
