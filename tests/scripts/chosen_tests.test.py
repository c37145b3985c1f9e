#!/usr/bin/python3
"""Which tests scripts/test runs: what it asks of ctest, by a stand-in for the build and for ctest."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.support import drawn_cases  # noqa: E402

# Each leaves a line with its words; ctest also one result, by which the script ends well.
BUILD = '#!/bin/sh\necho "build $*" >> "$ASKED"\nmkdir -p "build/$1"\n'
CTEST = ('#!/bin/sh\n[ "$3" != --show-only=json-v1 ] || { cat "$LISTING"; exit; }\necho "ctest $*" >> "$ASKED"\n'
         'echo "<testsuite><testcase name=\'one\' status=\'run\'/></testsuite>" > "$2/results.xml"\n')
# Tests of a build by their labels, as CTest lists them.
LABELS = {**{f"plain_{i}": ["catch2", "all", "plain"] for i in range(6)}, **{f"slow_{i}": ["script", "drawn"] for i in range(7)},
          "engine": ["catch2", "all"], "parity": ["script"]}
LISTING = json.dumps({"tests": [{"name": name, "properties": [{"name": "TIMEOUT", "value": 9.0}, {"name": "LABELS", "value": labels}]}
                                for name, labels in LABELS.items()]})


class ChosenTests(unittest.TestCase):
    def setUp(self):
        self.addCleanup(os.environ.update, {name: os.environ.pop(name) for name in ("TROUPE_THOROUGH",) if name in os.environ})

    def asked(self, *words):
        """(exit code, lines asked for, what was said)."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "scripts").mkdir()
            shutil.copy(ROOT / "scripts" / "test", folder / "scripts" / "test")
            shutil.copytree(ROOT / "scripts" / "lib", folder / "scripts" / "lib")
            (folder / "tests").mkdir()
            shutil.copytree(ROOT / "tests" / "support", folder / "tests" / "support")
            (folder / "listing").write_text(LISTING, encoding="utf-8")
            for path, text in ((folder / "scripts" / "build", BUILD), (folder / "ctest", CTEST)):
                path.write_text(text, encoding="utf-8")
                path.chmod(0o755)
            lines = folder / "asked"
            run = subprocess.run([str(folder / "scripts" / "test"), *words], capture_output=True, text=True, check=False,
                                 env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "ASKED": str(lines),
                                      "LISTING": str(folder / "listing")})
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

    def test_a_commit_runs_a_third_of_what_takes_minutes_and_of_what_is_sanitized(self):
        code, lines, said = self.asked()
        self.assertEqual(code, 0, said)
        self.assertEqual(lines[0], "build release all")
        left = re.search(r" -E \^\(([^)]*)\)\$$", lines[1])[1].split("|")
        self.assertEqual(len(left), 4)
        self.assertTrue(all(name.startswith("slow_") for name in left), left)
        self.assertIn(f"not drawn by this commit: {' '.join(left)}", said)
        chosen = re.search(r" -L \^plain\$ -R \^\(([^)]*)\)\$$", lines[3])[1].split("|")
        self.assertEqual(len(chosen), 2)
        self.assertEqual(lines[2], "build asan " + " ".join(f"test_{name}" for name in chosen))

    def test_what_is_named_is_not_drawn(self):
        _, lines, _ = self.asked("-R", "slow")
        self.assertTrue(lines[1].endswith("--test-output-size-passed 1048576 -R slow"), lines[1])
        self.assertEqual(lines[2], "build asan tests_plain")
        self.assertTrue(lines[3].endswith("-L ^plain$ -R slow"), lines[3])

    def test_a_thorough_run_draws_nothing(self):
        _, lines, _ = self.asked("--thorough")
        self.assertEqual(len(lines), 2)
        self.assertNotIn(" -E ", lines[1])

    def test_every_test_has_its_turn(self):
        names = [name for name, labels in LABELS.items() if "drawn" in labels]
        seen = set().union(*(drawn_cases.drawn(names, drawn_cases.third_of(len(names)), f"commit {i}") for i in range(40)))
        self.assertEqual(seen, set(names))
        self.assertEqual([drawn_cases.third_of(count) for count in (0, 1, 3, 4)], [0, 1, 1, 2])

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
