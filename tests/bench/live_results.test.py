#!/usr/bin/python3
"""Tests of live_bench.py's runs, arithmetic and tables: by hand, with a program that only writes what a run leaves."""

import contextlib
import io
import json
import os
import pathlib
import stat
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import live_bench
import live_configurations
import live_results
import live_tables

UNEVEN, EVEN = "llm-heavy, uneven data", "llm-heavy, even data"

# Stands for the binary: steps of 100 ms after two of 900, one device with 60 ms of work, the other with 80; refuses
# one policy.
PROGRAM = r"""#!/usr/bin/python3
import json, pathlib, sys
if sys.argv[1] == "--version":
    print("troupe 0.1.0 (abc123)")
    sys.exit(0)
job = dict(word.split("=", 1) for word in sys.argv[3:])
if job["balancer.policy"] == "dflop":
    sys.exit("first line\nno room for sample 7")
run = pathlib.Path(job["job.run_dir"])
run.mkdir(exist_ok=True)
steps = range(1, int(job["train.steps"]) + 1)
(run / "metrics.jsonl").write_text("".join(json.dumps(
    {"step": step, "step_ms": 900 if step <= 2 else 100, "profile_step_ms": 120, "predicted_step_ms": 95,
     "plan_wait_ms": step, "activation_bytes": 99, "promised_activation_bytes": 100,
     "activations_over_promise": 1.02}) + "\n" for step in steps))
(run / "trace.json").write_text(json.dumps(
    [{"ph": "M", "pid": 1, "tid": 1}] +
    [{"ph": "X", "cat": cat, "pid": pid, "tid": 1, "dur": dur, "tdur": dur / 2, "args": {"step": step}}
     for step in steps for cat, pid, dur in (("compute", 1, 60000), ("compute", 2, 70000), ("update", 2, 10000),
                                             ("wait", 1, 500000))]))
"""


def record(schedule, policy, run, step_ms, busiest_ms, configuration=UNEVEN, profile=1.0, calibrated=1.0):
    return {"configuration": configuration, "schedule": schedule, "policy": policy, "run": run, "steps": 4,
            "commit": "abc", "machine": "m", "steps_ms": [step_ms - 5, step_ms + 5], "busiest_ms": busiest_ms,
            "profile": profile, "calibrated": calibrated, "plan_wait_ms": 0, "memory": 1.0}


class Arithmetic(unittest.TestCase):
    def test_a_share_is_what_is_saved_of_what_could_be(self):
        # Between 200 and the bound of 150 lie 50; 160 saves 40 of them, 210 loses 10.
        self.assertEqual(live_results.share(200, 160, 150), 0.8)
        self.assertEqual(live_results.share(200, 210, 150), -0.2)
        self.assertIsNone(live_results.share(150, 140, 150))

    def test_medians_count_and_the_least_of_them_is_the_bound(self):
        # Busiest device: medians 151 and 150, although single runs had 120 and 149.
        records = [record("1f1b", "random", run, step, busiest)
                   for run, (step, busiest) in enumerate([(200, 151), (230, 120), (190, 160)])]
        records += [record("gpipe", "auto", run, step, busiest)
                    for run, (step, busiest) in enumerate([(170, 150), (160, 152), (300, 149)])]
        table = live_results.rows(records, UNEVEN)
        self.assertEqual(table["1f1b", "random"].step_ms, 200)
        self.assertEqual(table["gpipe", "auto"].step_ms, 170)
        self.assertEqual(table["gpipe", "auto"].runs, 3)
        self.assertEqual(live_results.bound(table).busiest_ms, 150)
        self.assertEqual(live_results.bound(table).schedule, "gpipe")
        self.assertEqual(live_results.rows(records, EVEN), {})

    def test_devices_that_share_cores_are_bounded_by_processor_time(self):
        self.assertEqual(live_results.busiest_ms([60, 80], [30, 40], cores=2), 80)
        # 30 + 40 + 50 + 60 = 180 ms on two cores; on three a device alone has as much as an even share.
        self.assertEqual(live_results.busiest_ms([90] * 4, [30, 40, 50, 60], cores=2), 90)
        self.assertEqual(live_results.busiest_ms([90] * 4, [30, 40, 50, 60], cores=3), 60)
        self.assertEqual(live_results.busiest_ms([90] * 4, [10, 10, 10, 60], cores=2), 60)

    def test_a_goal_is_held_by_the_best_policy_under_the_same_schedule(self):
        # Bound 100. Under 1F1B dflop saves 79 of 100, under eager 80 of 100: of 1F1B's random order that were 130 of 150.
        table = live_results.rows([
            record("1f1b", "random", 0, 200, 150), record("1f1b", "dflop", 0, 121, 100), record("1f1b", "auto", 0, 130, 110),
            record("eager-1f1b", "random", 0, 250, 150), record("eager-1f1b", "auto", 0, 130, 120)], UNEVEN)
        self.assertEqual(live_results.schedule_verdict(UNEVEN, table, "1f1b"), "dflop, 79 %; goal 80 %: missed")
        self.assertEqual(live_results.schedule_verdict(UNEVEN, table, "eager-1f1b"), "auto, 80 %; goal 80 %: reached")
        self.assertIsNone(live_results.schedule_verdict(UNEVEN, table, "gpipe"))

    def test_on_even_data_the_slowest_policy_counts(self):
        table = live_results.rows([record("1f1b", policy, 0, step, 90, EVEN)
                                   for policy, step in (("random", 98), ("auto", 90), ("disttrain", 101))], EVEN)
        self.assertEqual(live_results.schedule_verdict(EVEN, table, "1f1b"),
                         "slowest: disttrain, 0.97x; goal 0.98x: missed")

    def test_a_peer_is_neither_a_policy_nor_a_bound(self):
        table = live_results.rows([
            record("1f1b", "random", 0, 200, 150), record("1f1b", "auto", 0, 150, 140),
            {"configuration": UNEVEN, "schedule": "1f1b", "policy": live_results.PEER, "run": 0, "steps": 4,
             "commit": "abc", "machine": "m", "steps_ms": [60, 60], "padded": 2}], UNEVEN)
        self.assertEqual(live_results.bound(table).policy, "auto")
        self.assertEqual([row.policy for row in live_results.policies_under(table, "1f1b")], ["auto"])
        self.assertEqual(live_results.mixed_best(table)[0].policy, "auto")
        self.assertEqual(live_results.names(table), (["1f1b"], ["random", "auto"]))

    def test_predictions_off_by_more_than_a_tenth_are_misses(self):
        self.assertEqual(live_results.prediction_verdict([0.85, 1.0, 1.09, None, 1.2]),
                         "0.85 to 1.20; goal within 10 %: missed by 2 of 4")
        self.assertEqual(live_results.prediction_verdict([0.95, 1.05]), "0.95 to 1.05; goal within 10 %: reached")
        self.assertIsNone(live_results.prediction_verdict([None]))
        # Errors 0.2, 0.1, 0.05.
        self.assertAlmostEqual(live_results.median_error([{"profile": 1.2}, {"profile": 0.9}, {"profile": 1.05}], "profile"),
                               0.1)


class Configurations(unittest.TestCase):
    """Old configurations stand as they were when they were replaced."""

    def test_first_forms_are_those_of_the_first_bench(self):
        self.assertEqual(live_configurations.FORMS["encoder-heavy, first"].overrides(), [
            'parallel.pipelines=[{stages=[{node=0,vision="all",audio="all"},{node=1,llm=[0,8]}]}]', "cluster.local_nodes=2",
            "data.max_pixels=100352", "modules.vision.config.depth=8", "modules.llm.config.num_hidden_layers=6",
            "train.global_batch_size=32", "train.microbatches=8"])
        self.assertEqual(live_configurations.FORMS["llm-heavy, first"].overrides(), [
            'parallel.pipelines=[{stages=[{node=0,vision="all",audio="all",llm=[0,5]},{node=1,llm=[5,14]}]}]',
            "cluster.local_nodes=2", "data.max_pixels=100352", "modules.vision.config.depth=4",
            "modules.llm.config.num_hidden_layers=12", "train.global_batch_size=32", "train.microbatches=8"])

    def test_the_second_form_missed_its_goal(self):
        self.assertEqual(live_configurations.FORMS["llm-heavy, second"].overrides(), [
            'parallel.pipelines=[{stages=[{node=0,vision="all",audio="all",llm=[0,4]},{node=1,llm=[4,12]}]}]',
            "cluster.local_nodes=2", "data.max_pixels=100352", "modules.vision.config.depth=3",
            "modules.llm.config.num_hidden_layers=10", "train.global_batch_size=16", "train.microbatches=16"])

    def test_a_job_file_as_it_is_has_no_overrides(self):
        self.assertEqual(live_configurations.overrides("real-mini.toml", "unused"), [])

    def test_every_policy_stands_under_every_schedule_but_where_it_is_said(self):
        rows = live_configurations.rows_of(live_configurations.SCHEDULES, live_configurations.POLICIES)
        self.assertEqual(len(rows), 8 * 5 + 1)
        self.assertIn(("1f1b", "hierarchical"), rows)
        self.assertIn(("three-phase", "deferral"), rows)

    def test_names_are_patterns(self):
        self.assertEqual(live_configurations.matching(["llm-heavy, s*", "real*"]),
                         ["llm-heavy, second, uneven data", "llm-heavy, second, even data", "real-mini.toml"])
        self.assertEqual(live_configurations.matching(["*"]), list(live_configurations.CONFIGURATIONS))
        with self.assertRaisesRegex(ValueError, "no configuration 'llama'"):
            live_configurations.matching(["*", "llama"])


class Files(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = pathlib.Path(scratch.name) / "results"

    def test_half_a_last_line_is_cut_off(self):
        self.assertEqual(live_results.read(self.path), [])
        live_results.append(self.path, {"a": 1})
        with open(self.path, "a", encoding="utf-8") as file:
            file.write('{"b": "ü')
        self.assertEqual(live_results.read(self.path), [{"a": 1}])
        live_results.append(self.path, {"c": 2})
        self.assertEqual(live_results.read(self.path), [{"a": 1}, {"c": 2}])

    def test_a_broken_line_is_named(self):
        self.path.write_text('{"a": 1}\n{"b"\n{"c": 2}\n', encoding="utf-8")
        with self.assertRaisesRegex(ValueError, "results:2: not valid JSON"):
            live_results.read(self.path)


class Runs(unittest.TestCase):
    """The whole program, with PROGRAM for the binary."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        program = self.folder / "troupe"
        program.write_text(PROGRAM, encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.results = self.folder / "results"
        for patch in (mock.patch.object(live_bench, "BINARY", program),
                      mock.patch.object(live_bench, "MEDIA", self.folder),
                      mock.patch.object(os, "sched_getaffinity", lambda _: {0, 1})):
            patch.start()
            self.addCleanup(patch.stop)

    def bench(self, *words):
        """(exit code, standard output, standard error)."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.object(sys, "argv", ["live_bench.py", *words]), contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            code = live_bench.main()
        return code, out.getvalue(), err.getvalue()

    def records(self):
        return live_results.read(self.results)

    def test_a_run_leaves_its_measures(self):
        code, out, _ = self.bench("--policies", "random", "--schedules", "gpipe", "--runs", "1", "--steps", "4",
                                  "--results", str(self.results), UNEVEN)
        self.assertEqual(code, 0)
        (found,) = self.records()
        # After two steps that warm up: 70 + 10 ms on the second device, in waits nothing; 120 and 95 told for 100 ms.
        self.assertEqual(found["steps_ms"], [100, 100])
        self.assertEqual(found["busiest_ms"], 80)
        self.assertEqual((found["profile"], found["calibrated"]), (1.2, 0.95))
        self.assertEqual((found["plan_wait_ms"], found["memory"]), (4, 1.02))
        self.assertEqual((found["commit"], found["steps"]), ("abc123", 4))
        line = json.loads(out)
        self.assertEqual((line["measure"], line["value"], line["bound"]), (f"step, {UNEVEN}, random, gpipe", 100, 80))

    def test_the_calibrated_prediction_has_two_names(self):
        self.assertEqual(live_bench.calibrated_ms({"predicted_step_ms": 7}), 7)
        self.assertEqual(live_bench.calibrated_ms({"predicted_step_ms": 7, "calibrated_step_ms": 8}), 8)

    def test_what_a_file_has_is_not_run_again(self):
        words = ["--schedules", "1f1b,gpipe", "--steps", "4", "--results", str(self.results), UNEVEN]
        self.bench("--policies", "random", "--runs", "1", *words)
        _, _, err = self.bench("--policies", "random,auto", "--runs", "2", *words)
        self.assertIn("nothing left to run", err)
        self.assertEqual([(r["schedule"], r["policy"], r["run"]) for r in self.records()], [
            ("1f1b", "random", 0), ("gpipe", "random", 0), ("1f1b", "auto", 0), ("gpipe", "auto", 0),
            ("1f1b", "random", 1), ("1f1b", "auto", 1), ("gpipe", "random", 1), ("gpipe", "auto", 1)])

    def test_no_run_begins_when_time_is_up(self):
        code, _, err = self.bench("--minutes", "0", "--steps", "4", "--results", str(self.results), UNEVEN)
        self.assertEqual((code, self.records()), (0, []))
        self.assertIn("33 of 33 runs left", err)  # 3 turns of 6 policies under 1F1B and 5 under eager 1F1B.

    def test_steps_are_not_mixed_in_a_file(self):
        words = ["--policies", "random", "--schedules", "1f1b", "--runs", "1", "--results", str(self.results), UNEVEN]
        self.bench("--steps", "4", *words)
        with self.assertRaisesRegex(SystemExit, "has runs of 4 steps"):
            self.bench("--steps", "5", *words)

    def test_what_is_refused_is_told_and_shown(self):
        code, out, err = self.bench("--policies", "random,dflop", "--schedules", "1f1b", "--runs", "1", "--steps", "4",
                                    "--results", str(self.results), UNEVEN)
        self.assertEqual((code, len(out.splitlines())), (1, 1))
        self.assertIn(f"{UNEVEN}, dflop, 1f1b: no room for sample 7", err)
        _, table, _ = self.bench("--table", str(self.results))
        self.assertIn(f"- {UNEVEN}, `dflop` under 1f1b: no room for sample 7", table)


class Tables(unittest.TestCase):
    def test_policies_and_schedules_stand_apart_with_misses(self):
        # By hand, bound 100: under 1F1B auto saves 60 of 100, under gpipe 140 of 150; under auto gpipe saves 30 of the
        # 40 that 1F1B leaves; under random it loses 50 of 100.
        # (auto's profile said 0.8 of a step here until such a row counted as disturbed.)
        text = live_tables.markdown([
            record("1f1b", "random", 0, 200, 150), record("1f1b", "auto", 0, 140, 100, profile=0.88),
            record("gpipe", "random", 0, 250, 150), record("gpipe", "auto", 0, 110, 120, calibrated=1.3)])
        lines = text.splitlines()
        self.assertIn("| policy | 1f1b | gpipe |", lines)
        self.assertIn("| `auto` | 140 ms, 1.43x, 60 % | 110 ms, 2.27x, 93 % |", lines)
        self.assertIn("| goal | auto, 60 %; goal 80 %: missed | auto, 93 %; goal 80 %: reached |", lines)
        self.assertIn("| `random` | 200 ms | 250 ms, 0.80x, -50 % |", lines)
        self.assertIn("| `auto` | 140 ms | 110 ms, 1.27x, 75 % |", lines)
        self.assertIn("| llm-heavy, uneven data | 200 | 100 | `auto` 140 | 1.43x | auto, 60 %; goal 80 %: missed | "
                      "1.82x (`auto`, gpipe) |", lines)
        self.assertIn("Bound: 100 ms, the busiest device's work of `auto` under 1f1b.", lines)
        first, second = [line for line in lines if "predicted / measured" in line]
        self.assertEqual(first, "By the profile, predicted / measured 0.88 to 1.00; goal within 10 %: missed by 1 of 4.")
        self.assertEqual(second, "With speeds of the steps before, predicted / measured 1.00 to 1.30; goal within 10 %: "
                                 "missed by 1 of 4.")
        self.assertTrue(lines[0].startswith("4 runs; steps of a run: 4; commit abc (4 runs)"))

    def test_what_rests_on_a_disturbed_row_is_marked(self):
        # Random order under gpipe takes 1.25 times as long as its profile says, the others as long.
        lines = live_tables.markdown([
            record("1f1b", "random", 0, 200, 150), record("1f1b", "auto", 0, 140, 100),
            record("gpipe", "random", 0, 250, 150, profile=0.8), record("gpipe", "auto", 0, 110, 120)]).splitlines()
        self.assertIn("| `random` | 200 ms | 250 ms † |", lines)
        self.assertIn("| `auto` | 140 ms, 1.43x, 60 % | 110 ms, 2.27x, 93 % † |", lines)
        self.assertIn("| goal | auto, 60 %; goal 80 %: missed | auto, 93 %; goal 80 %: reached † |", lines)
        self.assertIn("| `random` | 200 ms | 250 ms, 0.80x, -50 % † |", lines)
        self.assertIn("| `auto` | 140 ms | 110 ms, 1.27x, 75 % |", lines)
        self.assertTrue([line for line in lines if line.startswith("†: rests on a row that was disturbed (1 of 4)")])

    def test_a_row_that_was_not_measured_is_a_dash(self):
        lines = live_tables.markdown([record("1f1b", "random", 0, 200, 150), record("1f1b", "auto", 0, 140, 100),
                                      record("gpipe", "auto", 0, 110, 120)]).splitlines()
        self.assertIn("| `random` | 200 ms | - |", lines)
        self.assertIn("| goal | auto, 60 %; goal 80 %: missed | - |", lines)

    def test_the_peer_stands_beside_the_best_policy_under_its_schedule(self):
        peer = {"configuration": UNEVEN, "schedule": "1f1b", "policy": live_results.PEER, "run": 0, "steps": 4,
                "commit": "abc", "machine": "m", "steps_ms": [160, 160], "padded": 2}
        text = live_tables.markdown([record("1f1b", "random", 0, 200, 150), record("1f1b", "auto", 0, 140, 100),
                                     record("gpipe", "auto", 0, 110, 120), peer])
        self.assertIn(f"{live_results.PEER} under 1F1B takes 160 ms, `auto` 140: 1.14x; goal 1.2x: missed.", text)

    def test_layouts_show_the_profiles_error_first(self):
        text = live_tables.markdown([
            {"prediction": "a | b", "step_ms": 400 + 10 * run, "profile": profile, "calibrated": 1.02}
            for run, profile in enumerate((0.85, 1.11, 1.12))])
        self.assertIn(r"| a \| b | 3 | 410 | 12.0 %: missed | 2.0 %: reached |", text)


if __name__ == "__main__":
    unittest.main()
