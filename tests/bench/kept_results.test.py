#!/usr/bin/python3
"""Tests of kept_results.py: with figures made here, and a program that only says its version."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import kept_results
import run_benches

FASTER = {"measure": "phases", "value": 150, "unit": "ms", "size": "10 MB", "better": "lower", "bound": 300, "goal": "met"}
SLOWER = {**FASTER, "measure": "join", "value": 600, "goal": "MISSED"}
PLAIN = {"measure": "usual step", "value": 2.5, "unit": "s"}
WORDS = [str(run_benches.FOLDER / "x_bench.py"), "--sizes", "10 MB", "--record", "kept.jsonl", "--losses", "3"]


class KeptResults(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.kept = pathlib.Path(scratch.name) / "kept.jsonl"
        self.binary = pathlib.Path(scratch.name) / "troupe"
        self.binary.write_text("#!/bin/sh\necho 'troupe 0.1.0 (abc123)'\n")
        self.binary.chmod(0o755)

    def run_one(self, *rows, passed=True, ends_with=None):
        """What a run of these figures keeps, and what it prints."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()), \
                contextlib.suppress(SystemExit, ValueError), \
                kept_results.recorded(self.kept, "abc123", WORDS) as run:
            for row in rows:
                kept_results.emit(row)
            if ends_with is not None:
                raise ends_with
            run["passed"] = passed
        lines = self.kept.read_text(encoding="utf-8").splitlines()
        return json.loads(lines[-1]), [json.loads(line) for line in printed.getvalue().splitlines()]

    def test_a_line_has_what_the_run_stands_on_and_its_figures_with_ratios(self):
        line, printed = self.run_one(FASTER, PLAIN)
        self.assertEqual(printed, [FASTER, PLAIN])
        self.assertEqual(list(line), ["date", "commit", "command", "cores", "load", "passed", "figures"])
        self.assertEqual(line["commit"], "abc123")
        self.assertEqual(line["command"], "python3 tests/bench/x_bench.py --sizes '10 MB' --losses 3")
        self.assertEqual(line["cores"], len(os.sched_getaffinity(0)))
        self.assertIsInstance(line["load"], float)
        self.assertTrue(line["passed"])
        self.assertEqual(line["figures"], [{**FASTER, "ratio": 2}, PLAIN])  # 300 / 150, the less the better.

    def test_runs_are_appended_each_with_its_own_figures(self):
        self.run_one(FASTER)
        line, _ = self.run_one(PLAIN)
        self.assertEqual(line["figures"], [PLAIN])
        self.assertEqual(len(self.kept.read_text(encoding="utf-8").splitlines()), 2)

    def test_a_missed_goal_is_not_passed(self):
        self.assertFalse(self.run_one(FASTER, SLOWER)[0]["passed"])
        self.assertFalse(self.run_one(FASTER, passed=False)[0]["passed"])
        self.assertFalse(self.run_one()[0]["passed"])  # Nothing was measured.

    def test_a_run_that_ends_early_keeps_what_it_had_and_why(self):
        for ending in (SystemExit("a node did not come"), ValueError("a node did not come")):
            line, _ = self.run_one(FASTER, ends_with=ending)
            self.assertFalse(line["passed"])
            self.assertEqual(line["error"], "a node did not come")
            self.assertEqual(line["figures"], [{**FASTER, "ratio": 2}])

    def test_a_file_that_cannot_be_written_is_told_before_the_run(self):
        with self.assertRaises(FileNotFoundError), kept_results.recorded(self.kept.parent / "none" / "kept.jsonl", "abc123", WORDS):
            self.fail("it ran")

    def test_a_line_names_no_place_of_this_machine(self):
        words = [*WORDS, "--folder", str(self.binary.parent), "--record=kept.jsonl"]
        with contextlib.suppress(ValueError), contextlib.redirect_stderr(io.StringIO()), kept_results.recorded(self.kept, "abc123", words):
            raise ValueError(f"{self.binary} is not there")
        line = json.loads(self.kept.read_text(encoding="utf-8"))
        self.assertEqual(line["command"], "python3 tests/bench/x_bench.py --sizes '10 MB' --losses 3 --folder PATH")
        self.assertEqual(line["error"], "PATH is not there")

    def test_without_a_file_nothing_is_kept(self):
        with contextlib.redirect_stderr(io.StringIO()) as said, kept_results.recorded(None, "abc123", WORDS):
            pass
        self.assertFalse(self.kept.exists())
        self.assertIn("commit abc123, ", said.getvalue())

    def test_a_program_says_its_commit_and_none_has_none(self):
        self.assertEqual(kept_results.commit_of(self.binary), "abc123")
        self.assertIsNone(kept_results.commit_of(self.binary.with_name("none")))

    def test_a_table_has_a_row_per_measure(self):
        line, _ = self.run_one(SLOWER, PLAIN)
        rows = kept_results.table([line, {**line, "figures": {"steps": 3}}]).splitlines()
        self.assertEqual(len(rows), 4)
        cells = [cell.strip() for cell in rows[2].strip("|").split("|")]
        self.assertEqual(cells[1:8], ["abc123", "join", "10 MB", "600 ms", "300", "0.5", "MISSED"])
        self.assertIn("| usual step |  | 2.5 s |  |  |  |", rows[3])


if __name__ == "__main__":
    unittest.main()
