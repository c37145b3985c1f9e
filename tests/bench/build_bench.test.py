#!/usr/bin/python3
"""Tests of build_bench.py: with build folders that are two text files, made here. Nothing is built."""

import contextlib
import io
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import build_bench
import kept_results

# `troupe` of a library and its own source; `other` is no part of it.
GRAPH = """
rule any
  command = true $out
build lib/CMakeFiles/lib.dir/a.cpp.o: any
build lib/CMakeFiles/lib.dir/__/shared/b.cpp.o: any
build lib/liblib.a: any lib/CMakeFiles/lib.dir/a.cpp.o lib/CMakeFiles/lib.dir/__/shared/b.cpp.o
build app/facts.hpp app/facts.txt: any
build CMakeFiles/ready.dir/cmake_pch.hxx.gch: any
build app/CMakeFiles/troupe.dir/main.cpp.o: any | app/facts.hpp || CMakeFiles/ready.dir/cmake_pch.hxx.gch
build troupe: any app/CMakeFiles/troupe.dir/main.cpp.o lib/liblib.a
build tests/CMakeFiles/other.dir/x.cpp.o: any
build other: any tests/CMakeFiles/other.dir/x.cpp.o lib/liblib.a
"""
# Milliseconds. a.cpp was built twice: 9 s, then 2 s. facts.hpp and facts.txt are of one edge.
LOG = """# ninja log v5
0\t9000\t1\tlib/CMakeFiles/lib.dir/a.cpp.o\taaaa
0\t3000\t1\tlib/CMakeFiles/lib.dir/__/shared/b.cpp.o\tbbbb
3000\t3100\t1\tlib/liblib.a\tcccc
0\t200\t1\tapp/facts.hpp\tdddd
0\t200\t1\tapp/facts.txt\tdddd
0\t6000\t1\tCMakeFiles/ready.dir/cmake_pch.hxx.gch\teeee
6000\t10500\t1\tapp/CMakeFiles/troupe.dir/main.cpp.o\tffff
10500\t11500\t1\ttroupe\tgggg
0\t70000\t1\ttests/CMakeFiles/other.dir/x.cpp.o\thhhh
0\t2000\t2\tlib/CMakeFiles/lib.dir/a.cpp.o\taaaa
"""
SECONDS = {"lib/a.cpp": 2, "shared/b.cpp": 3, "lib/liblib.a": 0.1, "app/facts.hpp": 0.2, "ready/cmake_pch.hxx.gch": 6,
           "app/main.cpp": 4.5, "troupe": 1}


@unittest.skipUnless(shutil.which("ninja"), "needs ninja")
class BuildBench(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def folder(self, name="build", log=LOG):
        made = pathlib.Path(self.scratch.name) / name
        made.mkdir()
        (made / "build.ninja").write_text(GRAPH, encoding="utf-8")
        (made / ".ninja_log").write_text(log, encoding="utf-8")
        return made

    def run_main(self, *words, environment=None):
        """Exit code, rows and all that was printed."""
        begin = len(kept_results._reported)
        with mock.patch.object(sys, "argv", ["build_bench.py", *map(str, words)]), \
                mock.patch.dict("os.environ", environment or {}), \
                contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as errors:
            code = build_bench.main()
        return code, kept_results._reported[begin:], printed.getvalue() + errors.getvalue()

    def test_edges_are_the_targets_own_each_by_its_last_entry(self):
        build = build_bench.read_build(self.folder(), "troupe")
        self.assertEqual({edge.name: edge.seconds for edge in build.edges}, SECONDS)
        self.assertEqual(sorted(edge.name for edge in build.edges if edge.is_compile),
                         ["app/main.cpp", "lib/a.cpp", "ready/cmake_pch.hxx.gch", "shared/b.cpp"])
        self.assertEqual(build.missing, [])

    def test_sums_by_folder(self):
        sums = build_bench.by_folder(build_bench.read_build(self.folder(), "troupe").edges)
        self.assertEqual({name: round(value, 6) for name, value in sums.items()},
                         {"lib": 2.1, "shared": 3, "app": 4.7, "ready": 6, ".": 1})

    def test_a_line_that_is_cut_off_is_none(self):
        build = build_bench.read_build(self.folder(log=LOG + "0\t80000\t3\ttrou"), "troupe")
        self.assertEqual({edge.name: edge.seconds for edge in build.edges}, SECONDS)

    def test_two_builds_stand_beside_each_other(self):
        # After: main.cpp takes 1.5 s more, b.cpp is gone from the log and from the graph, new.cpp has come.
        after = self.folder("after", LOG.replace("10500\t1\tapp", "12000\t1\tapp").replace("shared/b.cpp", "shared/new.cpp"))
        (after / "build.ninja").write_text(GRAPH.replace("shared/b.cpp", "shared/new.cpp"), encoding="utf-8")
        code, rows, printed = self.run_main(self.folder("before"), after)
        self.assertEqual(code, 0)
        # Both: 2 + 0.1 + 0.2 + 6 + 4.5 + 1 = 13.8, and 15.3 after. All: 3 more of b.cpp, or of new.cpp.
        self.assertEqual([(row["value"], row["bound"]) for row in rows], [(15.3, 13.8), (18.3, 16.8)])
        self.assertIn("| app/main.cpp | 4.5 | 6.0 | +1.5 |", printed)
        self.assertIn("| shared/new.cpp | - | 3.0 | +3.0 |", printed)
        self.assertIn("| app | 4.7 | 6.2 | +1.5 |", printed)
        self.assertIn("In both: 6 edges, 13.8 s and 15.3 s; only in before 1, only in after 1", printed)

    def test_the_ten_slowest_are_told_with_the_slowest_first(self):
        _, rows, printed = self.run_main(self.folder())
        lines = printed.splitlines()
        at = lines.index("| The 7 slowest of troupe | troupe, s |")
        self.assertEqual([line.split(" | ")[0][2:] for line in lines[at + 2:at + 5]],
                         ["ready/cmake_pch.hxx.gch", "app/main.cpp", "shared/b.cpp"])
        self.assertEqual([row["size"] for row in rows], ["troupe: 7 edges, 4 of them compile"])
        self.assertNotIn("goal", rows[0])

    def test_what_cannot_be_compared_is_said(self):
        unbuilt = "".join(line + "\n" for line in LOG.splitlines() if "main.cpp" not in line)
        for words, said in (((self.folder("unbuilt", unbuilt),), "1 files of troupe were not built here, app/CMakeFiles/"),
                            ((self.folder("empty", ""),), "no log of ninja"),
                            (("--target", "troup", self.folder("misnamed")), "ninja knows no target 'troup'"),
                            ((pathlib.Path(self.scratch.name) / "nowhere",), "no .ninja_log"),
                            (("--commit", "no-such-commit"), "--commit no-such-commit: no commit of this repository")):
            code, rows, printed = self.run_main(*words)
            self.assertEqual((code, rows), (1, []), said)
            self.assertIn(said, printed)

    def test_nothing_built_by_default_is_skipped(self):
        code, _, _ = self.run_main(environment={"TROUPE_BUILD": str(pathlib.Path(self.scratch.name) / "none")})
        self.assertEqual(code, build_bench.EXIT_SKIPPED)

    def test_commits_are_held_against_the_goal_by_processor_time(self):
        built = build_bench.read_build(self.folder(), "troupe")
        for used, goal in (((100, 99), "met"), ((100, 100.5), "MISSED")):
            begin = len(kept_results._reported)
            with contextlib.redirect_stdout(io.StringIO()):
                build_bench.report_commits("troupe", [(built, seconds, 60) for seconds in used], 2)
            row = kept_results._reported[begin]
            self.assertEqual((row["value"], row["bound"], row["goal"]), (used[1], 100, goal))

    def test_what_children_used_counts_and_an_end_is_kept(self):
        before = build_bench.used_s()
        build_bench.call([sys.executable, "-c", "sum(range(3_000_000))"], self.scratch.name)
        self.assertGreater(build_bench.used_s(), before)
        with mock.patch.object(build_bench, "LIMIT_S", 0.1), self.assertRaisesRegex(build_bench.Failed, "not done after 0.1 s"):
            build_bench.call(["sleep", "60"], self.scratch.name)
        with self.assertRaisesRegex(build_bench.Failed, "exit code 3\nwhy"):
            build_bench.call(["sh", "-c", "echo why; exit 3"], self.scratch.name)


if __name__ == "__main__":
    unittest.main()
