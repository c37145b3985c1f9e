#!/usr/bin/python3
"""What building takes: a target's edges in one build folder, or in two beside each other, and builds from scratch.

    build_bench.py [--target NAME] [BUILD]            # default: TROUPE_BUILD, or build/release
    build_bench.py [--target NAME] BEFORE AFTER
    build_bench.py [--target NAME] [--folder DIR] [--jobs N] --commit SHA [--commit SHA]     # before, after
    (each with [--record FILE])

Of folders: seconds of every edge that the target needs, by .ninja_log (its last entry of an output counts) and
`ninja -t inputs`. These are wall-clock, so they hold what ran beside, and an object from ccache took as long as it took to
fetch. Told are sums, the ten slowest, sums by folder, and with two builds those of edges that both have.

`--commit` clones this repository into a scratch folder, configures the preset `release` there, and builds the target
without ccache: processor time (user and system, of all that the build starts) is what is held against the goal, that a
build from scratch takes no longer than before. Two builds run one after the other. The first configuring of a commit may
install what `scripts/setup` finds missing; it does not count.
"""

import argparse
import collections
import json
import os
import pathlib
import posixpath
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import kept_results
from run_benches import EXIT_SKIPPED, ROOT

SLOWEST = 10
GOAL = 1.0  # Of the build before.
LIMIT_S = 2 * 3600  # Of a build from scratch.
PRESET = "release"
MADE = (".o", ".a", ".gch")  # Never a source; libraries of others have whole paths.
Edge = collections.namedtuple("Edge", "name folder seconds is_compile")
Build = collections.namedtuple("Build", "label edges missing")


class Failed(Exception):
    """A build, or a question about one, that has no answer."""


# ---- what a folder says ------------------------------------------------------------------------------

def read_log(text):
    """(begin, end, hash) in milliseconds by output. A later entry of an output replaces the one before."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("# ninja log v"):
        raise Failed("no log of ninja: it begins with '# ninja log v'")
    entries = {}
    for line in lines[1:]:
        fields = line.split("\t")
        if len(fields) == 5:  # One that is cut off is of a build that was killed.
            entries[fields[3]] = (int(fields[0]), int(fields[1]), fields[4])
    return entries


def outputs_of(folder, target):
    """All that the target is made of, and itself."""
    done = subprocess.run(["ninja", "-C", str(folder), "-t", "inputs", target], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Failed(f"{folder}: ninja knows no target '{target}': {(done.stderr or done.stdout).strip()}")
    return {target, *(word for line in done.stdout.splitlines() for word in shlex.split(line))}


def name_of(output):
    """(name, folder) of what CMake calls FOLDER/CMakeFiles/TARGET.dir/SOURCE.o: FOLDER/SOURCE, where `__` is the folder above.
    Precompiled headers keep the name of their target: their files are all called alike."""
    keeps_target = output.endswith(".gch")
    path = re.sub(r"(^|/)CMakeFiles/([^/]*)\.dir/", r"\1\2/" if keeps_target else r"\1", output)
    name = posixpath.normpath(re.sub(r"\.o$", "", path).replace("/__/", "/../"))
    return name, posixpath.dirname(name) or "."


def edges_of(entries, outputs):
    """Edges of these outputs. One that makes several has an entry for each, all alike."""
    edges = {}
    for output in sorted(outputs & set(entries)):
        begin, end, key = entries[output]
        edges.setdefault((begin, end, key), Edge(*name_of(output), (end - begin) / 1e3, output.endswith((".o", ".gch"))))
    return list(edges.values())


def read_build(folder, target, label=None):
    log = folder / ".ninja_log"
    if not log.is_file():
        raise Failed(f"{folder}: no .ninja_log, so nothing was built here by ninja")
    outputs, entries = outputs_of(folder, target), read_log(log.read_text(encoding="utf-8"))
    missing = sorted(output for output in outputs - set(entries) if not output.startswith("/") and output.endswith(MADE))
    return Build(label or folder.name, edges_of(entries, outputs), missing)


def total(edges):
    return sum(edge.seconds for edge in edges)


def by_folder(edges):
    sums = collections.Counter()
    for edge in edges:
        sums[edge.folder] += edge.seconds
    return sums


def in_both(before, after):
    """(edges of the one, edges of the other) that have a name in common."""
    names = {edge.name for edge in before} & {edge.name for edge in after}
    return [[edge for edge in edges if edge.name in names] for edges in (before, after)]


# ---- from scratch ------------------------------------------------------------------------------------

def call(words, cwd, environment=None):
    """Runs it to its end, which comes after LIMIT_S at the latest, with all that it started."""
    with subprocess.Popen(words, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          start_new_session=True) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f"{' '.join(words)}: not done after {LIMIT_S} s") from None
            raise
    if process.returncode != 0:
        raise Failed(f"{' '.join(words)}: exit code {process.returncode}\n{said[-2000:]}")
    return said


def used_s():
    """User and system time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def full_name(sha):
    try:
        return call(["git", "rev-parse", "--verify", f"{sha}^{{commit}}"], ROOT).strip()
    except Failed:
        raise Failed(f"--commit {sha}: no commit of this repository") from None


def build_commit(sha, target, folder, jobs):
    """(build, processor seconds, seconds) of a commit, from scratch."""
    sources = folder / sha[:12]
    call(["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(sources)], folder)
    call(["git", "checkout", "-q", sha], sources)
    # As scripts/build does, which would count what setting up and configuring take.
    call(["bash", "-ec", f"source scripts/lib/common.sh; scripts/setup; export TORCH_DIR; cmake --preset {PRESET}"], sources)
    begin, used = time.monotonic(), used_s()
    call(["cmake", "--build", "--preset", PRESET, "--target", target, "-j", str(jobs)], sources,
         {**os.environ, "CCACHE_DISABLE": "1"})
    return read_build(sources / "build" / PRESET, target, sha[:12]), used_s() - used, time.monotonic() - begin


# ---- what it says ------------------------------------------------------------------------------------

def count_words(build):
    compiled = sum(edge.is_compile for edge in build.edges)
    return f"{build.label}: {len(build.edges)} edges, {compiled} of them compile"


def tell(builds):
    """Tables of one build, or of two beside each other."""
    heads = [build.label for build in builds]
    after = builds[-1]
    seconds = [{edge.name: edge.seconds for edge in build.edges} for build in builds]

    def table(first, names, columns):
        print(f"\n| {first} | " + " | ".join(f"{head}, s" for head in heads) + (" | change, s |" if len(builds) == 2 else " |"))
        print("|---" * (1 + len(heads) + (len(builds) == 2)) + "|")
        for name in names:
            values = [column.get(name) for column in columns]
            cells = ["-" if value is None else f"{value:.1f}" for value in values]
            if len(values) == 2:
                cells.append(f"{(values[1] or 0) - (values[0] or 0):+.1f}")
            print(f"| {name} | " + " | ".join(cells) + " |")

    slowest = sorted(after.edges, key=lambda edge: (-edge.seconds, edge.name))[:SLOWEST]
    table(f"The {len(slowest)} slowest of {after.label}", [edge.name for edge in slowest], seconds)
    folders = [by_folder(build.edges) for build in builds]
    table("Folder", sorted(set().union(*folders), key=lambda name: -max(sums[name] for sums in folders)), folders)
    if len(builds) == 2:
        both = in_both(builds[0].edges, builds[1].edges)
        print(f"\nIn both: {len(both[0])} edges, {total(both[0]):.1f} s and {total(both[1]):.1f} s; only in {heads[0]} "
              f"{len(builds[0].edges) - len(both[0])}, only in {heads[1]} {len(after.edges) - len(both[1])}")
    sys.stdout.flush()


def report_edges(target, builds):
    """Sums over the edges of each, without a goal: what they took depends on what ran beside."""
    row = {"measure": f"edges of {target}, by the log of ninja", "value": round(total(builds[-1].edges), 3), "unit": "s",
           "better": "lower", "size": "; ".join(count_words(build) for build in builds)}
    if len(builds) == 2:
        row["bound"] = round(total(builds[0].edges), 3)
        both = in_both(builds[0].edges, builds[1].edges)
        kept_results.emit({**row, "measure": f"edges of {target} that both have, by the log of ninja",
                           "value": round(total(both[1]), 3), "bound": round(total(both[0]), 3),
                           "size": f"{builds[0].label}, {builds[1].label}: {len(both[1])} edges"})
    kept_results.emit(row)


def report_commits(target, built, jobs):
    """Processor time of builds from scratch; of two, whether the later one takes no longer."""
    used = [taken[1] for taken in built]
    row = {"measure": f"processor time of {target} from scratch, without ccache", "value": round(used[-1], 1), "unit": "s",
           "better": "lower", "size": f"{', '.join(taken[0].label for taken in built)}; {jobs} jobs; " +
                                      ", ".join(f"{taken[2]:.0f}" for taken in built) + " s by the clock"}
    if len(used) == 2:
        row |= {"bound": round(GOAL * used[0], 1), "goal": "met" if used[1] <= GOAL * used[0] else "MISSED"}
    kept_results.emit(row)


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="*", type=pathlib.Path, metavar="BUILD", help="build folders: one, or before and after")
    parser.add_argument("--target", default="troupe", metavar="NAME")
    parser.add_argument("--commit", action="append", default=[], metavar="SHA", help="build it from scratch; twice: before, after")
    parser.add_argument("--folder", type=pathlib.Path, help="where to build commits; default: the system's")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="default: as many as cores")
    kept_results.add_option(parser)
    arguments = parser.parse_args()
    if arguments.commit and arguments.builds:
        parser.error("give build folders or --commit, not both")
    if max(len(arguments.commit), len(arguments.builds)) > 2:
        parser.error("two builds are compared at most: the one before, then the one after")
    return arguments


def measure_commits(arguments, commits):
    with tempfile.TemporaryDirectory(prefix="troupe-build-bench-", dir=arguments.folder) as folder:
        built = [build_commit(sha, arguments.target, pathlib.Path(folder), arguments.jobs) for sha in commits]
    tell([taken[0] for taken in built])
    report_edges(arguments.target, [taken[0] for taken in built])
    report_commits(arguments.target, built, arguments.jobs)


def measure_folders(arguments, folders):
    builds = [read_build(folder, arguments.target, label) for folder, label in folders]
    for build in builds:
        if build.missing:
            raise Failed(f"{build.label}: {len(build.missing)} files of {arguments.target} were not built here, "
                         f"{build.missing[0]} among them: build it whole first")
    tell(builds)
    report_edges(arguments.target, builds)


def main():
    arguments = read_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    default = [] if arguments.builds else [pathlib.Path(os.environ.get("TROUPE_BUILD", ROOT / "build" / PRESET))]
    folders = [folder.resolve() for folder in arguments.builds or default]
    if default and not arguments.commit and not (folders[0] / ".ninja_log").is_file():
        print("skipped: nothing is built here", file=sys.stderr)
        return EXIT_SKIPPED
    labels = ["before", "after"] if len(folders) == 2 else [arguments.target]
    try:
        commits = [full_name(sha) for sha in arguments.commit]
        commit = commits[-1][:12] if commits else kept_results.commit_of(folders[-1] / "troupe")
        with kept_results.recorded(arguments.record, commit):
            if commits:
                measure_commits(arguments, commits)
            else:
                measure_folders(arguments, zip(folders, labels))
    except Failed as failed:
        print(f"build_bench: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
