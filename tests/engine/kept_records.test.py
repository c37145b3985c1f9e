#!/usr/bin/python3
"""What kept_records.py writes of a case that ends in whatever way, and its table. No job is run."""

import collections
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / name) for name in ("engine", "actors", "support"))]

import chaos  # noqa: E402
import kept_records  # noqa: E402
import reconfiguration  # noqa: E402
import recovery  # noqa: E402
from chaos_script import Script  # noqa: E402
from run_cases import Failure, Skipped, run_cases  # noqa: E402
from tests.support import kept_lines  # noqa: E402


class ALine(unittest.TestCase):
    def setUp(self):
        self.before = {name: os.environ.pop(name, None) for name in kept_records.ORDERS}
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.binary, self.file = self.root / "troupe", self.root / "lines.jsonl"
        self.binary.write_text("#!/bin/sh\necho 'troupe 1 (abc123)'\n", encoding="utf-8")
        self.binary.chmod(0o755)

    def tearDown(self):
        self.folder.cleanup()
        for name, value in self.before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    def keeper(self, *words, path=True):
        return kept_records.Keeper(self.file if path else None, [str(ROOT / "tests" / "engine" / "chaos.py"), str(self.binary), *words], self.binary)

    def kept(self):
        return kept_lines.read(self.file)

    def test_says_when_what_where_and_what_came_of_it(self):
        self.keeper("--seed", "3", "eight").keep("eight_nodes", lambda numbers: numbers.update(events=200))
        self.keeper().keep("six_nodes", lambda numbers: None)
        first, second = self.kept()
        self.assertRegex(first["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")
        self.assertEqual((first["commit"], first["cores"], first["case"]), ("abc123", len(os.sched_getaffinity(0)), "eight_nodes"))
        self.assertEqual(first["command"], "python3 tests/engine/chaos.py BINARY --seed 3 eight")
        self.assertEqual((first["passed"], first["numbers"], first["seconds"]), (True, {"events": 200}, 0))
        self.assertGreaterEqual(first["load"], 0)
        self.assertFalse({"result", "error"} & set(first))
        self.assertEqual(second["case"], "six_nodes")

    def test_shows_what_the_environment_orders(self):
        os.environ["TROUPE_CHAOS_EVENTS"] = "200"
        self.keeper("--seed", "2").keep("a_case", lambda numbers: None)
        self.assertEqual(self.kept()[0]["command"], "TROUPE_CHAOS_EVENTS=200 python3 tests/engine/chaos.py BINARY --seed 2")

    def test_comes_of_every_end_which_goes_on(self):
        def end(numbers, how):
            numbers["events"] = 7
            raise how

        for how, result, error in ((Failure("not over\nat all"), "failed", "not over"), (Skipped("no hosts"), "skipped", "no hosts"),
                                 (ValueError(), "failed", "ValueError"), (SystemExit(143), "ended", "143"),
                                 (KeyboardInterrupt(), "ended", "KeyboardInterrupt")):
            with self.assertRaises(type(how)):
                self.keeper().keep("a_case", lambda numbers, how=how: end(numbers, how))
            line = self.kept()[-1]
            self.assertEqual((line["passed"], line["result"], line["error"], line["numbers"]), (False, result, error, {"events": 7}))

    def test_names_no_place_of_this_machine(self):
        def fail(_):
            raise Failure(f"{self.root}/run/metrics.jsonl is not there, nor what/ever or 1/2")

        with self.assertRaises(Failure):
            self.keeper("--keep", str(self.root / "kept"), "--record", str(self.file), "--patience", "2").keep("a_case", fail)
        line = self.kept()[0]
        self.assertEqual(line["command"], "python3 tests/engine/chaos.py BINARY --keep PATH --patience 2")
        self.assertEqual(line["error"], "PATH is not there, nor what/ever or 1/2")
        self.assertNotIn(str(self.root), self.file.read_text(encoding="utf-8"))

    def test_is_not_written_unless_it_is_asked_for(self):
        seen = []
        self.keeper(path=False).keep("a_case", lambda numbers: seen.append(numbers))
        self.assertEqual((seen, self.file.exists()), ([{}], False))

    def test_that_cannot_be_written_is_told_before_the_case_runs(self):
        self.file = self.root / "nowhere" / "lines.jsonl"
        seen = []
        with self.assertRaisesRegex(FileNotFoundError, "nowhere"):
            self.keeper().keep("a_case", lambda numbers: seen.append(numbers))
        self.assertEqual(seen, [])

    def test_of_the_file_beside_the_table_is_in_it_at_once(self):
        def fail(_):
            raise Failure("not over")

        table = self.root / "TABLE.md"
        with mock.patch.multiple(kept_records, LINES=self.file.resolve(), TABLE=table):
            self.file.write_text('{"case": \n', encoding="utf-8")
            with self.assertRaisesRegex(SystemExit, "lines.jsonl, line 1: no JSON"):  # Before a case runs.
                self.keeper()
            self.file.write_text("", encoding="utf-8")
            with self.assertRaises(Failure):
                self.keeper().keep("a_case", fail)
        self.assertEqual(table.read_text(encoding="utf-8"), kept_records.table_of(self.kept()))
        self.assertIn("| a case | failed | 0 s |", table.read_text(encoding="utf-8"))

    def test_of_a_shared_bench_has_the_numbers_of_its_own_case(self):
        bench = types.SimpleNamespace()

        def one(bench):
            bench.numbers["lost"] = [2]

        def other(bench):
            bench.numbers["copies"] = 2

        keeper = self.keeper()
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(run_cases([one, other], lambda case: keeper.keep_case(bench, case)), 0)
        self.assertEqual([(line["case"], line["numbers"]) for line in self.kept()], [("one", {"lost": [2]}), ("other", {"copies": 2})])

    def test_that_is_none_is_told_with_its_number(self):
        self.file.write_text('{"case": "a"}\n{"case": \n', encoding="utf-8")
        with self.assertRaisesRegex(SystemExit, "lines.jsonl, line 2: no JSON"):
            self.kept()


class Scripts(unittest.TestCase):
    def test_take_a_file_from_the_command_line_or_the_environment(self):
        before = os.environ.pop(kept_records.ENVIRONMENT, None)
        try:
            for script in (chaos, reconfiguration, recovery):
                self.assertIsNone(script.read_arguments(["troupe"]).record)
                self.assertEqual(script.read_arguments(["troupe", "--record", "a"]).record, pathlib.Path("a"))
                os.environ[kept_records.ENVIRONMENT] = "b"
                self.assertEqual(script.read_arguments(["troupe"]).record, pathlib.Path("b"))
                os.environ[kept_records.ENVIRONMENT] = ""
                self.assertIsNone(script.read_arguments(["troupe"]).record)
                del os.environ[kept_records.ENVIRONMENT]
        finally:
            if before is not None:
                os.environ[kept_records.ENVIRONMENT] = before

    def test_of_chaos_keep_what_they_print(self):
        class Oracle:
            def check_samples(self, steps):
                pass

            def check_windows(self, layouts):
                return 31, 0, [1.3e-15, 2e-16]

            def check_whole(self, steps, layouts):
                return 1e-14, 7.8e-15

        script = Script(types.SimpleNamespace(draw=None, is_few=False), None, 8, "nowhere")
        script.took = {"kill": [1.04, 3.06], "head": [9.2]}
        bench = types.SimpleNamespace(numbers={"seed": 3})
        with contextlib.redirect_stdout(io.StringIO()) as said:
            chaos.Bench.judge(bench, Oracle(), 1099, script)
        self.assertEqual(bench.numbers, {"seed": 3, "steps": 1099, "windows": 31, "by_rounding": 0, "worst_parameters": 1.3e-15, "worst_losses": 2e-16,
                                         "off": 1e-14, "apart": 7.8e-15})
        self.assertEqual(script.slowest(), {"head": {"s": 9.2, "of": 1}, "kill": {"s": 3.1, "of": 2}})
        self.assertIn("slowest: head 9.2 s of 1, kill 3.1 s of 2", said.getvalue())

    def test_of_chaos_say_which_samples(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(chaos, "DATA", pathlib.Path(folder) / "real-mini"):
            self.assertEqual(chaos.samples_name(), "made samples")
            chaos.DATA.mkdir()
            self.assertEqual(chaos.samples_name(), "real-mini")

    def test_of_chaos_keep_what_nodes_held(self):
        # By hand: of eight looks the second quarter begins with the third one.
        script = Script(types.SimpleNamespace(draw=None, is_few=False), None, 8, "nowhere")
        kinds = collections.Counter(socket=60)
        script.memory = [{1: (300 + look, 60, 12, kinds), 2: (280.4, 60, 12, kinds)} for look in range(8)]
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(script.check_memory(), [[302, 307], [280, 280]])

    def test_of_chaos_keep_what_the_head_of_most_steps_held(self):
        # By hand: of twelve looks, four steps apart, the second quarter is 3 to 6 and the last one 9 to 11: 4.5 and 10 in the middle, 22 steps
        # and 5.5 MiB from each other. The other head was looked at over fewer steps.
        script = Script(types.SimpleNamespace(draw=None, is_few=False), None, 8, "nowhere")
        kinds = collections.Counter(socket=60)
        script.heads = {1: [(100 + look, 60, 12, kinds, 100 + 4 * look) for look in range(12)],
                        2: [(200, 60, 12, kinds, 200 + 3 * look) for look in range(12)]}
        with contextlib.redirect_stdout(io.StringIO()):
            head = script.check_heads()
        self.assertEqual(head, {"mib": [104, 110], "steps": 22, "kib_per_step": 256.0, "of": 2})
        self.assertEqual(kept_records.in_words("head", {**head, "steps": 1022}), "head 104 to 110 MiB in 1,022 steps, +256.0 KiB a step, of 2 heads")
        self.assertEqual(kept_records.in_words("head", {}), "")

    def test_of_losses_keep_the_longest_of_each_phase(self):
        events = [{key: 0.4 for key in recovery.PHASES} | {"copy_ms": 25.6}, {key: 0 for key in recovery.PHASES} | {"replay_ms": 310.0}]
        self.assertEqual(recovery.slowest_phases(types.SimpleNamespace(events=lambda: events)), {"copy": 26, "replay": 310})
        self.assertEqual(recovery.slowest_phases(types.SimpleNamespace(events=list)), {})


class TheTable(unittest.TestCase):
    LINE = {"date": "2026-11-29T10:00:59+00:00", "commit": "04ea3077aabbccdd", "command": "python3 tests/engine/chaos.py BINARY", "cores": 2,
            "case": "eight_nodes", "load": 0.31, "passed": False, "result": "failed", "error": "not | over", "seconds": 2640,
            "numbers": {"seed": 3, "samples": "real-mini", "events": 200, "steps": 1099, "slowest": {"head": {"s": 9.2, "of": 29}}, "memory_mib": [[309, 335]],
                        "windows": 31, "by_rounding": 0, "worst_parameters": 1.3e-15, "worst_losses": 2e-16, "off": 1e-14, "apart": 7.8e-15}}

    def test_has_a_row_for_a_line(self):
        self.assertEqual(kept_records.row_of(self.LINE),
                         "| 2026-11-29 10:00 | 04ea3077 | `python3 tests/engine/chaos.py BINARY` | eight nodes | failed | 44 min | 2 cores, load 0.31 | "
                         "seed 3; real-mini; 200 events; 1,099 steps; slowest: head 9.2 s of 29; memory 309 to 335 MiB; 31 windows; "
                         "0 of them as far as rounding goes; parameters within 1.3e-15; losses within 2e-16; off by 1e-14 at the end; "
                         "undisturbed runs by 7.8e-15; not \\| over |")

    def test_shows_what_has_no_words_yet(self):
        row = kept_records.row_of({**self.LINE, "numbers": {"new": 5, "slowest_ms": {"copy": 26}}, "seconds": 119})
        self.assertIn("| 119 s | 2 cores, load 0.31 | new 5; slowest: copy 26 ms; not", row)

    def test_says_what_was_run_before_lines_were_kept(self):
        row = kept_records.row_of({"date": None, "commit": None, "command": "c", "case": "a", "passed": True, "numbers": {}, "seconds": None, "from": "notes", "remark": "r"})
        self.assertEqual(row, "|  |  | `c` | a | passed |  |  | r; *from notes* |")

    def test_is_that_of_the_lines_that_are_kept(self):
        lines = kept_lines.read(kept_records.LINES)
        self.assertEqual(kept_records.TABLE.read_text(encoding="utf-8"), kept_records.table_of(lines), "fix: run tests/engine/kept_records.py")
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(kept_records.main(["--check"]), 0)

    def test_is_of_whole_lines(self):
        for line in kept_lines.read(kept_records.LINES):
            self.assertLessEqual({"date", "commit", "command", "passed", "case", "seconds", "numbers"}, set(line))
            self.assertIn(line.get("result"), (None,) if line["passed"] else ("failed", "skipped", "ended"))
            self.assertNotRegex(json.dumps(line), r"/(tmp|root|home|work)/")
            if line.get("from") != "notes":  # It was appended by a script.
                self.assertTrue(line["date"] and line["commit"] and line["cores"] and "load" in line, line)


if __name__ == "__main__":
    unittest.main()
