#!/usr/bin/python3
"""Every header can be included first: checks that it brings all it needs.

    check_headers.py ROOT BUILD    ROOT: repository; BUILD: folder with compile_commands.json

Most headers cost nothing: the build compiles a source whose first include they are, as x.cpp begins
with x.hpp, and nothing precompiled stands before it. Only the others are compiled alone (no code
generated), with the options of a source of the same folder. Results are remembered in BUILD by the text of the
header and of all project headers below it.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

FOLDERS = ["runtime", "scheduler", "balancer", "kernels", "models", "transport", "engine", "actors", "app", "tests"]
PRECOMPILED = "cmake_pch.hxx"
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def headers(root):
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob("*.hpp"))


def shown_by_the_build(root, build):
    """Headers that some compiled source includes before all else."""
    shown = set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if root in source.parents and source.exists() and PRECOMPILED not in entry["command"]:
            first = INCLUDE.search(source.read_text(errors="replace"))
            if first:
                shown.add(first.group(1))
    return shown


def text_below(root, file, seen):
    """The header's text and that of every project header it includes, in order of first use."""
    if file in seen:
        return ""
    seen.add(file)
    text = file.read_text(errors="replace")
    below = [text_below(root, root / name, seen) for name in INCLUDE.findall(text) if (root / name).is_file()]
    return text + "".join(below)


def options_by_folder(root, build):
    """Compiler and options per folder, from the first source compiled there."""
    options = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if root not in source.parents or build in source.parents:
            continue
        words = shlex.split(entry["command"])
        compiler = next(i for i, word in enumerate(words) if re.search(r"(g\+\+|clang\+\+|c\+\+)[^/]*$", word))
        words = words[compiler:]
        kept, skip = [], False
        for word in words:
            if skip:
                skip = False
            elif word in ("-o", "-MF", "-MT", "-c"):
                skip = word != "-c"
            elif word == "-include":  # What is precompiled would hide a missing include.
                skip = True
            elif word not in ("-MD", "-MMD") and word != entry["file"]:
                kept.append(word)
        options.setdefault(source.parent.relative_to(root).as_posix(), kept)
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


def compile_alone(root, header, command):
    run = subprocess.run(command + ["-fsyntax-only", "-w", "-x", "c++", str(header)],
                         cwd=root, capture_output=True, text=True)
    errors = [line for line in run.stderr.splitlines() if "error" in line]
    return run.returncode == 0, "\n".join(errors[:3]) or run.stderr[-400:]


def main(root, build):
    options = options_by_folder(root, build)
    memory_file = build / "checked_headers.json"
    memory = set(json.loads(memory_file.read_text())) if memory_file.exists() else set()
    shown = shown_by_the_build(root, build)
    work, keys, count = [], [], 0
    for header in headers(root):
        count += 1
        if header.relative_to(root).as_posix() in shown:
            continue
        command = options_for(header.parent.relative_to(root).as_posix(), options)
        if command is None:
            sys.exit(f"{header}: no source of its folder is built; cannot know how to compile it")
        command = [word for word in command if word != "-Werror"]
        identity = " ".join(command) + text_below(root, header, set())
        key = hashlib.sha256(identity.encode()).hexdigest()
        keys.append(key)
        if key not in memory:
            work.append((header, command, key))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda item: compile_alone(root, item[0], item[1]), work))
    failed = 0
    for (header, _, key), (good, message) in zip(work, results):
        if good:
            memory.add(key)
        else:
            failed += 1
            print(f"{header.relative_to(root)}: not self-contained\n{message}")
    memory_file.write_text(json.dumps(sorted(memory & set(keys))))
    print(f"{count} headers: {count - len(keys)} shown by the build, {len(work)} compiled, "
          f"{len(keys) - len(work)} remembered, {failed} wrong")
    return 1 if failed or count == 0 else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
