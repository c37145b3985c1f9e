#!/usr/bin/python3
"""What chaos.py and recovery.py count as an event, by which seeds they draw, what they do at least, and what their oracle takes
for rounding; what reconfiguration.py expects of a layout. No job is run: what the binary would say stands here."""

import collections
import contextlib
import io
import os
import pathlib
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / name) for name in ("engine", "actors", "support"))]

import chaos  # noqa: E402
import chaos_job  # noqa: E402
import chaos_script  # noqa: E402
import reconfiguration  # noqa: E402
import recovery  # noqa: E402
from chaos_oracle import FP64_RTOL, Oracle  # noqa: E402
from chaos_script import Script  # noqa: E402
from run_cases import Failure  # noqa: E402


def told(kind, *nodes):
    return {"kind": kind, "nodes": list(nodes)}


class Seeds(unittest.TestCase):
    def test_are_the_same_every_day(self):
        before = time.time
        try:
            for days in (1, 20000, 20001):
                time.time = lambda days=days: days * 86400.0
                self.assertEqual([script.read_arguments(["troupe"]).seed for script in (chaos, recovery)], [1, 1])
        finally:
            time.time = before

    def test_can_be_asked_for(self):
        self.assertEqual([script.read_arguments(["troupe", "--seed", "7"]).seed for script in (chaos, recovery)], [7, 7])

    def test_fifteen_events_are_few_and_two_hundred_are_not(self):
        self.assertEqual(chaos.read_arguments(["troupe"]).events, 15)
        self.assertLess(15, chaos.MANY)
        self.assertLess(chaos.MANY, 200)


class Devices(unittest.TestCase):
    """Of the disturbed job of chaos.py."""

    def test_are_prompt_unless_it_is_asked_for(self):
        self.assertEqual(chaos.device_words(chaos.read_arguments(["troupe"])), [])
        self.assertEqual(chaos.device_words(chaos.read_arguments(["troupe", "--late", "0.4"])), ["debug.delayed_device_ms=0.4"])

    def test_complete_late_by_one_of_the_seeds_of_two_hundred_events(self):
        text = (ROOT / "tests" / "engine" / "CMakeLists.txt").read_text(encoding="utf-8")
        self.assertRegex(text, r"seed EQUAL 3\)\n *set\(late --late 0\.4\)")
        self.assertIn("--events 200 --seed ${seed} ${late}", text)

    def test_of_the_runs_that_it_is_compared_with_are_prompt(self):
        self.assertFalse(any("delayed" in word for word in [*chaos.TRAINS, *chaos.CLUSTER]))


class Effects(unittest.TestCase):
    """recovery.took_effect."""

    def test_what_the_record_tells_happened(self):
        tried = [("kill", 0), ("stop", 3), ("head", None), ("join", None)]
        events = [told("lost", 0), told("checkpoint"), told("head-lost", 3), told("joined", 0)]
        self.assertEqual(recovery.took_effect(tried, events, 1), 4)

    def test_a_signal_to_a_job_that_has_ended_did_not(self):
        self.assertEqual(recovery.took_effect([("kill", 0), ("drain", 1), ("head", None), ("join", None)], [], 0), 0)

    def test_a_node_that_slept_and_was_not_missed_did_not(self):
        self.assertEqual(recovery.took_effect([("stop", 1), ("kill", 3)], [told("lost", 3)], 0), 1)

    def test_a_node_counts_once(self):
        self.assertEqual(recovery.took_effect([("drain", 1)], [told("lost", 1), told("drained", 1)], 0), 1)

    def test_who_comes_where_the_head_starts_one_is_not_ours(self):
        events = [told("joined", 0), told("joined", 1)]
        self.assertEqual(recovery.took_effect([("join", None)], events, 0), 0)
        self.assertEqual(recovery.took_effect([("join", None)], events, 1), 1)
        self.assertEqual(recovery.took_effect([("join", None)], [], 1), 0)  # It came when all was done.

    def test_of_two_killed_heads_one_came_too_late(self):
        self.assertEqual(recovery.took_effect([("head", None), ("head", None)], [told("head-lost")], 0), 1)


class Node:
    is_stopped, pid = False, 4711

    def runs(self):
        return True


class Link:
    def cut(self, is_silent):
        pass

    def keep_near_end_up(self):
        pass

    def mend(self):
        pass


class DrawnEvents(unittest.TestCase):
    def script(self, is_few):
        bench = types.SimpleNamespace(draw=random.Random(1), is_few=is_few, sleep_s=8, patience=1)
        script = Script(bench, types.SimpleNamespace(status=lambda: None), 8, "nowhere")
        nodes = {number: Node() for number in range(7)}
        script._members = lambda: nodes
        script.tolerance, script.asked = 1, []
        for kind in ("kill", "join", "stop", "drain", "head", "head_stop"):
            setattr(script, kind, lambda kind=kind: script.asked.append(kind) or types.SimpleNamespace(kind="", begun=0))
        return script

    def test_each_kind_comes_once_where_there_are_few(self):
        script = self.script(True)
        done = sum(len(script.next_events()) for _ in range(6))
        self.assertEqual(set(script.asked), {"kill", "join", "stop", "drain", "head", "head_stop"})
        self.assertEqual(done, len(script.asked))

    def test_what_was_refused_is_no_event(self):
        script = self.script(True)
        script.kill = lambda: script.asked.append("kill")  # Returns None.
        self.assertEqual([event.kind for event in script.next_events() if event.kind == "kill"], [])


class Pairs(unittest.TestCase):
    """Of events of a job on two hosts, that come within 100 ms."""

    KINDS = ("kill", "join", "stop", "drain", "head", "head_stop", "slow", "cut")

    def setUp(self):
        self.sleep, time.sleep = time.sleep, lambda _: None

    def tearDown(self):
        time.sleep = self.sleep

    def script(self, seed, nodes=5, link=True):
        bench = types.SimpleNamespace(draw=random.Random(seed), is_few=False, sleep_s=8, patience=1)
        script = Script(bench, types.SimpleNamespace(is_quiet=lambda: True), 6, "nowhere", Link() if link else None)
        members = {number: Node() for number in range(nodes)}
        script._members = lambda: members
        script.tolerance = 1
        for kind in self.KINDS:
            setattr(script, kind, lambda: types.SimpleNamespace(kind="", begun=0))
        return script

    def batches(self, link, count=4000):
        script = self.script(1, link=link)
        return [tuple(event.kind for event in script.next_events()) for _ in range(count)]

    def test_the_head_is_killed_behind_a_quarter_of_all_cuts(self):
        drawn = collections.Counter(self.batches(True))
        behind, alone = drawn["cut", "head"], drawn["cut",]
        self.assertAlmostEqual(behind / (behind + alone), 0.25, delta=0.05)

    def test_at_most_one_takes_a_node_away(self):
        pairs = {batch for batch in self.batches(True) if len(batch) == 2}
        self.assertIn(("kill", "head"), pairs)
        self.assertIn(("drain", "kill"), pairs)
        for first, second in pairs:
            self.assertNotIn(second, ("head_stop", "cut"))
            self.assertNotEqual(first, "head_stop")
            self.assertFalse({first, second} <= {"kill", "stop"}, (first, second))
            if first == "cut":
                self.assertEqual(second, "head")

    def test_of_the_kinds_come_as_many_as_without_heads_behind_cuts(self):
        shares = collections.Counter(kind for batch in self.batches(True, 20000) for kind in batch)
        # Drawn with nothing behind cuts, and twice as many heads killed as stopped, by 100,000 draws.
        before = {"head": 0.103, "cut": 0.161, "slow": 0.154, "kill": 0.142, "stop": 0.143, "drain": 0.104, "head_stop": 0.040, "join": 0.154}
        for kind, share in before.items():
            self.assertAlmostEqual(shares[kind] / shares.total(), share, delta=0.01, msg=kind)

    def test_who_is_out_beyond_a_cut_gets_its_time_anew(self):
        script = self.script(1)
        near, far = (types.SimpleNamespace(host=host, ends_by=5) for host in (0, 1))
        script.job = types.SimpleNamespace(last_step=lambda: 3, later=lambda *_: None, nodes=[near, far])
        del script.cut  # The script's own.
        script.cut()
        self.assertEqual((near.ends_by, far.ends_by), (5, None))

    def test_the_links_of_one_machine_are_not_cut(self):
        kinds = {kind for batch in self.batches(False) for kind in batch}
        self.assertEqual(kinds, set(self.KINDS) - {"cut", "slow"})

    def cut_with_head(self, seconds):
        """Behind a cut of so long the head is killed, and another one is there after 9 s."""
        script = self.script(1)
        begun = time.monotonic()
        script.first = ["cut"]
        script.draw.random = lambda: 0

        def cut():
            script.cut_counts_until = begun + 2 * seconds + 5
            return types.SimpleNamespace(kind="", begun=begun)

        script.cut, script.head = cut, lambda: types.SimpleNamespace(kind="", begun=begun + 9)
        events = script.next_events()
        self.assertEqual([event.kind for event in events], ["cut", "head"])
        self.assertEqual([event.begun for event in events], [begun + 9] * 2)
        return script.cut_counts_until - begun

    def test_who_is_cut_off_may_be_lost_until_the_next_head_has_gathered(self):
        self.assertAlmostEqual(self.cut_with_head(1), 9 + 13)
        self.assertAlmostEqual(self.cut_with_head(20), 2 * 20 + 5)

    def test_only_a_head_that_gathers_behind_a_cut_may_send_nodes_back(self):
        script = self.script(1)
        script.job.last_words = lambda: "[info] step 7: ...\n[warning] node 3 cannot go on: node 4 alone had a part"
        for kinds, may in ((["cut"], False), (["head"], False), (["kill", "head"], False), (["cut", "head"], True)):
            self.assertEqual(script._begins_again([types.SimpleNamespace(kind=kind) for kind in kinds]), may, kinds)
        script.job.last_words = lambda: "[warning] node 3 cannot go on: ...\n[info] step 7: ..."
        self.assertFalse(script._begins_again([types.SimpleNamespace(kind=kind) for kind in ("cut", "head")]))

    def test_behind_a_cut_that_is_mended_already_no_end_is_kept_up(self):
        for is_mended in (False, True):
            script, kept = self.script(1), []
            script.done = [types.SimpleNamespace(kind="cut")]
            script.link = types.SimpleNamespace(keep_near_end_up=lambda kept=kept: kept.append("up"))
            script.job = types.SimpleNamespace(history=[], head=types.SimpleNamespace(kill=lambda: None, wait=lambda: None), last_step=lambda: 10,
                                               start_head=lambda: None, pass_without_head=lambda _: None, is_quiet=lambda is_mended=is_mended: is_mended)
            Script.head(script)
            self.assertEqual(kept, [] if is_mended else ["up"])

    def test_a_killed_head_is_told_of_or_behind_a_cut_the_job_resumed(self):
        for before, kind, is_over in (([], "head-lost", True), ([], "resumed", False), (["kill"], "resumed", False),
                                      (["cut"], "resumed", True), (["cut"], "head-lost", True), (["cut"], "lost", False)):
            script, steps, done = self.script(1), [10], []
            script.done = [types.SimpleNamespace(kind=name) for name in before]
            head = types.SimpleNamespace(kill=lambda: done.append("kill"), wait=lambda: None)
            script.job = types.SimpleNamespace(history=[], head=head, last_step=lambda: steps[0], start_head=lambda: done.append("start"),
                                               pass_without_head=lambda _: done.append("pass"), is_quiet=lambda: False)
            event = Script.head(script)
            self.assertEqual(done, ["kill", "pass", "start"])
            script.job.history.append(told(kind, 3))
            steps[0] = 12
            event.look()
            self.assertEqual(event.took is not None, is_over, (before, kind))


class Limits(unittest.TestCase):
    """Of the time within which what was done is over."""

    def await_end(self, *events):
        """Events of a second, each: what it is, how much more time it has, and when it is over."""
        clock = [100.0]
        job = types.SimpleNamespace(last_step=lambda: 3, last_words=lambda: "", sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds))
        script = Script(types.SimpleNamespace(draw=random.Random(1), patience=1, is_few=False), job, 6, "nowhere")
        before, chaos_script.time = chaos_script.time, types.SimpleNamespace(monotonic=lambda: clock[0])
        try:
            done = [chaos_script.Event(text, lambda over=over: clock[0] >= 100 + over, more_s=more_s) for text, more_s, over in events]
            for event in done:
                event.kind = event.text
            with contextlib.redirect_stdout(io.StringIO()):
                script.await_end_of(done)
        finally:
            chaos_script.time = before

    def test_a_join_has_thirteen_seconds(self):
        self.await_end(("join", 0, 12.5))
        with self.assertRaisesRegex(Failure, r"join \(of: join\)"):
            self.await_end(("join", 0, 14.4))

    def test_what_comes_with_a_slow_link_has_its_time_too(self):
        self.await_end(("slow", 13.9, 13), ("join", 0, 14.4))
        with self.assertRaisesRegex(Failure, r"join \(of: slow, join\)"):
            self.await_end(("slow", 13.9, 13), ("join", 0, 27.5))

    def test_what_comes_with_another_kill_has_no_more(self):
        with self.assertRaises(Failure):
            self.await_end(("kill", 0, 2), ("join", 0, 14.4))


class Sleepers(unittest.TestCase):
    def is_over(self, seconds, events, is_awake=True):
        """Where these were told behind a node that slept for so long."""
        steps, node = [10], Node()
        job = types.SimpleNamespace(history=[], last_step=lambda: steps[0], lost_since=lambda told, number: any(
            event["kind"] in ("lost", "head-lost") and number in event["nodes"] for event in job.history[told:]))
        script = Script(types.SimpleNamespace(draw=random.Random(1), patience=1, is_few=False), job, 8, "nowhere")
        event = script._loss("stop 3", 3, node, seconds)
        node.is_stopped = not is_awake
        job.history += events
        steps[0] = 12
        event.look()
        return event.took is not None

    def test_who_sleeps_long_is_lost(self):
        self.assertFalse(self.is_over(10, []))
        self.assertTrue(self.is_over(10, [told("lost", 3)]))
        self.assertTrue(self.is_over(10, [told("lost", 3)], is_awake=False))

    def test_who_sleeps_for_short_may_stay(self):
        self.assertTrue(self.is_over(5, []))
        self.assertFalse(self.is_over(5, [], is_awake=False))

    def test_who_wakes_while_the_next_head_gathers_may_stay(self):
        self.assertTrue(self.is_over(10, [told("head-lost")]))
        self.assertTrue(self.is_over(10, [told("head-lost", 3)], is_awake=False))
        self.assertFalse(self.is_over(10, [told("head-lost")], is_awake=False))
        self.assertFalse(self.is_over(10, [told("joined", 4)]))


class Drains(unittest.TestCase):
    def drain(self, seed, code=0):
        """What was done, in order, and the event."""
        done = []
        bench = types.SimpleNamespace(draw=random.Random(seed), is_few=False, sleep_s=8, patience=1)
        job = types.SimpleNamespace(last_step=lambda: 7, ctl=lambda *words: done.append(words) or types.SimpleNamespace(returncode=code))
        script = Script(bench, job, 8, "nowhere")
        script.members, script.victim = {3: Node()}, None
        before = os.kill, time.sleep
        os.kill, time.sleep = (lambda pid, number: done.append(number)), (lambda seconds: done.append(f"{seconds < 0.1}"))
        try:
            return done, script.drain(), script.touched
        finally:
            os.kill, time.sleep = before

    def test_are_asked_for_by_ctl_by_a_signal_or_by_both_within_100_ms(self):
        asked, told_to, both = [("drain", "3")], [signal.SIGTERM], [("drain", "3"), "True", signal.SIGTERM]
        ways = collections.Counter()
        for seed in range(400):
            done, event, touched = self.drain(seed)
            self.assertIn(done, (asked, told_to, both))
            self.assertIn("drain 3 by ", event.text)
            self.assertEqual(touched, {3})
            ways[len(done), signal.SIGTERM in done] += 1
        self.assertAlmostEqual(ways[1, True] / 400, 0.5, delta=0.1)  # As many hear of it by a signal alone as ever.
        self.assertAlmostEqual(ways[1, False] / 400, 0.25, delta=0.1)
        self.assertAlmostEqual(ways[3, True] / 400, 0.25, delta=0.1)

    def test_who_is_refused_gets_no_signal(self):
        for seed in range(40):
            done, event, touched = self.drain(seed, 1)
            if done != [signal.SIGTERM]:
                self.assertEqual((done, event, touched), ([("drain", "3")], None, set()))


class Layouts(unittest.TestCase):
    """reconfiguration.check_layout: all nodes that are left work, and each layer of the llm is on as many as the job promises."""

    def plan(self, *stages, standbys=()):
        """`stages`: a node and the llm's layers that it has; `standbys`: a node, a layer, and whether that is tied."""
        return {"devices": [{"node": node} for node in range(4)],
                "stages": [{"devices": [node], "runs": [{"module": "llm", "layers": [first, end]}]} for node, first, end in stages],
                "standbys": [{"device": node, "module": "llm", "layer": layer, "tied": tied} for node, layer, tied in standbys]}

    def expect_fault(self, words, plan, left, tolerance=1):
        with self.assertRaisesRegex(Exception, words):
            reconfiguration.check_layout(plan, left, tolerance)

    def test_copies_are_counted_by_nodes(self):
        plan = self.plan((0, 0, 11), (1, 0, 6), (2, 6, 11))
        self.assertEqual(reconfiguration.check_layout(plan, {0, 1, 2}, 1), 2)
        self.expect_fault("layers on 2 nodes alone", plan, {0, 1, 2}, 2)
        self.expect_fault("layers on 1 nodes alone", self.plan((0, 0, 11), (0, 0, 11), (1, 0, 6)), {0, 1})

    def test_a_node_without_work_is_a_fault(self):
        self.expect_fault("nodes with work", self.plan((0, 0, 11), (1, 0, 11)), {0, 1, 2})

    def test_who_stands_by_holds_a_copy_and_does_not_work(self):
        half = [(0, 0, 11), (1, 0, 6)]
        standbys = [(1, layer, False) for layer in range(6, 11)]
        self.assertEqual(reconfiguration.check_layout(self.plan(*half, standbys=standbys), {0, 1}, 1), 2)
        self.expect_fault("layers on 1 nodes alone", self.plan(*half, standbys=standbys[1:]), {0, 1})
        self.expect_fault("layers on 1 nodes alone", self.plan(*half, standbys=[*standbys[1:], (1, 6, True)]), {0, 1})
        self.expect_fault("nodes with work", self.plan(*half, standbys=[(2, layer, False) for layer in range(6, 11)]), {0, 1, 2})

    def test_a_layer_that_nobody_has_is_a_fault(self):
        self.expect_fault("layers: ", self.plan((0, 0, 10), (1, 0, 10)), {0, 1})


class Windows(unittest.TestCase):
    """Oracle.watch, in a job that saves every ten steps and is disturbed every few."""

    def test_each_event_lies_in_one(self):
        oracle = Oracle("troupe", pathlib.Path("nowhere"), [], pathlib.Path("nowhere"), 1)
        draw, step, events = random.Random(1), 10, []
        oracle._saved = lambda: list(range(10, step + 1, 10))
        while step < 1000:
            step += draw.randint(0, 9)
            oracle.watch(step)
            events.append(step)
            step += 2
            oracle.look()
        for event in events[:-1]:
            self.assertTrue(any(begin <= event < (end or step) for begin, end in oracle.windows), f"{event}: {oracle.windows}")


class Memory(unittest.TestCase):
    """Script.check_memory, of a node that was looked at behind each of 160 events."""

    def check(self, looks, nodes=lambda i: 8):
        script = Script(types.SimpleNamespace(draw=None, is_few=False), None, 8, "nowhere")
        script.fewest = [min(nodes(i) for i in range(look + 1)) for look in range(len(looks))]
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            for mib, descriptors, threads in looks:
                script.memory.append({4711: (mib, descriptors, threads, collections.Counter(pidfd=8, socket=descriptors - 8))})
                script.tell_growth()
            script.check_memory()
        return text.getvalue()

    def test_what_moves_state_now_and_then_is_no_leak(self):
        self.check([(300 + 90 * (i % 4 == 0), 60 + 90 * (i % 3 == 0), 12 + 9 * (i % 5 == 0)) for i in range(160)])

    def test_what_grows_with_each_event_is_one(self):
        for what, look in (("MiB", lambda i: (300 + 1.5 * i, 60, 12)), ("descriptors, .* 119 socket", lambda i: (300, 60 + i, 12)),
                           ("threads", lambda i: (300, 60, 12 + i // 6))):
            with self.assertRaisesRegex(Failure, f"process 4711 holds .* {what}"):
                self.check([look(i) for i in range(160)])

    def test_fewer_nodes_than_ever_hold_more_each(self):
        def looks(more):
            return [(300 + 100 * (i > 100) + more(i), 60, 12) for i in range(160)]

        def nodes(i):
            return 2 if i in (100, 101) else 8  # And more again behind it: what they took is kept.

        self.check(looks(lambda i: 0), nodes)
        for more, how_many in ((lambda i: 0, lambda i: 8), (lambda i: 0, lambda i: 2), (lambda i: 0, lambda i: 2 if i == 130 else 8),
                               (lambda i: 1.5 * i, nodes), (lambda i: 3 * max(0, i - 100), nodes)):
            with self.assertRaisesRegex(Failure, "process 4711 holds"):
                self.check(looks(more), how_many)

    def test_few_looks_say_what_they_can(self):
        self.check([(300, 60, 12)] * 5, lambda i: 8 - i)

    def test_more_descriptors_than_all_peers_take_are_kept_of_lost_ones(self):
        for more, is_fine in ((7 * 9, True), (7 * 9 + 1, False)):
            looks = [(300, 10 if i < 120 else 11 + more, 12) for i in range(160)]
            with contextlib.nullcontext() if is_fine else self.assertRaisesRegex(Failure, f"{more + 1} socket"):
                self.check(looks)

    def test_it_tells_behind_which_event_descriptors_came(self):
        said = self.check([(300, 60 + 17 * (i > 50) + 20 * (i > 100), 12) for i in range(160)])
        self.assertEqual([line for line in said.splitlines() if "at most before" in line],
                         ["  process 4711: 97 descriptors, 60 at most before; more: 37 socket"])

    def test_each_kind_of_descriptor_has_a_name(self):
        states = {"17": "established"}
        for target, kind in (("socket:[17]", "TCP established"), ("socket:[18]", "socket"), ("anon_inode:[eventpoll]", "eventpoll"),
                             ("pipe:[3]", "pipe"), ("/dev/shm/ucx_shm_posix_1f", "/dev/shm"), ("/tmp/a/node-3.log", "/tmp/a")):
            self.assertEqual(chaos_job.kind_of_descriptor(target, states), kind)

    def test_all_descriptors_of_a_process_are_counted(self):
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
            kinds = chaos_job.held_by(os.getpid())[3]
        self.assertEqual((kinds["TCP listening"], kinds["TCP established"]), (1, 1))


class HeadMemory(unittest.TestCase):
    """Script.check_heads, of heads that were looked at behind each event, of five steps each; a look: MiB, descriptors, threads."""

    def check(self, *heads):
        script = Script(types.SimpleNamespace(draw=None, is_few=False), None, 8, "nowhere")
        text, step = io.StringIO(), 0
        with contextlib.redirect_stdout(text):
            for number, looks in enumerate(heads):
                for mib, descriptors, threads in looks:
                    step += 5
                    kinds = collections.Counter(pidfd=8, socket=descriptors - 8)
                    script.heads.setdefault(71 + number, []).append((mib, descriptors, threads, kinds, step))
                    script.memory.append({})
                    script.tell_growth()
            return script.check_heads(), text.getvalue()

    def test_one_that_nodes_leave_and_join_is_flat(self):
        told, said = self.check([(150 + 9 * (i % 4 == 0), 90 + 40 * (i % 3 == 0), 40 + 6 * (i % 5 == 0)) for i in range(40)])
        self.assertEqual(told, {"mib": [150, 150], "steps": 98, "kib_per_step": 0.0, "of": 1})
        self.assertIn("  head 71, 40 looks: ", said)
        self.assertIn("; +0.0 KiB a step in 98 steps\n", said)

    def test_one_that_grows_with_each_event_is_not(self):
        for what, look in (("MiB", lambda i: (150 + 8 * i, 90, 40)), ("descriptors, .*; more descriptors at the end: 1.. socket", lambda i: (150, 90 + 9 * i, 40)),
                           ("threads", lambda i: (150, 90, 40 + 2 * i))):
            with self.assertRaisesRegex(Failure, f"^head 71 holds .* {what}"):
                self.check([look(i) for i in range(24)])

    def test_one_that_has_not_lived_through_many_is_not_judged(self):
        self.assertEqual(self.check([(150 + 90 * i, 90, 40) for i in range(11)])[0], {})
        with self.assertRaises(Failure):
            self.check([(150 + 90 * i, 90, 40) for i in range(12)])

    def test_it_tells_what_one_came_to_hold_a_step(self):
        # By hand: 0.3 MiB an event of five steps are 61.4 KiB a step.
        told, said = self.check([(150 + 0.3 * i, 90, 40) for i in range(24)])
        self.assertAlmostEqual(told["kib_per_step"], 61.4, delta=0.1)
        self.assertIn(f"{told['kib_per_step']:+} KiB a step in {told['steps']} steps", said)

    def test_each_counts_for_itself_where_there_are_few_looks(self):
        self.check(*([(150 + 60 * head, 90, 40)] * 8 for head in range(4)))
        with self.assertRaisesRegex(Failure, "^head 73 holds"):
            self.check([(150, 90, 40)] * 3, [(90, 90, 40)] * 12, [(150 + 9 * i, 90, 40) for i in range(20)])

    def test_one_after_the_other_grows_with_the_run_where_each_is_flat(self):
        self.check(*([(150 + 2 * head, 90, 40)] * 6 for head in range(20)))
        with self.assertRaisesRegex(Failure, "^one head after the other holds .* MiB"):
            self.check(*([(150 + 9 * head, 90, 40)] * 6 for head in range(20)))

    def test_descriptors_of_all_nodes_may_come_to_it(self):
        for more, is_fine in ((8 * 10, True), (8 * 10 + 1, False)):
            looks = [(150, 10 if i < 16 else 11 + more, 40) for i in range(24)]
            with contextlib.nullcontext() if is_fine else self.assertRaisesRegex(Failure, "head 71 holds .* descriptors"):
                self.check(looks)

    def test_it_tells_behind_which_event_descriptors_came(self):
        _, said = self.check([(150, 90 + 17 * (i > 5) + 20 * (i > 9), 40) for i in range(12)], [(150, 130, 40)] * 2)
        self.assertEqual([line for line in said.splitlines() if "at most before" in line], ["  head 71: 127 descriptors, 90 at most before; more: 37 socket"])

    def test_a_look_around_looks_at_the_head(self):
        script = Script(types.SimpleNamespace(draw=None, is_few=False), None, 8, "nowhere")
        script._members = lambda: {}
        head = types.SimpleNamespace(pid=os.getpid())
        script.job = types.SimpleNamespace(history=[], nodes=[], head=head, last_step=lambda: 17, expect_ended=lambda: None)
        script.look_around()
        (look,) = script.heads[os.getpid()]
        self.assertGreater(look[0], 1)
        self.assertEqual(look[4], 17)


class Rounding(unittest.TestCase):
    """A window whose job is `off` from the reference. `apart`: what two undisturbed runs differ by; `beside`: what each of them
    differs from the reference by."""

    def check(self, off, apart, beside, windows=1):
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
            oracle = Oracle("troupe", pathlib.Path(name), [], pathlib.Path(name) / "run", 1)
            oracle.windows = [[20 * i, 20 * i + 20] for i in range(windows)]
            oracle._saved = lambda: [20 * i for i in range(windows + 1)]
            self.layouts = []

            def start(run, step, end, words=("--reference",)):
                if words != ("--reference",):
                    self.layouts.append(words)
                (oracle.folder / run).mkdir()
                return oracle.folder / run, step, end

            def difference(one, other):
                kinds = sorted(path.name.partition("-")[0] for path in (one, other))
                off_here = off[int(one.name.split("-")[1]) // 20] if kinds == ["reference", "trained"] else None
                return {("reference", "trained"): off_here, ("undisturbed", "undisturbed"): apart}.get(tuple(kinds), beside)

            oracle._start_from, oracle._finish_from = start, lambda run, *_: run
            oracle._difference = difference
            oracle._losses = lambda run: {step: 1.0 for step in range(1, 20 * windows + 1)} if run == oracle.run else (
                {step: 1.0 for step in range(int(run.name.split("-")[1]) + 1, int(run.name.split("-")[2]) + 1)})
            oracle._popen = None  # Nothing is started.
            try:
                return oracle.check_windows(["one", "other"])
            finally:
                shutil.rmtree(oracle.folder, ignore_errors=True)
                oracle.folder.mkdir()

    def test_a_window_within_the_bound_asks_nobody(self):
        self.assertEqual(self.check([FP64_RTOL / 2], 1, 1), (1, 0, [FP64_RTOL / 2, 0.0]))
        self.assertEqual(self.layouts, [])

    def test_ten_times_what_two_undisturbed_runs_differ_by_is_rounding(self):
        self.assertEqual(self.check([9e-9], 1e-9, 0)[:2], (1, 1))
        self.assertEqual(self.layouts, ["one", "other"])
        with self.assertRaisesRegex(Failure, "two undisturbed"):
            self.check([11e-9], 1e-9, 0)

    def test_how_far_one_undisturbed_run_is_from_the_reference_excuses_nothing(self):
        with self.assertRaisesRegex(Failure, "two undisturbed"):
            self.check([1e-8], 1e-11, 1e-6)

    def test_rounding_is_no_excuse_for_many_windows(self):
        self.assertEqual(self.check([0] * 8 + [5e-10] * 2, 1e-9, 0, 10)[:2], (10, 2))
        with self.assertRaisesRegex(Failure, "3 of 10 windows"):
            self.check([0] * 7 + [5e-10] * 3, 1e-9, 0, 10)


if __name__ == "__main__":
    unittest.main()
