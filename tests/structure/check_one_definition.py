#!/usr/bin/python3
"""A type has one definition: of two with one name in one namespace the linker keeps either's functions for both.

    check_one_definition.py ROOT
    check_one_definition.py --self    check this checker on planted faults

Types of unnamed namespaces are their file's own.
"""

import collections
import pathlib
import re
import sys

FOLDERS = ["runtime", "scheduler", "balancer", "kernels", "models", "transport", "engine", "actors", "app", "tests"]
OPENED = re.compile(r"^(?:inline )?namespace(?: ([\w:]+))? \{$")
CLOSED = re.compile(r"^\}  // (?:inline )?namespace")
TYPE = re.compile(r"^(?:struct|class|enum|enum class|union) (?:\[\[\w+\]\] )?(\w+)(?: final)?(?: :[^;]*)? \{")


def types_of(text):
    """(namespace, name) of each type that is defined at the scope of a named namespace."""
    spaces = []
    for line in text.splitlines():
        if opened := OPENED.match(line):
            spaces.append(opened[1])
        elif CLOSED.match(line):
            spaces.pop()
        elif (found := TYPE.match(line)) and spaces and None not in spaces:
            yield "::".join(spaces), found[1]


def defined_twice(texts):
    """`NAME in FILE and FILE`, of texts by their file's name."""
    places = collections.defaultdict(list)
    for file, text in texts.items():
        for space, name in types_of(text):
            places[f"{space}::{name}"].append(file)
    return [f"{name} is defined in {' and '.join(files)}" for name, files in sorted(places.items()) if len(files) > 1]


def check_itself():
    """1 where a planted fault is missed, or one is found that is none."""
    one, other = "struct One {\n};", "class One final : public Other {\n};"
    cases = {"one in two files": (2, "namespace a::b {\n{}\n}  // namespace a::b\n"),
             "one in each unnamed namespace": (0, "namespace a::b {\nnamespace {\n{}\n}  // namespace\n}  // namespace a::b\n"),
             "declared, and defined elsewhere": (0, "namespace a::b {\nstruct One;\n}  // namespace a::b\n")}
    faults = []
    for what, (number, text) in cases.items():
        found = defined_twice({"x.hpp": text.replace("{}", one), "y.cpp": text.replace("{}", other)})
        if found != (["a::b::One is defined in x.hpp and y.cpp"] if number else []):
            faults.append(f"{what}: {found}")
    print("\n".join([*faults, f"{len(faults)} faults"]))
    return 1 if faults else 0


def main(root):
    texts = {str(file.relative_to(root)): file.read_text(encoding="utf-8") for folder in FOLDERS for file in sorted((root / folder).rglob("*"))
             if file.suffix in (".hpp", ".cpp", ".cu")}
    count = sum(1 for text in texts.values() for _ in types_of(text))
    faults = defined_twice(texts)
    print("\n".join([*faults, f"{count} types, {len(faults)} faults"]))
    return 1 if faults or not count else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self"]:
        sys.exit(check_itself())
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
