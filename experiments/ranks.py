"""OrchMLLM's exchanges (sections 5, 6 and 8) on paper: who works on what after balancing, and what leaves a node for it.

Asked are `troupe solve post-balance`, `node-wise` and `rearrange`. An exchange takes the most that one rank sends off its node
(equation 5), at the speed of its adaptor. What steps take is simulated by `scripts/bench ablations`, from the same inputs.
"""

import collections
import functools
import math
import pathlib
import random
import statistics
from concurrent.futures import ProcessPoolExecutor

import inputs
from asking import ask_once, table_of

PHASES = ("vision", "audio", "llm")
ENCODERS = ("vision", "audio")


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

    def __init__(self, binary, table, name, ranks, mini_batch, seed):
        self.binary, self.table, self.model, self.ranks = binary, table, table["models"][name], ranks
        self.rows = draw_samples(table, self.model, ranks * mini_batch, seed)
        self.drawn = {phase: drawn_batches(self.rows[phase], ranks, mini_batch) for phase in PHASES}
        self.width = widths()[name]

    def batches(self):
        """All phases balanced, each by its own algorithm."""
        return {phase: post_balanced(self.binary, self.rows[phase], self.drawn[phase], self.table["algorithms"][phase]) for phase in PHASES}

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


def exchanged(cluster):
    """Per modality: bytes off the node per rank, with and without node-wise placement and composition."""
    per_node, ranks, batches, found = cluster.table["ranks_per_node"], cluster.ranks, cluster.batches(), {}
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


def of_whole(binary, table, name):
    """Exchanges on the whole cluster, with the mini-batches of OrchMLLM."""
    ranks, mini_batch, seeds = table["clusters"]["whole"], table["models"][name]["mini_batch"]["orchmllm"], range(table["draws"]["whole"])
    found = [exchanged(Cluster(binary, table, name, ranks, mini_batch, seed)) for seed in seeds]
    return {key: means([each[key] for each in found]) for key in found[0]}


def of_part(binary, table, name):
    """The same on the cluster of the ablations, with its mini-batches."""
    return exchanged(Cluster(binary, table, name, table["clusters"]["ablations"], table["models"][name]["mini_batch"]["ablations"], 0))


def of_overhead(binary, table, gpus):
    """A row of Table 2."""
    asked, published = table["overhead"], table["published"]
    one = Cluster(binary, table, asked["model"], gpus, asked["mini_batch"], 0)
    return {"overhead_ms": one.exchange_ms(once(one.placed(one.batches())[0])),
            "published": {key: published[key][str(gpus)] for key in ("overhead_ms", "forward_s")}}


# For sensitivities, which ask for orders: clusters that are asked about in seconds.
SMALLER = [("orchmllm/section-8.json", path, ("set", value)) for path, value in
           (("clusters.whole", 320), ("clusters.ablations", 64), ("overhead.gpus.2", 64), ("overhead.gpus.3", 64),
            ("overhead.gpus.4", 64), ("overhead.gpus.5", 128))]


def orchmllm(binary, changes=()):
    """Rows by kind: `whole` and `part` per model, `overhead` per number of GPUs; and what is printed."""
    table, _ = inputs.load("orchmllm", changes)
    jobs = [(of_whole, table["exchanges_of"])] + [(of_part, name) for name in table["models"]] \
        + [(of_overhead, gpus) for gpus in sorted(set(table["overhead"]["gpus"]), reverse=True)]
    with ProcessPoolExecutor(2) as pool:  # Most of the time goes here, not in the program.
        begun = [(work, key, pool.submit(work, binary, table, key)) for work, key in jobs]
        found = {(work, key): job.result() for work, key, job in begun}
    return {"whole": {table["exchanges_of"]: found[of_whole, table["exchanges_of"]]}, "part": {name: found[of_part, name] for name in table["models"]},
            "overhead": {gpus: found[of_overhead, gpus] for gpus in table["overhead"]["gpus"]}, "published": table["published"],
            "sizes": table["clusters"]}


@functools.lru_cache(maxsize=None)
def widths():
    """Columns of the llm's rows, as the job files have them."""
    return {pathlib.Path(file).stem: data["modules"]["llm"]["config"]["hidden_size"] for file, data in inputs.files().items()
            if file.startswith("orchmllm/") and file.endswith(".toml")}


def percent(value):
    return f"{100 * value:.0f} %"


def show_exchanges(rows):
    lines = []
    for size, key in (("whole", "whole"), ("part", "ablations")):
        for name, row in rows[size].items():
            for modality in ENCODERS:
                sent, first, encoded = row["node-wise", modality], row["inputs", modality], row["composition", modality]
                less = [f"{percent(1 - of['mean_on'] / of['mean_off'])}" for of in (sent, first)]
                lines.append([name.upper(), f"{rows['sizes'][key]:,}", modality, *(f"{sent[word] / 1e6:.0f}" for word in ("mean_off", "mean_on")), *less,
                              percent(1 - first["mean_bound"] / first["mean_off"]), percent(1 - first["max_on"] / first["max_off"]),
                              percent(1 - first["bound"] / first["max_off"]), *(f"{encoded[word]:.1f}" for word in ("off", "on"))])
    return table_of(["Exchange", "ranks", "modality", "MB off the node per rank, node-wise off", "node-wise", "less", "inputs alone: less on average", "at most",
                     "less from the worst rank", "at most", "rows to the LLM, ms, composition off", "composed"], lines)


def show_overhead(rows):
    lines = [[f"{gpus:,}", *(f"{each['overhead_ms']:.2f}" for each in (row["published"], row)), f"{row['published']['forward_s']:.2f}"]
             for gpus, row in rows["overhead"].items()]
    return table_of(["GPUs (Table 2)", "overhead, ms, published", "ours", "forward, s, published"], lines)


def show_orchmllm(rows):
    return "\n\n".join(show(rows) for show in (show_exchanges, show_overhead))
