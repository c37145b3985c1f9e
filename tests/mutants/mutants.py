#!/usr/bin/python3
"""Mutants: small faults planted one at a time, each of which the tests it names must notice.

    mutants.py [NAME...]         builds and tests each in copies of this checkout; AREA names all of an area
    mutants.py --check [BUILD]   only whether each can be planted in these sources; with BUILD also whether the test
                                 programs there have the cases that mutants name. Takes a second or two
    mutants.py --list            a line for each

    --record FILE     leaves a table of what caught what, as it goes: Markdown
    --go-on           what that FILE says was caught is not tried again, nor tests that passed without a mutant: after a
                      run that was interrupted
    --workers N       copies that are built and tested side by side (default: one per two cores, at least two)

A mutant is a patch, AREA/NAME.patch, below a few lines that say what it breaks, what to build and which tests must
fail; README.md has the form. A test that fails without the mutant, or passes with it, fails here, and so does a mutant
that cannot be planted or compiled. The copies stay in build/mutants: the next run compiles what has changed.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import fnmatch
import functools
import os
import pathlib
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COPIES = ROOT / "build" / "mutants"
CASE_SECONDS_MAX, SCRIPT_SECONDS_MAX = 60, 600  # Of one test: a mutant may make it wait for ever.
CASES_FAILED = re.compile(r"^test cases: .*\b\d+ failed", re.MULTILINE)
NO_CASE = "No test cases matched"
PASSED, FAILED, ENDLESS = "passed", "failed", "no end"
SCRIPTS = threading.Lock()


class Unusable(Exception):
    """A mutant, or a test it names, that says nothing about the tests."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str  # AREA/NAME
    breaks: str
    targets: tuple
    tests: tuple  # As written: `test_X "case"` or `script FILE ARGUMENT...`.
    files: tuple  # That the patch changes, relative to the root.
    path: pathlib.Path


def read_mutant(path):
    """The mutant of a file. Raises Unusable with the file and what is wrong with its head."""
    name = str(path.relative_to(HERE).with_suffix(""))
    head, marker, patch = path.read_text(encoding="utf-8").partition("diff --git ")
    fields = {"Breaks": [], "Build": [], "Test": []}
    for number, line in enumerate(filter(None, head.splitlines()), 1):
        key, colon, value = line.partition(": ")
        if not colon or key not in fields or not value.strip():
            raise Unusable(f"{name}: line {number} of its head is none of `Breaks: ...`, `Build: ...`, `Test: ...`: {line}")
        fields[key].append(value.strip())
    if len(fields["Breaks"]) != 1 or not fields["Build"] or not fields["Test"] or not marker:
        raise Unusable(f"{name}: one line `Breaks:`, at least one `Build:` and `Test:`, then a patch are wanted")
    files = tuple(re.findall(r"^\+\+\+ b/(\S+)", patch, re.MULTILINE))
    if not files:
        raise Unusable(f"{name}: its patch changes no file")
    targets = tuple(target for line in fields["Build"] for target in line.split())
    return Mutant(name, fields["Breaks"][0], targets, tuple(fields["Test"]), files, path)


def apply(mutant, folder, *flags):
    """Whether the patch went in; git's words where it did not. Lines may have moved, and some around it changed."""
    # A copy lies inside the checkout: git must not take it for a part of it, and skip its files.
    result = subprocess.run(["git", "apply", "-p1", "-C1", *flags, str(mutant.path)], cwd=folder, capture_output=True,
                            text=True, env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)})
    return result.returncode == 0, result.stderr.strip()


def command_of(test, tree, build):
    """The command line of a test that a mutant names."""
    words = shlex.split(test)
    if words[0] == "script":
        return ["/usr/bin/python3", str(tree / words[1]), str(build / "troupe"), *words[2:]]
    if len(words) != 2 or not words[0].startswith("test_"):
        raise Unusable(f"not a test: {test}")
    return [str(build / "tests" / words[0]), words[1]]


@functools.cache
def cases_of(program):
    """Names of a test program's cases. Asked once: it takes as long to load as some cases to run."""
    listed = subprocess.run([str(program), "--list-tests", "--verbosity", "quiet"], capture_output=True, text=True, timeout=60)
    return [line.strip() for line in listed.stdout.splitlines()]


def check(mutants, build):
    """What keeps mutants from being planted; with a build, what keeps their tests from being found."""
    faults = []
    for mutant in mutants:
        planted, why = apply(mutant, ROOT, "--check")
        if not planted:
            faults.append(f"{mutant.name}: cannot be planted; make it anew (README.md): {why}")
        for test in mutant.tests:
            words = shlex.split(test)
            if words[0] == "script":
                if not (ROOT / words[1]).is_file():
                    faults.append(f"{mutant.name}: there is no script {words[1]}")
                continue
            program = build / "tests" / words[0] if build else None
            if build and not program.is_file():
                faults.append(f"{mutant.name}: there is no program {words[0]}")
            elif "," in words[1]:
                faults.append(f"{mutant.name}: a comma ends a pattern of Catch2: write `*` in place of what follows '{words[1]}'")
            elif build and not any(fnmatch.fnmatchcase(name, words[1]) for name in cases_of(program)):
                faults.append(f"{mutant.name}: {words[0]} has no case '{words[1]}'")
    return faults


def seconds_max(test):
    return SCRIPT_SECONDS_MAX if test.startswith("script ") else CASE_SECONDS_MAX


def run_to_end(command, folder, seconds):
    """Exit code and output; no code where it was ended after so many seconds, with all that it had started."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        output = process.communicate(timeout=seconds)[0]
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""


class Copy:
    """A copy of the checkout with a build of its own, in which one mutant at a time is planted."""

    def __init__(self, number):
        self.home = COPIES / str(number)
        self.tree, self.build = self.home / "tree", self.home / "tree" / "build" / "release"

    def prepare(self, targets):
        """Brings the copy up to date and builds it without a mutant."""
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                capture_output=True, check=True).stdout.decode()
        wanted = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
        for name in wanted:
            self.restore(name)
        for old in [path for path in self.tree.rglob("*") if path.is_file() and self.build.parent not in path.parents]:
            if str(old.relative_to(self.tree)) not in wanted and "__pycache__" not in old.parts:
                old.unlink()
        shared = self.home / "shared"
        if (ROOT.parent / "shared").is_dir() and not shared.exists():
            shared.symlink_to(ROOT.parent / "shared")
        if not (self.build / "build.ninja").is_file():
            configure = "source scripts/lib/common.sh && export TORCH_DIR && exec cmake --preset release"
            subprocess.run(["bash", "-c", configure], cwd=self.tree, check=True, stdout=subprocess.DEVNULL)
        built, output = self.compile(targets)
        if not built:
            raise Unusable(f"the sources do not build without a mutant:\n{output}")

    def restore(self, name):
        """Puts a file back as it is in the checkout; what is the same keeps its time, so that nothing is compiled."""
        source, copy = ROOT / name, self.tree / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.is_file() or copy.read_bytes() != source.read_bytes():
            shutil.copyfile(source, copy)
            shutil.copymode(source, copy)

    def compile(self, targets):
        result = subprocess.run(["ninja", "-C", str(self.build), *targets], capture_output=True, text=True)
        return result.returncode == 0, result.stdout[-3000:] + result.stderr[-500:]

    def verdict(self, test):
        """What a test says here: PASSED, FAILED, or ENDLESS. Raises Unusable where it does not run at all."""
        # Whole runs have deadlines: one at a time, as CTest runs them.
        with SCRIPTS if test.startswith("script ") else contextlib.nullcontext():
            code, output = run_to_end(command_of(test, self.tree, self.build), self.tree, seconds_max(test))
        if code is None:
            return ENDLESS
        if NO_CASE in output:
            raise Unusable(f"no case of that name: {test}")
        # A crash has no summary. Anything else that ends a test program without a failed case is its own fault.
        if code > 0 and not test.startswith("script ") and not CASES_FAILED.search(output):
            raise Unusable(f"exit code {code} without a failed case: {test}\n{output[-1000:]}")
        return PASSED if code == 0 else FAILED

    def try_mutant(self, mutant):
        """What its tests say while the mutant is there."""
        try:
            planted, why = apply(mutant, self.tree)
            if not planted:
                raise Unusable(f"cannot be planted: {why}")
            built, output = self.compile(mutant.targets)
            if not built:
                raise Unusable(f"does not compile:\n{output}")
            return {test: self.verdict(test) for test in mutant.tests}
        finally:
            for name in mutant.files:
                self.restore(name)


def failing_without(copy, mutants, seen):
    """The tests that fail before any mutant is there, or say nothing: they would seem to catch everything."""
    def passes(test):
        try:
            return copy.verdict(test) == PASSED
        except Unusable:
            return False

    failing = []
    for test in sorted({test for mutant in mutants for test in mutant.tests} - seen.sound):
        # Once more: it ran beside compilers, which may keep it from its deadlines.
        if passes(test) or passes(test):
            seen.saw_sound(test)
        else:
            failing.append(test)
    return failing


def verdict_of(said):
    """One line on what a mutant's tests said of it. A test without an end is told: it may have been the machine."""
    if survived := [test for test, verdict in said.items() if verdict == PASSED]:
        return f"NOT CAUGHT by {'; '.join(survived)}"
    endless = [test for test, verdict in said.items() if verdict == ENDLESS]
    return "caught" + "".join(f"; no end within {seconds_max(test)} s: {test}" for test in endless)


def verdict_without(mutant, verdict, broken):
    """The verdict, unless a test that the mutant names fails anyway: then it says nothing."""
    blind = [test for test in mutant.tests if test in broken]
    return f"UNUSABLE: fails without it, too: {'; '.join(blind)}" if blind else verdict


def in_order(mutants):
    """Whole runs last, because one of them at a time holds all others up; mutants of a file together, because taking
    one back and planting the next then compiles that file once."""
    return sorted(mutants, key=lambda mutant: (any(test.startswith("script ") for test in mutant.tests), mutant.files,
                                               mutant.targets, mutant.name))


def try_all(copies, mutants, seen, tried=()):
    """The tests that fail before any mutant is there: the first copy tries them while the others begin with mutants.
    Each mutant is tried in whichever copy is free. Tests of mutants that were `tried` before are asked, too."""
    free = queue.Queue()
    for copy in copies[1:]:
        free.put(copy)

    def try_without():
        try:
            return failing_without(copies[0], [*mutants, *tried], seen)
        finally:
            free.put(copies[0])

    def try_one(mutant):
        copy, begin = free.get(), time.monotonic()
        try:
            verdict = verdict_of(copy.try_mutant(mutant))
        except Unusable as why:
            verdict = f"UNUSABLE: {why}"
        finally:
            free.put(copy)
        seen.saw(mutant, verdict, time.monotonic() - begin)

    with concurrent.futures.ThreadPoolExecutor(len(copies) + 1) as pool:
        broken = pool.submit(try_without)
        list(pool.map(try_one, in_order(mutants)))
    return broken.result()


class Seen:
    """What has been found so far: verdicts of mutants, and tests that pass without one. Kept in a file, where there is one,
    so that a run which is interrupted can be gone on with. Thread-safe."""

    HEAD = ["| Mutant | Breaks | Tests that must fail | Verdict |", "|---|---|---|---|"]
    SOUND = "Pass without a mutant:"

    def __init__(self, file=None):
        self.file, self.rows, self.sound, self.lock = file, {}, set(), threading.Lock()

    def go_on(self, mutants):
        """Takes up what the file says of these. Returns those that are still to be tried."""
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file and self.file.is_file() else []
        self.sound = {line[3:-1] for line in lines if line.startswith("- `")}
        for mutant in mutants:
            begin = self.row_before_verdict(mutant)
            self.rows |= {mutant: line[len(begin):-2] for line in lines if line.startswith(begin + "caught")}
        return [mutant for mutant in mutants if mutant not in self.rows]

    def saw(self, mutant, verdict, seconds):
        with self.lock:
            self.rows[mutant] = verdict
            print(f"{mutant.name} ({seconds:.0f} s): {verdict}", flush=True)
            self.write()

    def saw_sound(self, test):
        with self.lock:
            self.sound.add(test)
            self.write()

    @staticmethod
    def row_before_verdict(mutant):
        tests = "<br>".join(f"`{test}`" for test in mutant.tests)
        return f"| {mutant.name} | {mutant.breaks} | {tests} | "

    def write(self):
        """What caught what, as Markdown."""
        if self.file:
            rows = [f"{self.row_before_verdict(mutant)}{verdict.splitlines()[0]} |"
                    for mutant, verdict in sorted(self.rows.items(), key=lambda row: row[0].name)]
            sound = [f"- `{test}`" for test in sorted(self.sound)]
            self.file.write_text("\n".join([*self.HEAD, *rows, "", self.SOUND, *sound, ""]), encoding="utf-8")


def run(mutants, workers, seen, goes_on):
    left = seen.go_on(mutants) if goes_on else mutants
    targets = sorted({target for mutant in mutants for target in mutant.targets})
    copies = [Copy(number) for number in range(min(workers, max(1, len(left))))]
    print(f"building {len(copies)} copies in {COPIES.relative_to(ROOT)}", flush=True)
    for copy in copies:
        copy.prepare(targets)
    broken = try_all(copies, left, seen, tried=set(mutants) - set(left))
    for test in broken:
        print(f"failed: without any mutant: {test}", flush=True)
    for mutant in mutants:
        seen.rows[mutant] = verdict_without(mutant, seen.rows[mutant], broken)
    seen.write()
    caught = sum(seen.rows[mutant].startswith("caught") for mutant in mutants)
    print(f"{caught} passed, {len(mutants) - caught} failed, 0 skipped")
    return 0 if caught == len(mutants) else 1


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", nargs="?", const="", metavar="BUILD")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--go-on", action="store_true")
    parser.add_argument("--workers", type=int, default=max(2, (os.cpu_count() or 1) // 2))
    return parser.parse_args()


def main():
    arguments = read_arguments()
    try:
        mutants = [read_mutant(path) for path in sorted(HERE.glob("*/*.patch"))]
    except Unusable as why:
        print(why)
        print("0 passed, 1 failed, 0 skipped")
        return 1
    for name in arguments.names:
        if not any(mutant.name == name or mutant.name.startswith(name + "/") for mutant in mutants):
            sys.exit(f"no mutant or area is called '{name}' (--list names them)")
    if arguments.names:
        mutants = [mutant for mutant in mutants
                   if any(mutant.name == name or mutant.name.startswith(name + "/") for name in arguments.names)]
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.name}: {mutant.breaks}")
        return 0
    if arguments.check is not None:
        faults = check(mutants, pathlib.Path(arguments.check).resolve() if arguments.check else None)
        bad = {fault.partition(":")[0] for fault in faults}
        print("\n".join([*faults, f"{len(mutants) - len(bad)} passed, {len(bad)} failed, 0 skipped"]))
        return 1 if faults or not mutants else 0
    return run(mutants, max(1, arguments.workers), Seen(arguments.record), arguments.go_on)


if __name__ == "__main__":
    sys.exit(main())
