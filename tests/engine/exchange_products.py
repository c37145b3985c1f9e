"""Every product of an exchange and what may happen to its job: 40 cells, each gone on with from a checkpoint (checkpoints.py), with
sources that one node sees (parity.py, parity_sources.py), and without a node of each kind (recovery.py).

A cell is a layout, a schedule with its policy, and what is frozen, as in parity_exchange.py. Each commit draws a few of each product.
"""

import json
import pathlib
import re
import signal
import sys
import time
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import parity_exchange
from tests.support.recorded_runs import read_lines, sample_of
from tests.support.run_cases import Failure, expect

LAYOUTS = ["3-2", "5-3", "1-4", "4-4", "4-2"]  # Encoder replicas, llm replicas; 4-4 and 4-2 on the same four nodes.


class Cell(typing.NamedTuple):
    layout: str
    schedule: str
    freezing: str

    @property
    def name(self):
        return f"exchange-{'-'.join(self)}"

    @property
    def words(self):
        """Its job but for the type of numbers."""
        return [word for word in parity_exchange.CASES[self.name] if not word.startswith("train.dtype=")]

    @property
    def model(self):
        """What its reference is told, too."""
        return parity_exchange.FREEZING[self.freezing]


def cells():
    return [Cell(layout, schedule, freezing) for layout in LAYOUTS for schedule in parity_exchange.SCHEDULES
            for freezing in parity_exchange.FREEZING]


# ---- a node is killed -----------------------------------------------------------------------------

# Who has both may have the llm's first part or its last one: {layout: {kind: node}}.
KINDS = {
    "3-2": {"an-encoder": 1, "an-llm": 3},
    "5-3": {"an-encoder": 1, "an-llm": 6},
    "1-4": {"its-encoder": 0, "an-llm": 2},
    "4-4": {"both": 2},
    "4-2": {"both-and-the-first-part": 2, "both-and-the-last-part": 3},
}
STANDING_BY = "cluster.fault_tolerance=1"  # Where one node alone would have a part of the model.
SOLE = "its-encoder"


class Loss(typing.NamedTuple):
    """A job on a cell loses a node while it trains. `ends`: nobody else holds what that had, so that there is no job without it."""

    cell: Cell
    kind: str
    node: int
    ends: bool = False

    @property
    def name(self):
        return f"{self.cell.name}-without-{self.kind}{'-nor-holder' if self.ends else ''}"

    @property
    def words(self):
        return [*self.cell.words, *([STANDING_BY] if self.kind == SOLE and not self.ends else [])]


def losses():
    """Each cell without a node of each kind; where that is the only holder, once with a standby holder and once without."""
    found = [Loss(cell, kind, node) for cell in cells() for kind, node in KINDS[cell.layout].items()]
    return found + [loss._replace(ends=True) for loss in found if loss.kind == SOLE]


def kill_amid(bench, name, words, node):
    job = bench.start(name, *words)
    job.wait_for(6)  # A layout that loses its second llm shares nothing out between llms any more.
    time.sleep(0.2 * bench.draw.random())
    job.signal(node, signal.SIGKILL)
    return job


def goes_on_without(bench, name, words, node, model):
    """Whoever is left shares every phase out anew, and trains what it would have."""
    job = kill_amid(bench, name, words, node)
    job.finish()
    bench.check(job, model)
    expect([event["nodes"] for event in job.events()] == [[node]], f"{name}: events: {job.events()}")
    plans = {number: json.loads((job.run / file).read_text(encoding="utf-8")) for number, file in ((1, "plan-1.json"), (2, "plan.json"))}
    if faults := faults_of_phases(plans, read_lines(job.run / "iterations.jsonl"), read_lines(job.run / "metrics.jsonl"), node):
        raise Failure("\n".join(faults))


def ends_without(bench, loss):
    """What cannot be is refused: the job names what nobody has any more, who had it, and what to do, and saves what lives."""
    output = kill_amid(bench, loss.name, loss.words, loss.node).finish(75)
    expect(re.search(r"no other node has (vision|audio)", output), f"what is lost is not named:\n{output[-2500:]}")
    for said in (f"last held by node {loss.node} ", "which is not all of the model", "fix:"):
        expect(said in output, f"'{said}' is not said:\n{output[-2500:]}")


def run_loss(bench, loss):
    if loss.ends:
        ends_without(bench, loss)
    else:
        goes_on_without(bench, loss.name, loss.words, loss.node, loss.cell.model)


def replicas_by_group(plan):
    """{group: its replicas' places}; the last group is the llm."""
    found = {number: [] for number in range(len(plan["module_groups"]))}
    for place, replica in enumerate(plan["replicas"]):
        found[replica["group"]].append(place)
    return found


def shared_in(line, llms):
    """Encoder microbatches of a step that have samples of several llm replicas, and encoders that feed several llm replicas in it."""
    llm_of = {sample: place for place in llms for microbatch in line["replicas"][place] for part in microbatch for sample in part}
    mixed = feeding = 0
    for place, lists in enumerate(line["replicas"]):
        if place not in llms:
            fed = [{llm_of[sample_of(line, unit)] for part in microbatch for unit in part} for microbatch in lists]
            mixed += sum(len(some) > 1 for some in fed)
            feeding += len(set().union(*fed)) > 1
    return mixed, feeding


def faults_of_phases(plans, iterations, metrics, lost):
    """Before and after a loss steps are exchanged wherever some encoder has several replicas, and encoders feed several llm replicas
    wherever there are several; where there are several of both, some microbatches mix what is theirs, and some samples are in pieces.
    What there are is the layout's to say: after a loss it is not the job file's."""
    faults = []
    for number, plan in plans.items():
        groups = replicas_by_group(plan)
        llms = groups.pop(len(plan["module_groups"]) - 1)
        several = any(len(places) > 1 for places in groups.values())
        lines = [line for line in iterations if line["epoch_number"] == number]
        told = {line.get("exchanged") for line in metrics if line["generation"] == number}
        if not lines or not told:
            faults.append(f"layout {number} trained {len(lines)} steps, metrics tell of {told}")
            continue
        if (True in told) != several or (None in told) == several:
            faults.append(f"layout {number}: metrics say of steps that they were exchanged: {told}")
        mixed, feeding = (sum(counts) for counts in zip(*(shared_in(line, llms) for line in lines)))
        if len(llms) > 1 and feeding == 0:
            faults.append(f"layout {number}: no encoder feeds several of {len(llms)} llm replicas in a step")
        if several and len(llms) > 1 and mixed == 0:
            faults.append(f"layout {number}: no microbatch of an encoder has samples of two llm replicas")
        if several and len(llms) > 1 and not any(line.get("pieces") for line in lines):
            faults.append(f"layout {number}: no sample is in pieces")
    left = plans[max(plans)]
    if any(left["devices"][device]["node"] == lost for stage in left["stages"] for device in stage["devices"]):
        faults.append(f"node {lost} has a stage of the last layout")
    return faults


# ---- the cases of scripts -------------------------------------------------------------------------

SOURCES = {f"sources-{cell.name}": ["train.dtype=fp64", *cell.words] for cell in cells()}


def case(name, run, given):
    """What run_cases wants: a function of the script's bench, by this name."""
    def run_it(bench):
        run(bench, given)
    run_it.__name__ = name
    return run_it


def loss_cases():
    return [case(loss.name, run_loss, loss) for loss in losses()]


def checkpoint_cases(run):
    """`run`: what checkpoints.py does with a cell."""
    return [case(f"{cell.name}-from-a-checkpoint", run, cell) for cell in cells()]
