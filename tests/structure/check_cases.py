#!/usr/bin/python3
"""A case that a script's list of cases does not name is never run, and nobody notices.

    check_cases.py ROOT
    check_cases.py --self    check this checker on planted faults

A function of a Python file below tests/ is a fault where no code there names it. A file that looks its cases up among all of its own
names (`globals()`) runs whatever it defines.
"""

import ast
import pathlib
import sys


def names_in(tree):
    """All names that code uses, imports, or takes from a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


def never_run(texts):
    """`FILE: NAME`, and how many functions were looked at, of texts by their file's name."""
    trees = {file: ast.parse(text, file) for file, text in texts.items()}
    named = {name for tree in trees.values() for name in names_in(tree)}
    faults, count = [], 0
    for file, tree in trees.items():
        own = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        count += len(own)
        if "globals" not in names_in(tree):
            faults += [f"{file}: nobody runs {name}" for name in own if name not in named]
    return faults, count


def check_itself():
    """1 where a planted fault is missed, or one is found that is none."""
    case = "def a_case(bench):\n    bench.run()\n"
    texts = {"none of a list": (1, case + "CASES = []\n"), "of a list": (0, case + "CASES = [a_case]\n"),
             "of a comment alone": (1, case + "# a_case\nCASES = []\n"), "looked up": (0, case + "CASES = globals()\n"),
             "that another one calls": (0, case + "def other(bench):\n    a_case(bench)\n\n\nCASES = [other]\n")}
    faults = []
    for what, (number, text) in texts.items():
        found = never_run({"x.py": text})[0]
        if found != ["x.py: nobody runs a_case"] * number:
            faults.append(f"{what}: {found}")
    if never_run({"x.py": case, "y.py": "from x import a_case\n"})[0]:
        faults.append("of another file")
    print("\n".join([*faults, f"{len(faults)} faults"]))
    return 1 if faults else 0


def main(root):
    texts = {str(file.relative_to(root)): file.read_text(encoding="utf-8") for file in sorted((root / "tests").rglob("*.py"))}
    faults, count = never_run(texts)
    print("\n".join([*faults, f"{count} functions, {len(faults)} faults"]))
    return 1 if faults or not count else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self"]:
        sys.exit(check_itself())
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
