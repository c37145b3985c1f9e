"""Files that are compiled alone and make no code, and what is remembered of them: for check_benches.py and check_headers.py."""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def compiled_sources(root, build):
    """(source, entry) of all sources of the repository in the build's compile_commands.json, built by default or not."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if root in source.parents and build not in source.parents:
            yield source, entry


def options_of(entry):
    """Compiler and options of an entry, without what names files, and without precompiled headers: they would hide a missing include."""
    words = shlex.split(entry["command"])
    compiler = next(i for i, word in enumerate(words) if re.search(r"(g\+\+|clang\+\+|c\+\+)[^/]*$", word))
    kept, skip = [], False
    for word in words[compiler:]:
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MT", "-c", "-include"):
            skip = word != "-c"
        elif word not in ("-MD", "-MMD") and word != entry["file"]:
            kept.append(word)
    return kept


def text_below(root, file, seen):
    """The file's text and that of every project header it includes, in order of first use."""
    if file in seen:
        return ""
    seen.add(file)
    text = file.read_text(errors="replace")
    below = [text_below(root, root / name, seen) for name in INCLUDE.findall(text) if (root / name).is_file()]
    return text + "".join(below)


def compile_alone(root, file, command):
    run = subprocess.run([*command, "-fsyntax-only", str(file)], cwd=root, capture_output=True, text=True)
    errors = [line for line in run.stderr.splitlines() if "error" in line]
    return run.returncode == 0, "\n".join(errors[:3]) or run.stderr[-400:]


def compile_all(root, memory_file, tasks):
    """Compiles each (file, command) on all cores, but for those that were well before and whose text, with that of all project headers
    below, is the same; `memory_file` knows them. Returns how many it compiled, how many it remembered, and (file, errors) of the others."""
    memory = set(json.loads(memory_file.read_text())) if memory_file.exists() else set()
    by_key = {}
    for file, command in tasks:
        identity = f"{file.relative_to(root)} {' '.join(command)}\n{text_below(root, file, set())}"
        by_key[hashlib.sha256(identity.encode()).hexdigest()] = file, command
    work = [key for key in by_key if key not in memory]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda key: compile_alone(root, *by_key[key]), work))
    wrong = [(by_key[key][0], errors) for key, (good, errors) in zip(work, results) if not good]
    memory.update(key for key, (good, _) in zip(work, results) if good)
    memory_file.write_text(json.dumps(sorted(memory & set(by_key))))
    return len(work), len(by_key) - len(work), wrong
