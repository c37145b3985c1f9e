"""OrchMLLM's evaluation (section 8) on paper: data-parallel ranks that run three phases, each balanced or not.

Who works on what is asked from `troupe solve post-balance`, `node-wise` and `rearrange`; what a row costs from `troupe profile` of
an H100 that is not here. A step is made of them so: ranks of a hybrid group wait for each other in every phase, as their shards are
gathered layer by layer, so that a phase takes its slowest rank, forward and backward; the groups wait for each other at the end. An
exchange takes the most that one rank sends off its node (equation 5), at the speed of its adaptor.
"""

import collections
import functools
import math
import pathlib
import random
import statistics
from concurrent.futures import ProcessPoolExecutor

import inputs
from asking import ask, ask_once, table_of

HERE = pathlib.Path(__file__).resolve().parent
PHASES = ("vision", "audio", "llm")
ENCODERS = ("vision", "audio")
PADDED = ("audio",)  # Section 8, input preprocessing: the others are batched without paddings.
# Which phases are balanced, and what differs from the algorithms of the paper.
CASES = {"none": ((), {}), "audio": (("audio",), {}), "vision": (("vision",), {}), "llm": (("llm",), {}), "all": (PHASES, {}),
         "all rmpad": (PHASES, {"audio": "no-padding"}), "all pad": (PHASES, {"vision": "padding"})}

Work = collections.namedtuple("Work", "row pair")  # Milliseconds per row, and per pair of rows of one sequence.


def divided(rows, rate):
    """Rounded up."""
    return -(-rows // rate)


def log_normal(drawn, of):
    """Draws of this mean and deviation."""
    variance = math.log(1 + (of["deviation"] / of["mean"]) ** 2)
    middle, spread = math.log(of["mean"]) - variance / 2, math.sqrt(variance)
    return lambda: math.exp(middle + spread * drawn.gauss(0, 1))


def draw_samples(table, model, count, seed):
    """Examples of all tasks at random: per modality, and for the llm, the rows of each. Only images larger than the bound are resized."""
    drawn, tasks, patch = random.Random(seed), list(table["tasks"].values()), table["patch"]
    ways = [{key: log_normal(drawn, task[key]) for key in ("image", "audio_s", "text") if key in task} for task in tasks]
    aspects = [task["image"]["aspect"] if "image" in task else 0 for task in tasks]
    rows, rates, longest = {modality: [] for modality in ("vision", "audio", "text", "llm")}, model["downsample"], table["longest"]
    for task in drawn.choices(range(len(tasks)), [task["samples"] for task in tasks], k=count):
        vision = audio = 0
        if "image" in ways[task]:
            long = min(ways[task]["image"](), model["max_resolution"])
            vision = max(1, round(long / patch)) * max(1, round(long * aspects[task] / patch))
        if "audio_s" in ways[task]:
            audio = math.ceil(min(ways[task]["audio_s"](), longest["audio_s"]) * table["positions_per_s"])
        text = max(1, min(round(ways[task]["text"]()), longest["text"]))
        for modality, count_of in (("vision", vision), ("audio", audio), ("text", text),
                                   ("llm", text + divided(vision, rates["vision"]) + divided(audio, rates["audio"]))):
            rows[modality].append(count_of)
    return rows


@functools.lru_cache(maxsize=None)
def costs(binary, device, name, words, vision_rate, audio_rate):
    """Forward and backward of each phase, and of the head, which sees text alone; launches are left out."""
    profile = ask(binary, ["profile", HERE / "orchmllm" / f"{name}.toml", *words, "--cluster", f"1x1x{device}", "--json"])["profile"]
    kinds = {one["kind"]: one["points"][-2:] for one in profile["kinds"] if one["tp"] == one["cp"] == 1}
    sums = collections.defaultdict(lambda: [0.0, 0.0])
    for layer in profile["layers"]:
        module, part = layer["kind"].split(".")
        phase = "head" if part == "head" else module.removesuffix("_projector")
        rate = {"vision_projector": vision_rate, "audio_projector": audio_rate}.get(module, 1)
        half, whole = kinds[layer["kind"]]
        rows = whole["tokens"] - half["tokens"]
        for way, parts in enumerate(((0,), (1, 2))):
            row = sum(whole["linear"][part] - half["linear"][part] for part in parts) / rows / rate
            pair = sum(whole["attention"][part] for part in parts) / whole["tokens"] ** 2
            sums[phase, way][0] += row
            sums[phase, way][1] += pair
    return {key: Work(*values) for key, values in sums.items()}


def work_ms(made, phase, rows, text, padded):
    """(forward, backward) of one rank; `text`: rows that the head sees."""
    if not rows:
        return 0, 0
    count, pairs = (len(rows) * max(rows), len(rows) * max(rows) ** 2) if padded else (sum(rows), sum(row * row for row in rows))
    return tuple(made[phase, way].row * count + made[phase, way].pair * pairs + made["head", way].row * text for way in (0, 1))


def drawn_batches(rows, ranks, mini_batch):
    """As the ranks drew them; a phase sees who has something for it."""
    return [[member for member in range(rank * mini_batch, (rank + 1) * mini_batch) if rows[member]] for rank in range(ranks)]


def post_balanced(binary, rows, drawn, algorithm):
    lengths = [[rows[member] for member in members] for members in drawn]
    answer = ask_once(binary, ["solve", "post-balance"], {"lengths": lengths, "algorithm": algorithm})
    return [[drawn[rank][index] for rank, index in batch] for batch in answer["batches"]]


def places(batches):
    """Rank of each member."""
    return {member: rank for rank, batch in enumerate(batches) for member in batch}


def volumes(moves):
    """[rank, batch, bytes] of (rank, batch, bytes), those of one pair together."""
    sums = {}
    for rank, batch, size in moves:
        sums[rank, batch] = sums.get((rank, batch), 0) + size
    return [[rank, batch, size] for (rank, batch), size in sums.items()]


def node_wise(binary, batches, moves, per_node, time_limit_ms):
    """The batches, each on the rank that the program gives it, and its lower bound."""
    answer = ask_once(binary, ["solve", "node-wise"], {"triples": volumes(moves), "ranks": len(batches), "ranks_per_node": per_node,
                                                      "time_limit_ms": time_limit_ms})
    placed = [None] * len(batches)
    for batch, rank in enumerate(answer["rank_of_batch"]):
        placed[rank] = batches[batch]
    return placed, answer


def off_node(moves, ranks, per_node):
    """Bytes that the worst rank sends off its node, and a rank on average."""
    sent = [0] * ranks
    for rank, to, size in moves:
        if rank // per_node != to // per_node:
            sent[rank] += size
    return max(sent), sum(sent) / ranks


def least_off_node(moves, ranks, per_node):
    """No placement of whole batches sends less, for a rank on average: every node would keep the batches that are best for it."""
    held, total = collections.defaultdict(dict), 0
    for rank, batch, size in moves:
        node = held[rank // per_node]
        node[batch], total = node.get(batch, 0) + size, total + size
    return (total - sum(sum(sorted(node.values())[-per_node:]) for node in held.values())) / ranks


def positions(batches, drawn):
    """[[rank, index]...] of every batch, where its members stand in `drawn`."""
    where = {member: [rank, index] for rank, batch in enumerate(drawn) for index, member in enumerate(batch)}
    return [[where[member] for member in batch] for batch in batches]


def composed_moves(binary, encoded, drawn, llm, sizes):
    """(rank that encoded, rank of the llm, bytes): both rearrangements made one by the program."""
    first = positions(encoded, drawn)
    undo = ask_once(binary, ["solve", "rearrange"], {"first": first, "second": [[[rank, index] for index in range(len(batch))]
                                                                                for rank, batch in enumerate(first)]})["inverse"]
    wanted = places(drawn)
    second = positions([[member for member in batch if member in wanted] for batch in llm], drawn)
    composed = ask_once(binary, ["solve", "rearrange"], {"first": undo, "second": second})["composed"]
    return [(rank, to, sizes[encoded[rank][index]]) for to, batch in enumerate(composed) for rank, index in batch]


class Cluster:
    """One global batch on so many ranks."""

    def __init__(self, binary, table, words, name, ranks, mini_batch, seed):
        self.binary, self.table, self.model, self.ranks = binary, table, table["models"][name], ranks
        rates = self.model["downsample"]
        self.costs = costs(binary, table["device"], name, tuple(words), rates["vision"], rates["audio"])
        self.rows = draw_samples(table, self.model, ranks * mini_batch, seed)
        self.drawn = {phase: drawn_batches(self.rows[phase], ranks, mini_batch) for phase in PHASES}
        self.width, self.found, self.works = widths()[name], {}, {}

    def balanced(self, phase, algorithm):
        """By this algorithm; None: as they were drawn."""
        if algorithm is None:
            return self.drawn[phase]
        if (phase, algorithm) not in self.found:
            self.found[phase, algorithm] = post_balanced(self.binary, self.rows[phase], self.drawn[phase], algorithm)
        return self.found[phase, algorithm]

    def algorithms(self, case):
        phases, others = CASES[case]
        return {phase: others.get(phase, self.table["algorithms"][phase]) if phase in phases else None for phase in PHASES}

    def batches(self, case):
        return {phase: self.balanced(phase, algorithm) for phase, algorithm in self.algorithms(case).items()}

    def work(self, phase, algorithm):
        """(forward, backward) of every rank."""
        if (phase, algorithm) not in self.works:
            rows, text = self.rows[phase], self.rows["text"]
            self.works[phase, algorithm] = [
                work_ms(self.costs, phase, [rows[member] for member in members],
                        sum(text[member] for member in members) if phase == "llm" else 0, phase in PADDED)
                for members in self.balanced(phase, algorithm)]
        return self.works[phase, algorithm]

    def step_ms(self, case, ways=(0, 1)):
        """Ranks of a group wait in every phase, groups at the end."""
        group, works = self.table["hybrid_group"], [self.work(phase, algorithm) for phase, algorithm in self.algorithms(case).items()]
        return max(sum(max(rank[way] for rank in ranks[first:first + group]) for ranks in works for way in ways)
                   for first in range(0, self.ranks, group))

    def useful_ms(self):
        """Of all ranks, without paddings."""
        return sum(sum(work_ms(self.costs, phase, self.rows[phase], sum(self.rows["text"]) if phase == "llm" else 0, False)) for phase in PHASES)

    def input_bytes(self, phase):
        """Of every sample."""
        each = {"vision": self.table["patch_bytes"], "audio": self.table["position_bytes"], "llm": self.table["text_token_bytes"]}[phase]
        return [each * rows for rows in self.rows["text" if phase == "llm" else phase]]

    def row_bytes(self, phase):
        """Of what the llm gets of every sample."""
        rate, each = self.model["downsample"][phase], self.width * self.table["row_element_bytes"]
        return [each * divided(rows, rate) for rows in self.rows[phase]]

    def moves(self, batches, phase):
        """Of what a phase takes, from where it was drawn."""
        sizes, origin = self.input_bytes(phase), places(self.drawn[phase])
        return [(origin[member], rank, sizes[member]) for rank, batch in enumerate(batches[phase]) for member in batch]

    def row_moves(self, batches, phase):
        """Of what the llm takes, from where it was encoded."""
        sizes, llm = self.row_bytes(phase), places(batches["llm"])
        return [(rank, llm[member], sizes[member]) for rank, batch in enumerate(batches[phase]) for member in batch]

    def composed_moves(self, batches, phase):
        """The same, as the program composes both rearrangements."""
        return composed_moves(self.binary, batches[phase], self.drawn[phase], batches["llm"], self.row_bytes(phase))

    def bound_ms(self, batches):
        """No exchange of these batches takes longer, there and back: all that the worst rank sends leaves its node."""
        sent = [(self.drawn[phase], self.input_bytes(phase)) for phase in PHASES] + [(batches[phase], self.row_bytes(phase)) for phase in ENCODERS] * 2
        return sum(max(sum(sizes[member] for member in batch) for batch in of) for of, sizes in sent) / self.table["network_gb_per_s"] / 1e6

    def reset_moves(self, batches, phase):
        """Without composition: encoded rows go back to who drew the sample, and from there to the llm."""
        sizes, origin, llm = self.row_bytes(phase), places(self.drawn[phase]), places(batches["llm"])
        back = [(rank, origin[member], sizes[member]) for rank, batch in enumerate(batches[phase]) for member in batch]
        return back, [(origin[member], llm[member], sizes[member]) for batch in batches[phase] for member in batch]

    def placed(self, batches, with_nodes=True):
        """Moves of each modality's dispatcher (inputs, then rows of media to the llm), batches node-wise on ranks, encoders first,
        or where the balancing left them; batches as they stand then; what the program says of each phase."""
        placed, answers, inputs_of = dict(batches), {}, {phase: self.moves(batches, phase) for phase in PHASES}

        def place(phase, kinds):
            placed[phase], answers[phase] = node_wise(self.binary, placed[phase], [move for moves in kinds for move in moves],
                                                      self.table["ranks_per_node"], self.table["node_wise_limit_ms"])
            to = answers[phase]["rank_of_batch"]
            return [[(rank, to[batch], size) for rank, batch, size in moves] for moves in kinds]
        for phase in ENCODERS if with_nodes else ():
            inputs_of[phase], = place(phase, [inputs_of[phase]])
        rows = [self.row_moves(placed, phase) for phase in ENCODERS]
        kinds = [inputs_of["llm"], *rows]
        text, vision, audio = place("llm", kinds) if with_nodes else kinds
        return {"vision": [inputs_of["vision"], vision], "audio": [inputs_of["audio"], audio], "text": [text]}, placed, answers

    def exchange_ms(self, exchanges):
        per_node, rate = self.table["ranks_per_node"], self.table["network_gb_per_s"] * 1e6
        return sum(off_node(moves, self.ranks, per_node)[0] / rate for moves in exchanges)


def once(dispatched):
    return [moves for kinds in dispatched.values() for moves in kinds]


def utilization(cluster, step_ms):
    """Model flops utilization, in percent."""
    return 100 * cluster.table["compute_share"] * cluster.useful_ms() / cluster.ranks / step_ms


def throughput(cluster, step_ms):
    """Tokens of the llm per second and rank."""
    return sum(cluster.rows["llm"]) / cluster.ranks / step_ms * 1000


def ablated(cluster):
    """Milliseconds of a step in every case; with all phases balanced exchanges count, at their bound, which is to the advantage of the others."""
    exchange = cluster.bound_ms(cluster.batches("all"))
    return {case: cluster.step_ms(case) + (exchange if case.startswith("all") else 0) for case in CASES}


def exchanged(cluster):
    """Per modality: bytes off the node per rank, with and without node-wise placement and composition."""
    per_node, ranks, batches, found = cluster.table["ranks_per_node"], cluster.ranks, cluster.batches("all"), {}
    (off, _, _), (on, placed, answers) = (cluster.placed(batches, with_nodes) for with_nodes in (False, True))
    def sent(word, moves):
        return dict(zip((f"max_{word}", f"mean_{word}"), off_node(moves, ranks, per_node)))
    for modality, kinds in on.items():
        found["node-wise", modality] = sent("off", [move for moves in off[modality] for move in moves]) | sent("on", [move for moves in kinds for move in moves])
    for phase in ENCODERS:
        answer = answers[phase]
        found["inputs", phase] = {"said": answer["inter_node_max"], "bound": answer["lower_bound"],
                                  "mean_bound": least_off_node(off[phase][0], ranks, per_node), **sent("off", off[phase][0]), **sent("on", on[phase][0])}
        found["composition", phase] = {"on": cluster.exchange_ms([cluster.composed_moves(placed, phase)]), "off": cluster.exchange_ms(cluster.reset_moves(placed, phase))}
    sizes = [(phase, cluster.input_bytes(phase)) for phase in PHASES] + [(phase, cluster.row_bytes(phase)) for phase in ENCODERS]
    gathered = sum(max(sum(of[member] for member in batch) for batch in cluster.drawn[phase]) for phase, of in sizes)
    found["all-gather"] = {"on": cluster.exchange_ms(once(on)), "off": (ranks - 1) * gathered / cluster.table["network_gb_per_s"] / 1e6,
                           "held_gb": ranks * gathered / 1e9}
    return found


def means(rows):
    """The mean of each number of rows with the same keys."""
    return {key: statistics.mean(row[key] for row in rows) for key in rows[0]}


def of_whole(binary, table, words, name):
    """The whole cluster: all cases with the mini-batches of OrchMLLM, no balancing with those that it has room for."""
    sizes, ranks, draws = table["models"][name]["mini_batch"], table["clusters"]["whole"], table["draws"]
    found, alone = [], []
    for seed in range(draws["unbalanced"]):
        none = Cluster(binary, table, words, name, ranks, sizes["unbalanced"], seed)
        step_ms = none.step_ms("none")
        alone.append({"mfu_none": utilization(none, step_ms), "throughput_none": throughput(none, step_ms)})
    for seed in range(draws["whole"]):
        ours = Cluster(binary, table, words, name, ranks, sizes["orchmllm"], seed)
        steps = ablated(ours)
        row = {**{case: utilization(ours, step) for case, step in steps.items()}, "throughput_all": throughput(ours, steps["all"])}
        found.append({"ablations": row, **(exchanged(ours) if name == table["exchanges_of"] else {})})
    row = {"mini_batch": sizes, **{key: means([each[key] for each in found]) for key in found[0]}}
    row["ablations"] |= means(alone)
    row["ablations"]["throughput_gain"] = row["ablations"]["throughput_all"] / row["ablations"]["throughput_none"]
    return row


def of_part(binary, table, words, name):
    """The cluster of the ablations, with its mini-batches."""
    sizes, ranks, seeds = table["models"][name]["mini_batch"], table["clusters"]["ablations"], range(table["draws"]["ablations"])
    made = [Cluster(binary, table, words, name, ranks, sizes["ablations"], seed) for seed in seeds]
    row = {"ablations": means([{case: utilization(one, step) for case, step in ablated(one).items()} for one in made]), **exchanged(made[0])}
    if "llm_alone" in sizes:
        small = [Cluster(binary, table, words, name, ranks, sizes["llm_alone"], seed) for seed in seeds]
        row["llm_alone"] = statistics.mean(utilization(one, one.step_ms("llm")) for one in small)
    return row


def of_overhead(binary, table, words, gpus):
    """A row of Table 2."""
    asked, published = table["overhead"], table["published"]
    one = Cluster(binary, table, words, asked["model"], gpus, asked["mini_batch"], 0)
    return {"overhead_ms": one.exchange_ms(once(one.placed(one.batches("all"))[0])), "forward_s": one.step_ms("all", (0,)) / 1000,
            "published": {key: published[key][str(gpus)] for key in ("overhead_ms", "forward_s")}}


# For sensitivities, which ask for orders: clusters that are asked about in seconds. Hybrid groups stay ten.
SMALLER = [("orchmllm/section-8.json", path, ("set", value)) for path, value in
           (("clusters.whole", 320), ("clusters.ablations", 64), ("hybrid_group", 32), ("overhead.gpus.2", 64), ("overhead.gpus.3", 64),
            ("overhead.gpus.4", 64), ("overhead.gpus.5", 128))]


def orchmllm(binary, changes=()):
    """Rows by kind: `whole` and `part` per model, `overhead` per number of GPUs; and what is printed."""
    table, words = inputs.load("orchmllm", changes)
    jobs = [(of_whole, name, name) for name in table["models"]] + [(of_part, name, name) for name in table["models"]] \
        + [(of_overhead, gpus, table["overhead"]["model"]) for gpus in sorted(set(table["overhead"]["gpus"]), reverse=True)]
    with ProcessPoolExecutor(2) as pool:  # Most of the time goes here, not in the program.
        begun = [(work, key, pool.submit(work, binary, table, words.get(name, ()), key)) for work, key, name in jobs]
        found = {(work, key): job.result() for work, key, job in begun}
    return {"whole": {name: found[of_whole, name] for name in table["models"]}, "part": {name: found[of_part, name] for name in table["models"]},
            "overhead": {gpus: found[of_overhead, gpus] for gpus in table["overhead"]["gpus"]}, "published": table["published"],
            "sizes": table["clusters"]}


@functools.lru_cache(maxsize=None)
def widths():
    """Columns of the llm's rows, as the job files have them."""
    return {pathlib.Path(file).stem: data["modules"]["llm"]["config"]["hidden_size"] for file, data in inputs.files().items()
            if file.startswith("orchmllm/") and file.endswith(".toml")}


def percent(value):
    return f"{100 * value:.0f} %"


def show_gains(rows):
    printed = rows["published"]
    lines = []
    for name, row in rows["whole"].items():
        ours, mini_batch = row["ablations"], row["mini_batch"]
        lines.append([name.upper(), f"{mini_batch['orchmllm']}, {mini_batch['unbalanced']}", f"{ours['all']:.1f} %",
                      f"{printed['mfu_84b']} %" if name == "mllm-84b" else "", f"{ours['mfu_none']:.1f} %", f"{ours['all'] / ours['mfu_none']:.2f}",
                      f"{ours['throughput_gain']:.2f}"])
    ranges = ["over no balancing, in print", "", "", "", "", *("{:.1f} to {:.1f}".format(*printed[key]) for key in ("mfu_gain", "throughput_gain"))]
    return table_of(["Model, 2,560 ranks", "mini-batches: balanced, not", "utilization, balanced", "published", "not balanced", "utilization gains",
                     "throughput gains"], [*lines, ranges])


def show_ablations(rows):
    lines = [[name.upper(), f"{rows['sizes'][key]:,}", *(f"{rows[size][name]['ablations'][case]:.1f}" for case in CASES)]
             for size, key in (("whole", "whole"), ("part", "ablations")) for name in rows[size]]
    return table_of(["Utilization, %", "ranks", "no phase balanced", "audio alone", "vision alone", "LLM alone", "all", "all, encoders without paddings",
                     "all, encoders with paddings"], lines)


def show_exchanges(rows):
    lines = []
    for size, key in (("whole", "whole"), ("part", "ablations")):
        for name, row in rows[size].items():
            for modality in ENCODERS if "all-gather" in row else ():
                sent, first, encoded = row["node-wise", modality], row["inputs", modality], row["composition", modality]
                less = [f"{percent(1 - of['mean_on'] / of['mean_off'])}" for of in (sent, first)]
                lines.append([name.upper(), f"{rows['sizes'][key]:,}", modality, *(f"{sent[word] / 1e6:.0f}" for word in ("mean_off", "mean_on")), *less,
                              percent(1 - first["mean_bound"] / first["mean_off"]), percent(1 - first["max_on"] / first["max_off"]),
                              percent(1 - first["bound"] / first["max_off"]), *(f"{encoded[word]:.1f}" for word in ("off", "on"))])
    return table_of(["Exchange", "ranks", "modality", "MB off the node per rank, node-wise off", "node-wise", "less", "inputs alone: less on average", "at most",
                     "less from the worst rank", "at most", "rows to the LLM, ms, composition off", "composed"], lines)


def show_overhead(rows):
    lines = [[f"{gpus:,}", *(f"{each['overhead_ms']:.2f}" for each in (row["published"], row)), *(f"{each['forward_s']:.2f}" for each in (row["published"], row))]
             for gpus, row in rows["overhead"].items()]
    return table_of(["GPUs (Table 2)", "overhead, ms, published", "ours", "forward, s, published", "ours"], lines)


def show_orchmllm(rows):
    return "\n\n".join(show(rows) for show in (show_gains, show_ablations, show_exchanges, show_overhead))
