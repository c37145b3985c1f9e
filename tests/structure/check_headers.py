#!/usr/bin/python3
"""Every header can be included first: checks that it brings all it needs.

    check_headers.py ROOT BUILD    ROOT: repository; BUILD: folder with compile_commands.json

Most headers cost nothing: the build compiles a source whose first include they are, as x.cpp begins
with x.hpp, and nothing precompiled stands before it. Only the others are compiled alone (no code
generated), with the options of a source of the same folder. Results are remembered in BUILD by the text of the
header and of all project headers below it.
"""

import os
import pathlib
import sys

from syntax_only import INCLUDE, compile_all, compiled_sources, options_of

FOLDERS = ["runtime", "scheduler", "balancer", "kernels", "models", "transport", "engine", "actors", "app", "tests"]
PRECOMPILED = "cmake_pch.hxx"


def headers(root):
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob("*.hpp"))


def shown_by_the_build(root, build):
    """Headers that some compiled source includes before all else."""
    shown = set()
    for source, entry in compiled_sources(root, build):
        if source.exists() and PRECOMPILED not in entry["command"]:
            first = INCLUDE.search(source.read_text(errors="replace"))
            if first:
                shown.add(first.group(1))
    return shown


def options_by_folder(root, build):
    """Compiler and options per folder, from the first source compiled there; they warn of nothing."""
    options = {}
    for source, entry in compiled_sources(root, build):
        command = [word for word in options_of(entry) if word != "-Werror"] + ["-w", "-x", "c++"]
        options.setdefault(source.parent.relative_to(root).as_posix(), command)
    return options


def options_for(header_folder, options):
    """Those of the folder itself, else of the nearest folder above or below that has sources, else
    those of the source that knows most libraries."""
    folder = header_folder
    while folder != ".":
        if folder in options:
            return options[folder]
        below = [options[name] for name in sorted(options) if name.startswith(folder + "/")]
        if below:
            return max(below, key=len)
        folder = os.path.dirname(folder) or "."
    return max(options.values(), key=len, default=None)


def main(root, build):
    options = options_by_folder(root, build)
    shown = shown_by_the_build(root, build)
    tasks, count = [], 0
    for header in headers(root):
        count += 1
        if header.relative_to(root).as_posix() in shown:
            continue
        command = options_for(header.parent.relative_to(root).as_posix(), options)
        if command is None:
            sys.exit(f"{header}: no source of its folder is built; cannot know how to compile it")
        tasks.append((header, command))
    compiled, remembered, wrong = compile_all(root, build / "checked_headers.json", tasks)
    for header, errors in wrong:
        print(f"{header.relative_to(root)}: not self-contained\n{errors}")
    print(f"{count} headers: {count - len(tasks)} shown by the build, {compiled} compiled, {remembered} remembered, {len(wrong)} wrong")
    return 1 if wrong or count == 0 else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
