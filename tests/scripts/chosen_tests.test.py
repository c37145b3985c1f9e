#!/usr/bin/python3
"""Which tests scripts/test runs: what it asks of ctest, by a stand-in for the build and for ctest."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Each leaves a line with its words; ctest also one result, by which the script ends well.
BUILD = '#!/bin/sh\necho "build $*" >> "$ASKED"\nmkdir -p "build/$1"\n'
CTEST = ('#!/bin/sh\necho "ctest $*" >> "$ASKED"\n'
         'echo "<testsuite><testcase name=\'one\' status=\'run\'/></testsuite>" > "$2/results.xml"\n')


class ChosenTests(unittest.TestCase):
    def asked(self, *words):
        """(exit code, lines asked for, what was said)."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "scripts").mkdir()
            shutil.copy(ROOT / "scripts" / "test", folder / "scripts" / "test")
            shutil.copytree(ROOT / "scripts" / "lib", folder / "scripts" / "lib")
            for path, text in ((folder / "scripts" / "build", BUILD), (folder / "ctest", CTEST)):
                path.write_text(text, encoding="utf-8")
                path.chmod(0o755)
            lines = folder / "asked"
            run = subprocess.run([str(folder / "scripts" / "test"), *words], capture_output=True, text=True, check=False,
                                 env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "ASKED": str(lines)})
            return run.returncode, lines.read_text(encoding="utf-8").splitlines() if lines.exists() else [], run.stdout + run.stderr

    def test_chaos_alone_runs_what_is_labelled_so_and_state_under_the_sanitizer(self):
        code, lines, said = self.asked("--chaos")
        self.assertEqual(code, 0, said)
        self.assertEqual([line.split()[:2] for line in lines], [["build", "release"], ["ctest", "--test-dir"], ["build", "asan"], ["ctest", "--test-dir"]])
        self.assertIn("-C chaos -L ^chaos$", lines[1])
        self.assertIn("-L ^chaos_asan$", lines[3])
        self.assertNotIn("-R", lines[1])

    def test_chaos_of_a_name_runs_that_one_of_them(self):
        for order in (("--chaos", "-R", "chaos_2"), ("-R", "chaos_2", "--chaos")):
            code, lines, said = self.asked(*order)
            self.assertEqual(code, 0, said)
            self.assertEqual(len(lines), 2, lines)  # Nothing is built for a test that was not asked for.
            self.assertTrue(lines[1].endswith("-C chaos -L ^chaos$ -R chaos_2"), lines[1])

    def test_chaos_of_the_state_has_its_sanitizer(self):
        _, lines, _ = self.asked("--chaos", "-R", "^st")
        self.assertTrue(lines[-1].endswith("-L ^chaos_asan$ -R ^st"), lines)

    def test_mutants_refuse_a_regular_expression(self):
        code, lines, said = self.asked("--mutants", "-R", "engine")
        self.assertEqual((code, lines), (1, []))
        self.assertIn("fix: tests/mutants/mutants.py NAME", said)

    def test_what_chaos_ran_before_has_its_label(self):
        """The label is the list: whoever loses it is run by nobody."""
        text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("CMakeLists.txt"))
        for name in ("strangers", "recovery", "reconfiguration", "chaos_${seed}", "checkpoints"):
            self.assertRegex(text, rf'set_tests_properties\({re.escape(name)} PROPERTIES [^)]*LABELS "script;chaos"')
        for name, label in (("actors", "chaos"), ("nccl", "chaos"), ("state", "chaos_asan")):
            self.assertRegex(text, rf"troupe_test\({name}\n[^)]*\bLABELS {label}\n")


if __name__ == "__main__":
    unittest.main()
