#!/usr/bin/python3
"""Which products exchange_products.py makes, that scripts have all of them and draw few, and what it takes for a fault of a job that
lost a node. No job is run."""

import itertools
import os
import pathlib
import sys
import tomllib
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / name) for name in ("engine", "actors", "support"))]

import checkpoints  # noqa: E402
import exchange_products  # noqa: E402
import parity  # noqa: E402
import parity_sources  # noqa: E402
import recovery  # noqa: E402
from exchange_products import SOLE, cells, faults_of_phases, losses  # noqa: E402
from tests.support import drawn_cases  # noqa: E402
from tests.support.run_cases import Failure  # noqa: E402

LLM_LAYERS = 7


def replicas_of(words):
    """What a job is told of its replicas: [(modules, stages)]."""
    word = next(word for word in words if word.startswith("parallel.replicas="))
    return [(table["modules"], table["stages"]) for table in tomllib.loads(word.replace("parallel.", "", 1))["replicas"]]


def held_by_node(words):
    """{node: what it alone or with others has}, an llm by its layers."""
    held = {}
    for modules, stages in replicas_of(words):
        for stage in stages:
            own = held.setdefault(stage["node"], set())
            for module in modules:
                if module == "llm":
                    layers = stage["llm"] if stage["llm"] != "all" else [0, LLM_LAYERS]
                    own.update(("llm", layer) for layer in range(*layers))
                else:
                    own.add((module, stage[module]))
    return held


class TheCells(unittest.TestCase):
    def test_are_all_forty(self):
        asked = set(itertools.product(["3-2", "5-3", "1-4", "4-4", "4-2"], ["1f1b", "split", "zero-bubble", "three-phase"], ["all", "encoders"]))
        self.assertEqual((len(cells()), set(map(tuple, cells()))), (40, asked))
        self.assertEqual(len({cell.name for cell in cells()}), 40)

    def test_say_what_their_names_do(self):
        schedules = {"1f1b": "1f1b", "split": "split-1f1b", "zero-bubble": "zero-bubble", "three-phase": "three-phase"}
        for cell in cells():
            with self.subTest(cell.name):
                encoders, llms = map(int, cell.layout.split("-"))
                groups = ["llm" in modules for modules, _ in replicas_of(cell.words)]
                self.assertEqual((groups.count(False), groups.count(True)), (encoders, llms))
                self.assertIn(f"scheduler.schedule={schedules[cell.schedule]}", cell.words)
                self.assertEqual("balancer.policy=deferral" in cell.words, cell.schedule == "split")
                self.assertIn("balancer.exchange=per-phase", cell.words)
                frozen = {word for word in cell.words if word.endswith("freeze=true")}
                self.assertEqual(frozen, {"modules.vision.freeze=true", "modules.audio.freeze=true"} if cell.freezing == "encoders" else set())
                self.assertEqual(set(cell.model), frozen)
                self.assertFalse(any(word.startswith("train.dtype") for word in cell.words))


class TheLosses(unittest.TestCase):
    def test_are_of_each_cell_and_each_kind_of_node(self):
        # By hand: two kinds of nodes on 3-2, 5-3, 1-4 and 4-2, one on 4-4; eight cells each, and eight more that end.
        self.assertEqual((len(losses()), len({loss.name for loss in losses()})), (80, 80))
        for cell in cells():
            kinds = {loss.kind for loss in losses() if loss.cell == cell}
            self.assertEqual(kinds, set(exchange_products.KINDS[cell.layout]))

    def test_kill_a_node_of_their_kind(self):
        for loss in losses():
            with self.subTest(loss.name):
                own = held_by_node(loss.words)[loss.node]
                has_encoder, has_llm = any(what != "llm" for what, _ in own), any(what == "llm" for what, _ in own)
                both = loss.cell.layout in ("4-4", "4-2")
                self.assertEqual((has_encoder, has_llm), (both or "encoder" in loss.kind, both or "llm" in loss.kind))
                if "first" in loss.kind or "last" in loss.kind:
                    layers = {layer for what, layer in own if what == "llm"}
                    self.assertEqual((0 in layers, LLM_LAYERS - 1 in layers), ("first" in loss.kind, "last" in loss.kind))

    def test_take_no_sole_holder_but_where_that_ends_the_job_or_others_stand_by(self):
        for loss in losses():
            held = held_by_node(loss.words)
            others = set().union(*(own for node, own in held.items() if node != loss.node))
            is_sole = not held[loss.node] <= others
            with self.subTest(loss.name):
                self.assertEqual(is_sole, loss.kind == SOLE)
                self.assertEqual("cluster.fault_tolerance=1" in loss.words, is_sole and not loss.ends)
                self.assertTrue(is_sole or not loss.ends)
        self.assertEqual(sum(loss.ends for loss in losses()), 8)


class AnEnd(unittest.TestCase):
    """A job that cannot go on."""

    SAID = "node 0 (host, pid 7) was lost; it cannot be done without: no other node has vision.x; what is left of step 4 is saved " \
           "(step-4.incomplete-1), which is not all of the model: nobody held any more vision.x (last held by node 0 (host, pid 7))\n  fix: it"

    def end(self, output):
        told = []
        job = types.SimpleNamespace(wait_for=lambda step: None, signal=lambda node, which: told.append(node),
                                    finish=lambda code: told.append(code) or output)
        bench = types.SimpleNamespace(start=lambda name, *words: job, draw=types.SimpleNamespace(random=lambda: 0))
        exchange_products.run_loss(bench, next(loss for loss in losses() if loss.ends))
        return told

    def test_is_resumable_and_told(self):
        self.assertEqual(self.end(self.SAID), [0, 75])

    def test_must_say_what_whose_and_what_to_do(self):
        for word in ("no other node has", "last held by node 0", "not all of the model", "fix:"):
            with self.assertRaises(Failure, msg=word):
                self.end(self.SAID.replace(word, "something"))


class Scripts(unittest.TestCase):
    def names(self, cases):
        return [case.__name__ for case in cases]

    def test_have_every_product_by_a_name_of_its_own(self):
        self.assertEqual(self.names(recovery.PRODUCTS), [loss.name for loss in losses()])
        self.assertEqual(self.names(checkpoints.PRODUCTS), [f"{cell.name}-from-a-checkpoint" for cell in cells()])
        sources = [f"sources-{cell.name}" for cell in cells()]
        self.assertEqual(parity.FAMILIES["sources-products"][0], sources)
        for cell, name in zip(cells(), sources):
            self.assertEqual(parity.CASES[name], (["train.dtype=fp64", *cell.words], "sources", 5))
            self.assertNotIn(name, parity.FAMILIES["sources-all"][0])

    def test_hand_a_case_what_it_is_called_by(self):
        seen = []
        case = exchange_products.checkpoint_cases(lambda bench, cell: seen.append((bench, cell)))[7]
        case("bench")
        self.assertEqual(seen, [("bench", cells()[7])])

    def test_draw_few_of_them_and_all_where_they_are_to_be_thorough(self):
        before = os.environ.pop(drawn_cases.THOROUGH, None)
        try:
            for script, number in ((recovery, 2), (checkpoints, 1)):
                some = drawn_cases.some_here(script.PRODUCTS, script.PRODUCTS_AT_A_TIME)
                self.assertEqual(len(some), number)
                self.assertEqual(some, drawn_cases.some_here(script.PRODUCTS, number))
            third = drawn_cases.third_of(len(checkpoints.CASES))
            self.assertEqual(len(drawn_cases.named_or_third(checkpoints.CASES, [], checkpoints.PRODUCTS, 2)), third + 2)
            os.environ[drawn_cases.THOROUGH] = "1"
            self.assertEqual(len(drawn_cases.some_here(recovery.PRODUCTS, 5)), len(losses()))
            self.assertEqual(len(drawn_cases.named_or_third(checkpoints.CASES, [], checkpoints.PRODUCTS, 2)), len(checkpoints.CASES) + 40)
        finally:
            os.environ.pop(drawn_cases.THOROUGH, None)
            if before is not None:
                os.environ[drawn_cases.THOROUGH] = before

    def test_run_one_that_is_asked_for(self):
        name = "exchange-5-3-split-all-from-a-checkpoint"
        self.assertEqual(self.names(drawn_cases.named_or_third(checkpoints.CASES, [name], checkpoints.PRODUCTS, 2)), [name])

    def test_draw_every_product_in_time(self):
        names = self.names(recovery.PRODUCTS)
        seen = set().union(*(drawn_cases.drawn(names, 5, f"commit {number}") for number in range(300)))
        self.assertEqual(seen, set(names))


def plan_of(encoders, llms, nodes):
    """So many replicas of both, a stage each, dealt over these nodes."""
    places = range(encoders + llms)
    return {"module_groups": [{"name": "vision"}, {"name": "llm"}],
            "replicas": [{"group": int(place >= encoders), "stages": [place]} for place in places],
            "stages": [{"devices": [place % len(nodes)]} for place in places], "devices": [{"node": node} for node in nodes]}


# Of two encoders and two llms, samples 0 to 3: sample 4 stands for a piece of sample 1. The first encoder has one of each llm.
MIXED = [[[[0, 2]], [[4]]], [[[1, 3]]], [[[0, 1]]], [[[2, 3]]]]
EACH_ITS_OWN = [[[[0]], [[1]]], [[[2]], [[3]]], [[[0, 1]]], [[[2, 3]]]]
ONE_AFTER_THE_OTHER = [[[[0]], [[2]]], [[[1]], [[3]]], [[[0, 1]]], [[[2, 3]]]]
TO_ONE = [[[[0, 2]], [[4]]], [[[1, 3]]], [[[0, 1, 2, 3]]]]


class APhase(unittest.TestCase):
    """Of a job of two encoders and two llms on four nodes that lost node 1."""

    def faults(self, before, after, told=(True, True), plans=None, in_pieces=(1, 2)):
        plans = plans or {1: plan_of(2, 2, [0, 1, 2, 3]), 2: plan_of(2, 2, [0, 2, 3])}
        lines = [{"epoch_number": number, "replicas": lists, "ids": ["a", "b", "c", "d"],
                  **({"pieces": [[1, 0]]} if number in in_pieces else {})} for number, lists in ((1, before), (2, after)) if lists]
        metrics = [{"generation": number, **({} if word is None else {"exchanged": word})} for number, word in zip((1, 2), told)]
        return faults_of_phases(plans, lines, metrics, 1)

    def expect_fault(self, words, *arguments, **more):
        faults = self.faults(*arguments, **more)
        self.assertEqual(len(faults), 1, faults)
        self.assertIn(words, faults[0])

    def test_that_is_shared_out_before_and_after_has_no_fault(self):
        self.assertEqual(self.faults(MIXED, MIXED), [])

    def test_must_be_exchanged_in_each_layout(self):
        self.expect_fault("layout 2: metrics say", MIXED, MIXED, told=(True, False))
        self.expect_fault("layout 1: metrics say", MIXED, MIXED, told=(None, True))

    def test_must_feed_several_llms_in_each_layout(self):
        faults = self.faults(MIXED, EACH_ITS_OWN)  # So nothing is mixed either.
        self.assertEqual(faults, ["layout 2: no encoder feeds several of 2 llm replicas in a step",
                                  "layout 2: no microbatch of an encoder has samples of two llm replicas"])

    def test_must_mix_samples_in_each_layout(self):
        self.expect_fault("layout 2: no microbatch of an encoder has samples of two", MIXED, ONE_AFTER_THE_OTHER)
        self.expect_fault("layout 1: no microbatch of an encoder has samples of two", ONE_AFTER_THE_OTHER, MIXED)

    def test_must_cut_samples_in_each_layout(self):
        whole = [[[[0, 2]], [[1]]], *MIXED[1:]]
        self.expect_fault("layout 2: no sample is in pieces", MIXED, whole, in_pieces=(1,))

    def test_must_have_been_trained_in_each_layout(self):
        self.expect_fault("layout 2 trained 0 steps", MIXED, None)

    def test_of_one_llm_has_nobody_else_to_feed(self):
        plans = {1: plan_of(2, 2, [0, 1, 2, 3]), 2: plan_of(2, 1, [0, 2, 3])}
        self.assertEqual(self.faults(MIXED, TO_ONE, plans=plans), [])

    def test_of_one_encoder_is_shared_with_nobody(self):
        plans = {1: plan_of(1, 2, [0, 1, 2]), 2: plan_of(1, 2, [0, 2])}
        alone = [[[[0, 2]], [[1, 3]]], [[[0, 1]]], [[[2, 3]]]]
        self.assertEqual(self.faults(alone, alone, told=(None, None), plans=plans, in_pieces=()), [])
        self.expect_fault("layout 2: metrics say", alone, alone, told=(None, True), plans=plans, in_pieces=())

    def test_has_no_stage_on_the_node_that_was_lost(self):
        self.expect_fault("node 1 has a stage", MIXED, MIXED, plans={1: plan_of(2, 2, [0, 1, 2, 3]), 2: plan_of(2, 2, [0, 1, 3])})


class SourcesOfAFewNodes(unittest.TestCase):
    def test_must_be_shared_out_in_some_phase(self):
        even = {"exchanged": True, "phases": {"vision": {"imbalance_planned": 1.0}, "llm": {}}}
        shared = {"exchanged": True, "phases": {"vision": {"exchanged": True}, "llm": {}}}
        words = parity_sources.CASES["sources-exchange"]
        self.assertEqual(parity_sources.faults_of_sharing([even, shared], words), [])
        self.assertEqual(len(parity_sources.faults_of_sharing([even, even], words)), 1)
        alone = parity_sources.CASES["sources-exchange-1-4-1f1b-all"]
        self.assertEqual(parity_sources.faults_of_sharing([even], alone), [])
        self.assertEqual(len(parity_sources.faults_of_sharing([shared], alone)), 1)


if __name__ == "__main__":
    unittest.main()
