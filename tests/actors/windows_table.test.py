#!/usr/bin/python3
"""The table of actors/README.md, "When a node is lost": it has every window of a job, and names tests that are there."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / "actors" / "README.md"
HEADING = "## When a node is lost"
# What a loss may fall into: words of the row's first cell.
WINDOWS = ["costs are measured", "nodes join", "the first layout", "planning", "forward", "PREPARED", "COMMIT is known", "another loss",
           "a checkpoint is written", "the job stops", "final tensors are offered", "several nodes at once", "the same node", "a silent node comes back",
           "another one joins"]


def rows(text):
    """[(moment, tests)] of the table below the heading."""
    lines = text.partition(HEADING)[2].partition("\n## ")[0].splitlines()
    cells = [line.strip().strip("|").split(" | ") for line in lines if line.startswith("|")]
    return [(row[0].strip(), row[-1].strip()) for row in cells[2:]]


def case_names():
    """Names of all cases: of Catch2's with their sections, and functions of the scripts as sentences."""
    names = []
    for path in (ROOT / "tests").rglob("*.test.cpp"):
        text = re.sub(r'"\s*\n\s*"', "", path.read_text(encoding="utf-8"))  # A name that goes on in the next line.
        names += re.findall(r'(?:TEST_CASE|SECTION)\(\s*"((?:[^"\\]|\\.)*)"', text)
    for path in (ROOT / "tests").rglob("*.py"):
        names += [name.replace("_", " ") for name in re.findall(r"^def (\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)]
    return names


def files():
    """Names by which rows call files: `supervisor_recovery`, `recovery.py`, `engine/sources.py`."""
    found = set()
    for path in (ROOT / "tests").rglob("*"):
        if path.suffix in (".py", ".cpp"):
            found |= {path.name, path.name.removesuffix(".test.cpp"), str(path.relative_to(ROOT / "tests"))}
    return found


class WindowsTable(unittest.TestCase):
    def setUp(self):
        self.rows = rows(README.read_text(encoding="utf-8"))

    def test_has_every_window(self):
        moments = [moment for moment, _ in self.rows]
        missing = [window for window in WINDOWS if not any(window in moment for moment in moments)]
        self.assertEqual(missing, [])

    def test_each_row_names_a_case_that_is_there(self):
        names, known = case_names(), files()
        for moment, tests in self.rows:
            with self.subTest(moment=moment):
                quoted, marked = re.findall(r'"([^"]+)"', tests), re.findall(r"`([^`]+)`", tests)
                self.assertTrue(quoted or any(name.endswith(".py") for name in marked), f"no case: {tests}")
                for part in quoted:
                    self.assertTrue(any(part in name for name in names), f'no case has "{part}" in its name')
                for name in marked:
                    self.assertIn(name, known)

    def test_a_name_that_is_not_there_is_found(self):
        self.assertEqual(rows(f"{HEADING}\n\n| M | T |\n|---|---|\n| a | x | \"y\" |\n\n## Next\n| b | z |\n"), [("a", '"y"')])
        self.assertFalse(any("a case that nobody wrote and nobody will" in name for name in case_names() if "nobody wrote" not in name))


if __name__ == "__main__":
    unittest.main()
