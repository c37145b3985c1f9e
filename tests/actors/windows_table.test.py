#!/usr/bin/python3
"""The table of actors/README.md, "When a node is lost, or an error ends the job", and the tests of it: a row has every window of a job and names tests,
a test names its rows, and each finds the other.

A row's tests are `FILE`: "PART", "PART", `FILE`: ...: one case of that file has PART in its name, a Catch2 case or section or a
function of a script as a sentence. Above that case stands a comment `Window: ROW`, for each of its rows one; ROW is the
row's first cell up to a colon or bracket.
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
README = ROOT / "actors" / "README.md"
HEADING = "## When a node is lost, or an error ends the job"
# What a loss may fall into: words of the row's first cell.
WINDOWS = ["costs are measured", "nodes join", "the first layout", "planning", "forward", "PREPARED", "COMMIT is known", "another loss",
           "a checkpoint is written", "the job stops", "final tensors are offered", "several nodes at once", "the same node", "a silent node comes back",
           "another one joins", "does not come up"]
OF_WINDOWS_ALONE = "actors/supervisor_windows.test.cpp"  # Each case of it is a row's.

CPP_CASE = re.compile(r'((?:^ *// Window: .*\n)*)^ *(TEST_CASE|SECTION)\(\s*"((?:[^"\\]|\\.)*)"', re.MULTILINE)
PY_CASE = re.compile(r"((?:^# Window: .*\n)*)^(def) (\w+)\(", re.MULTILINE)
WINDOW = re.compile(r"^ *(?://|#) Window: (.*)$", re.MULTILINE)


def rows(text):
    """[(moment, tests)] of the table below the heading."""
    lines = text.partition(HEADING)[2].partition("\n## ")[0].splitlines()
    cells = [line.strip().strip("|").split(" | ") for line in lines if line.startswith("|")]
    return [(row[0].strip(), row[-1].strip()) for row in cells[2:]]


def name_of(moment):
    return re.split(r":| \(", moment)[0]


def named_by(tests):
    """[(file, part)] of a row's last cell; what is said there besides has no file or no part."""
    pairs, file = [], ""
    for marked, quoted, rest in re.findall(r'`([^`]+)`:|"([^"]+)"|([^\s,])', tests):
        file = marked or file
        if quoted or rest:
            pairs.append((file, quoted) if quoted and file else ("", quoted or rest))
    return pairs


def cases_in(name, text):
    """[(kind, case, its windows)] of a test's text: of Catch2's cases and sections, and of functions as sentences."""
    if name.endswith(".py"):
        return [(kind, case.replace("_", " "), WINDOW.findall(above)) for above, kind, case in PY_CASE.findall(text)]
    joined = re.sub(r'"\s*\n\s*"', "", text)  # A name that goes on in the next line.
    return [(kind, case, WINDOW.findall(above)) for above, kind, case in CPP_CASE.findall(joined)]


def all_cases():
    """{file below tests/: its cases}, and comments that stand above none."""
    found, stray = {}, []
    for path in [*TESTS.rglob("*.test.cpp"), *TESTS.rglob("*.py")]:
        name, text = str(path.relative_to(TESTS)), path.read_text(encoding="utf-8")
        found[name] = cases_in(name, text)
        if path != pathlib.Path(__file__).resolve() and len(WINDOW.findall(text)) != sum(len(windows) for _, _, windows in found[name]):
            stray.append(name)
    return found, stray


def file_called(word, names):
    """The one file that a row calls so, `supervisor_recovery`, `recovery.py`, `engine/sources.py`; empty: none, or several."""
    own = [name for name in names if word in (name, name.rpartition("/")[2].removesuffix(".test.cpp"))]
    return own[0] if len(own) == 1 else ""


def faults_of(table, cases):
    """What rows and cases say that the other side does not: a sentence each."""
    faults, told = [], set()
    for moment, tests in table:
        pairs = named_by(tests)
        if not pairs:
            faults.append(f"{moment}: it names no test")
        for word, part in pairs:
            file = file_called(word, cases)
            own = [case for _, case, _ in cases.get(file, []) if part in case]
            if len(own) == 1:
                told.add((name_of(moment), file, own[0]))
            else:
                faults.append(f'{moment}: `{word}`: "{part}" is in the name of {len(own)} cases')
    said = {(window, file, case) for file, own in cases.items() for _, case, windows in own for window in windows}
    names = [name_of(moment) for moment, _ in table]
    faults += [f"two rows are called '{name}'" for name in sorted(set(names)) if names.count(name) > 1]
    faults += [f"{file}: '{case}' has no comment `Window: {row}` above it" for row, file, case in sorted(told - said)]
    faults += [f"{file}: '{case}' is of the window '{row}', " + ("whose row does not name it" if row in names else "which is no row")
               for row, file, case in sorted(said - told)]
    faults += [f"{OF_WINDOWS_ALONE}: '{case}' is of no window" for kind, case, windows in cases.get(OF_WINDOWS_ALONE, [])
               if kind == "TEST_CASE" and not windows]
    return faults


class WindowsTable(unittest.TestCase):
    def test_has_every_window(self):
        moments = [moment for moment, _ in rows(README.read_text(encoding="utf-8"))]
        missing = [window for window in WINDOWS if not any(window in moment for moment in moments)]
        self.assertEqual(missing, [])

    def test_rows_and_tests_name_each_other(self):
        cases, stray = all_cases()
        self.assertEqual(stray, [], "comments `Window:` that stand above no case")
        self.assertEqual(faults_of(rows(README.read_text(encoding="utf-8")), cases), [])

    def test_planted_faults_are_found(self):
        self.assertEqual(rows(f"{HEADING}\n\n| M | T |\n|---|---|\n| a | x | `f`: \"y\" |\n\n## Next\n| b | z |\n"), [("a", '`f`: "y"')])
        self.assertEqual(named_by('`f`: "y", "z", `g.py`: "u"'), [("f", "y"), ("f", "z"), ("g.py", "u")])
        self.assertEqual(named_by('"y"'), [("", "y")])
        text = '// Window: a\n// Window: b\nTEST_CASE("what y "\n          "does", "[x]") {\n  SECTION("z") {\n'
        self.assertEqual(cases_in("f.test.cpp", text), [("TEST_CASE", "what y does", ["a", "b"]), ("SECTION", "z", [])])
        self.assertEqual(cases_in("g.py", "# Window: a\ndef u_is_so(x):\n"), [("def", "u is so", ["a"])])
        cases = {"actors/f.test.cpp": [("TEST_CASE", "what y does", ["a"]), ("SECTION", "what x does", [])]}
        self.assertEqual(faults_of([("a: long", '`f`: "y"')], cases), [])
        for table, fault in (([("a", "")], "names no test"), ([("a", '`f`: "q"')], "the name of 0 cases"), ([("a", '`f`: "what"')], "of 2 cases"),
                             ([("a", '"y"')], "of 0 cases"), ([("a", '`h`: "y"')], "of 0 cases"), ([("a", '`f`: "y", elsewhere')], "of 0 cases"),
                             ([("a", '`f`: "x"')], "has no comment `Window: a`"), ([("a", '`f`: "x"')], "whose row does not name it"),
                             ([("b", '`f`: "y"')], "which is no row"), ([("a", '`f`: "y"'), ("a (b)", '`f`: "y"')], "two rows are called 'a'")):
            self.assertTrue(any(fault in found for found in faults_of(table, cases)), (table, faults_of(table, cases)))
        alone = {OF_WINDOWS_ALONE: [("TEST_CASE", "new", [])]}
        self.assertEqual(faults_of([], alone), [f"{OF_WINDOWS_ALONE}: 'new' is of no window"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])  # Mutants name a program, too.
