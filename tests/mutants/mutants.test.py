#!/usr/bin/python3
"""The verdicts of mutants.py, on mutants and test programs made here."""

import dataclasses
import pathlib
import subprocess
import tempfile

import mutants

HEAD = 'Breaks: a sum\nBuild: test_x\nTest: test_x "adds"\n'
PATCH = "diff --git a/x.txt b/x.txt\n--- a/x.txt\n+++ b/x.txt\n@@ -1 +1 @@\n-one\n+two\n"
# Fails where x.txt says `two`, as Catch2 does; fails otherwise without a failed case; or does not look.
LOOKS = '#!/bin/sh\nif grep -q two x.txt; then echo "test cases: 1 | 1 failed"; exit 1; fi\n'
OTHERWISE = '#!/bin/sh\nif grep -q two x.txt; then echo "no such file"; exit 1; fi\n'
BLIND = "#!/bin/sh\nexit 0\n"
ENDLESS = "#!/bin/sh\nsleep 60\n"
NAMELESS = '#!/bin/sh\necho "No test cases matched"\nexit 2\n'


def refusal(text, folder):
    path = folder / "bad.patch"
    path.write_text(text)
    try:
        mutants.read_mutant(path)
    except mutants.Unusable as why:
        return str(why)
    return ""


def check_heads(folder):
    path = folder / "good.patch"
    path.write_text(HEAD + PATCH)
    mutant = mutants.read_mutant(path)
    assert (mutant.breaks, mutant.targets, mutant.files) == ("a sum", ("test_x",), ("x.txt",))
    assert mutant.tests == ('test_x "adds"',)
    assert "`Test:`" in refusal("Breaks: a sum\nBuild: test_x\n" + PATCH, folder)
    assert "line 1" in refusal("What: a sum\n" + HEAD + PATCH, folder)
    assert "a patch" in refusal(HEAD, folder)
    return mutant


class Copy(mutants.Copy):
    """Nothing is compiled: what is planted in x.txt is what the program reads."""

    def __init__(self, folder, program):
        self.tree = folder / "tree"
        self.build = folder / "build"
        (self.build / "tests").mkdir(parents=True, exist_ok=True)
        self.tree.mkdir(exist_ok=True)
        self.restore("x.txt")
        path = self.build / "tests" / "test_x"
        path.write_text(program)
        path.chmod(0o755)

    def restore(self, name):
        (self.tree / name).write_text("one\n")

    def compile(self, targets):
        return True, ""


def verdict(folder, program, mutant):
    seen, copy = mutants.Seen(), Copy(folder, program)
    mutants.try_all([copy], [mutant], seen)
    assert (copy.tree / "x.txt").read_text() == "one\n"
    return seen.rows[mutant]


def check_record(folder, mutant):
    """A run that was interrupted is gone on with."""
    file = folder / "record.md"
    first = mutants.Seen(file)
    assert not mutants.try_all([Copy(folder, LOOKS)], [mutant], first)
    other = dataclasses.replace(mutant, name="other")
    first.saw(other, "NOT CAUGHT by what\nsaid more", 1)
    again = mutants.Seen(file)
    assert again.go_on([mutant, other]) == [other]
    assert again.rows == {mutant: "caught"} and again.sound == set(mutant.tests)
    # Another test of the same mutant is another question.
    assert mutants.Seen(file).go_on([dataclasses.replace(mutant, tests=("test_x \"else\"",))])
    assert mutants.Seen().go_on([mutant]) == [mutant]
    # What passed before is not asked again.
    assert not mutants.try_all([Copy(folder, BLIND.replace("0", "1"))], [mutant], again)


def check_cases(folder, mutant):
    """Cases are looked for in what their programs list."""
    build = folder / "listing"
    (build / "tests").mkdir(parents=True)
    program = build / "tests" / "test_x"
    program.write_text("#!/bin/sh\nprintf 'adds\\nadds what is there\\n'\n")
    program.chmod(0o755)
    mutants.ROOT = folder
    (folder / "x.txt").write_text("one\n")
    for pattern, fault in (("adds", ""), ("adds what*", ""), ("subtracts*", "has no case"), ("adds, and more*", "a comma ends")):
        found = mutants.check([dataclasses.replace(mutant, tests=(f'test_x "{pattern}"',))], build)
        assert bool(found) == bool(fault) and fault in "".join(found), (pattern, found)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        mutants.HERE = folder
        mutant = check_heads(folder)
        assert verdict(folder, LOOKS, mutant) == "caught"
        assert verdict(folder, BLIND, mutant) == 'NOT CAUGHT by test_x "adds"'
        assert verdict(folder, OTHERWISE, mutant).startswith("UNUSABLE: exit code 1 without a failed case")
        assert verdict(folder, NAMELESS, mutant).startswith("UNUSABLE: no case of that name")
        mutants.CASE_SECONDS_MAX = 0.2
        assert verdict(folder, ENDLESS, mutant) == 'caught; no end within 0.2 s: test_x "adds"'
        mutants.CASE_SECONDS_MAX = 60
        # A test that fails anyway would seem to catch everything.
        fails = Copy(folder, "#!/bin/sh\necho 'test cases: 1 | 1 failed'\nexit 1\n")
        broken = mutants.try_all([fails], [mutant], mutants.Seen())
        assert broken == ['test_x "adds"']
        assert mutants.verdict_without(mutant, "caught", broken) == 'UNUSABLE: fails without it, too: test_x "adds"'
        check_record(folder, mutant)
        check_cases(folder, mutant)
        assert mutants.verdict_without(mutant, "caught", []) == "caught"
        runs = dataclasses.replace(mutant, name="a", tests=("script x.py",))
        assert mutants.in_order([runs, mutant]) == [mutant, runs]
        (folder / "moved.patch").write_text(HEAD + PATCH.replace("-one", "-eleven"))
        moved = mutants.read_mutant(folder / "moved.patch")
        assert verdict(folder, LOOKS, moved).startswith("UNUSABLE: cannot be planted")
    print("ok")


if __name__ == "__main__":
    subprocess.run(["git", "--version"], check=True, stdout=subprocess.DEVNULL)
    main()
