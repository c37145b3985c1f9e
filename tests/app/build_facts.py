#!/usr/bin/python3
"""The stamp of a build: the same for equal sources wherever they lie, another one for others.

    build_facts.py CMAKE BUILD_FACTS

Runs the script that writes the header with the stamp on small repositories of its own.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FILES = {"app/main.cpp": "int main() {}\n", "app/README.md": "notes\n", "runtime/a.hpp": "// a\n", "CMakeLists.txt": "# root\n",
         "tests/a.test.cpp": "// a test\n"}


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


class Bench:
    """A repository with one commit, and clones of it."""

    def __init__(self, cmake, script, base):
        self.cmake, self.script, self.base = cmake, script, base
        self.origin = base / "origin"
        for name, text in FILES.items():
            (self.origin / name).parent.mkdir(parents=True, exist_ok=True)
            (self.origin / name).write_text(text, encoding="utf-8")
        git(base, "init", "origin")
        git(self.origin, "add", ".")
        git(self.origin, "commit", "-m", "all")

    def clone(self, name):
        git(self.base, "clone", str(self.origin), name)
        return self.base / name

    def header(self, folder):
        header = folder / "build" / "facts.hpp"
        subprocess.run([self.cmake, "-D", f"OUTPUT={header}", "-D", f"SOURCE={folder}", "-D",
                        "PARTS=runtime,app,cmake,CMakeLists.txt", "-D", "VERSION=1", "-P", self.script],
                       check=True, capture_output=True, env={**os.environ, "GIT_CEILING_DIRECTORIES": str(self.base)})
        return header

    def stamp(self, folder):
        return re.search(r'kCommit = "(.*)"', self.header(folder).read_text(encoding="utf-8")).group(1)


def edit(folder, name, text):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def equal_sources_have_the_same_stamp(bench):
    here, there = bench.clone("here"), bench.clone("there/below")
    committed = bench.stamp(here)
    assert re.fullmatch("[0-9a-f]{12}", committed), committed
    git(there, "tag", "-a", "v1", "-m", "a tag that only this clone has")
    assert bench.stamp(there) == committed
    for folder in (here, there):
        edit(folder, "app/main.cpp", "int main() { return 1; }\n")
    edited = bench.stamp(here)
    assert re.fullmatch(committed + "-dirty-[0-9a-f]{12}", edited), edited
    assert bench.stamp(there) == edited
    git(there, "add", "app/main.cpp")
    assert bench.stamp(there) == edited, "staged or not, it is the same source"


def other_edits_have_another_stamp(bench):
    stamps = [bench.stamp(bench.clone("clean"))]
    for name, text in (("app/main.cpp", "int main() { return 1; }\n"), ("app/main.cpp", "int main() { return 2; }\n"),
                       ("CMakeLists.txt", "# other\n"), ("runtime/new.cpp", "// untracked\n"), ("app/new.cpp", "// untracked\n")):
        stamps.append(bench.stamp(edit(bench.clone(f"edit{len(stamps)}"), name, text)))
    removed = bench.clone("removed")
    (removed / "runtime" / "a.hpp").unlink()
    stamps.append(bench.stamp(removed))
    assert len(set(stamps)) == len(stamps), stamps


def what_is_not_built_leaves_the_header_alone(bench):
    folder = bench.clone("folder")
    header = bench.header(folder)
    written = header.stat().st_mtime_ns
    for name in ("app/README.md", "tests/a.test.cpp", "tests/b.test.cpp"):
        edit(folder, name, "other\n")
    assert bench.header(folder).stat().st_mtime_ns == written


def sources_without_git_have_a_stamp_too(bench):
    stamps = []
    for text in (FILES["app/main.cpp"], "int main() { return 1; }\n"):
        folder = bench.clone(f"plain{len(stamps)}")
        shutil.rmtree(folder / ".git")
        stamps.append(bench.stamp(edit(folder, "app/main.cpp", text)))
    assert all(re.fullmatch("sources-[0-9a-f]{12}", stamp) for stamp in stamps) and stamps[0] != stamps[1], stamps


CASES = (equal_sources_have_the_same_stamp, other_edits_have_another_stamp, what_is_not_built_leaves_the_header_alone,
         sources_without_git_have_a_stamp_too)


def main(cmake, script):
    if not shutil.which("git"):
        print("git is not here")
        return 77
    failed = 0
    for case in CASES:
        with tempfile.TemporaryDirectory(prefix="troupe-facts-") as base:
            try:
                case(Bench(cmake, script, pathlib.Path(base)))
                print(f"passed: {case.__name__.replace('_', ' ')}")
            except AssertionError as why:
                failed += 1
                print(f"failed: {case.__name__.replace('_', ' ')}: {why}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], str(pathlib.Path(sys.argv[2]).resolve())))
