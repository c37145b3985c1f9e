#!/usr/bin/python3
"""What the last line of scripts/test says of the results that CTest and Catch2 left."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COUNT = ROOT / "scripts" / "lib" / "count_tests.py"


def case(name, status="run", output="", inside=""):
    return f'<testcase name="{name}" status="{status}">{inside}<system-out>{output}</system-out></testcase>'


class CountTests(unittest.TestCase):
    def count(self, *cases, reports=(), flags=()):
        """(exit code, last line, all lines) for one build."""
        with tempfile.TemporaryDirectory() as folder:
            build = pathlib.Path(folder) / "release"
            (build / "tests").mkdir(parents=True)
            if cases:
                (build / "results.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>", encoding="utf-8")
            for name, text in dict(reports).items():
                (build / "tests" / f"{name}.xml").write_text(text, encoding="utf-8")
            run = subprocess.run([sys.executable, str(COUNT), *flags, str(build)], capture_output=True, text=True,
                                 check=False)
            lines = run.stdout.splitlines()
            return run.returncode, lines[-1], lines

    def test_a_catch2_program_counts_its_cases(self):
        report = ('<Skip filename="gpu.test.cpp" line="3">\n  no GPU &amp; none\n</Skip>'
                  '<OverallResultsCases successes="7" failures="0" expectedFailures="0" skips="1"/>')
        code, last, lines = self.count(case("data"), reports={"data": report})
        self.assertEqual((code, last), (0, "7 passed, 0 failed, 1 skipped"))
        self.assertIn("release: data: skipped: no GPU & none", lines)

    def test_a_program_that_broke_off_counts_what_it_finished_and_a_failure(self):
        report = '<OverallResult success="true"/><OverallResult success="true" skips="1"/><TestCase'
        self.assertEqual(self.count(case("data", "fail"), reports={"data": report})[:2],
                         (1, "1 passed, 1 failed, 1 skipped"))

    def test_a_failure_after_the_last_case_is_a_failure(self):
        report = '<OverallResultsCases successes="7" failures="0" expectedFailures="0" skips="0"/>'
        self.assertEqual(self.count(case("data", "fail"), reports={"data": report})[:2],
                         (1, "7 passed, 1 failed, 0 skipped"))

    def test_a_script_counts_as_many_as_it_says(self):
        output = "passed: one (1 s)\nskipped: two (0 s): no network\n21 passed, 0 failed, 1 skipped\n"
        code, last, lines = self.count(case("runs", output=output))
        self.assertEqual((code, last), (0, "21 passed, 0 failed, 1 skipped"))
        self.assertIn("release: runs: skipped: two (0 s): no network", lines)

    def test_a_script_that_skips_everything_passes_nothing(self):
        output = "skipped: real-mini is not there\n0 passed, 0 failed, 23 skipped\n"
        self.assertEqual(self.count(case("parity", output=output), case("other"))[:2],
                         (0, "1 passed, 0 failed, 23 skipped"))

    def test_a_script_that_failed_counts_a_failure_whatever_it_said(self):
        self.assertEqual(self.count(case("runs", "fail", "3 passed, 0 failed, 0 skipped\n"))[:2],
                         (1, "3 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.count(case("runs", "fail", "killed"))[:2], (1, "0 passed, 1 failed, 0 skipped"))

    def test_a_script_that_is_skipped_and_a_program_that_is_missing(self):
        skipped = case("pages", "notrun", inside='<skipped message="SKIP_RETURN_CODE=77"/>')
        missing = case("data", "notrun", inside='<skipped message="Unable to find executable: not found"/>')
        self.assertEqual(self.count(skipped, missing, case("fine"))[:2], (1, "1 passed, 1 failed, 1 skipped"))

    def test_nothing_run_is_no_success(self):
        self.assertEqual(self.count()[:2], (1, "0 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.count(case("fine"), flags=["--broken-builds", "2"])[:2],
                         (1, "1 passed, 2 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
