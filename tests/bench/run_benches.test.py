#!/usr/bin/python3
"""Tests of run_benches.py: with files made here, not with real benches."""

import importlib.util
import io
import contextlib
import pathlib
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("run_benches", FOLDER / "run_benches.py")
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)


class RunBenches(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def script(self, name, text):
        (self.folder / name).write_text(text)

    def run_all(self):
        with contextlib.redirect_stderr(io.StringIO()):
            return bench.run_all(bench.find_benches(self.folder), self.folder)

    def test_files_are_grouped_by_name_and_role(self):
        for name in ("a_bench.cpp", "a_peer.py", "b_bench.sh", "README.md", "run_benches.py", "c_bench.txt"):
            self.script(name, "")
        found = bench.find_benches(self.folder)
        self.assertEqual(sorted(found), ["a", "b"])
        self.assertEqual([p.name for p in found["a"]["peer"]], ["a_peer.py"])

    def test_a_peers_value_is_the_bound_of_the_same_measure_and_size(self):
        self.script("x_bench.sh", """echo noise
echo '{"measure":"speed","value":30,"unit":"GB/s","size":"1 MiB"}'
echo '{"measure":"speed","value":5,"unit":"GB/s","size":"64 KiB"}'
echo '{"measure":"delay","value":4,"unit":"us","better":"lower"}'
echo '{"measure":"own","value":9,"bound":3}'""")
        self.script("x_peer.sh", """echo '{"measure":"speed","value":60,"size":"1 MiB"}'
echo '{"measure":"delay","value":2}'
echo '{"measure":"other","value":1}'""")
        rows, problems = self.run_all()
        self.assertEqual(problems, [])
        self.assertEqual([row.get("ratio") for row in rows], [0.5, None, 0.5, 3, None])
        self.assertEqual(rows[0]["bound"], 60)
        self.assertTrue(rows[0]["command"].endswith("x_bench.sh"))
        self.assertEqual(rows[4]["measure"], "other (peer)")

    def test_a_benchs_own_words_are_printed(self):
        self.script("x_bench.sh", """echo '| a table | of its own |'; echo '{"measure":"speed","value":30}'""")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.run_all()
        self.assertEqual(said.getvalue(), "| a table | of its own |\n")

    def test_what_goes_wrong_is_told_and_does_not_stop_the_others(self):
        self.script("a_bench.sh", "echo '{\"measure\":\"a\",\"value\":1}'; exit 3")
        self.script("b_bench.sh", "echo '{broken'")
        self.script("c_bench.sh", "echo '{\"measure\":\"c\",\"value\":\"x\"}'")
        self.script("d_bench.sh", "exit 77")
        self.script("e_bench.cpp", "")
        self.script("f_bench.sh", "echo '{\"measure\":\"f\",\"value\":2}'")
        rows, problems = self.run_all()
        self.assertEqual([row["measure"] for row in rows], ["a", "f"])
        self.assertEqual(len(problems), 4)
        self.assertIn("a_bench.sh: exit code 3", problems[0])
        self.assertIn("not valid JSON", problems[1])
        self.assertIn("no number `value`", problems[2])

    def test_the_table_has_the_columns_of_the_interface(self):
        row = {"measure": "m", "value": 1234567.0, "unit": "1/s", "bound": 2, "ratio": 0.125, "command": "x"}
        lines = bench.table([row, dict(row, goal="MISSED")]).splitlines()
        self.assertEqual(lines[0].split(), ["measure", "value", "bound", "ratio", "goal", "command"])
        self.assertEqual(lines[1].split(), ["m", "1,234,567", "1/s", "2", "0.125", "x"])
        self.assertEqual(lines[2].split(), ["m", "1,234,567", "1/s", "2", "0.125", "MISSED", "x"])

    def test_a_program_that_a_bench_runs_is_built_with_it_once(self):
        for name in ("recovery_bench.py", "transport_bench.cpp", "x_bench.cpp"):
            self.script(name, "")
        found = bench.find_benches(self.folder)
        self.assertEqual(bench.targets(bench.select(found, ["recovery"])), ["bench_transport"])
        self.assertEqual(sorted(bench.targets(found)), ["bench_transport", "bench_x"])

    def test_an_unknown_name_ends_with_code_2(self):
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
            bench.select({"a": {}}, ["b"])
        self.assertEqual(ended.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
