"""What gpu-bench keeps of its steps, which it takes again, and what it makes of rows. No GPU and no torch are needed."""

import contextlib
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import unittest
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench" / "gpu"), str(ROOT / "scripts" / "lib")]
import curve
import curve_job
import idle_troupe
import llama_job
import llama_troupe
import machine
import masks
import mm_job
import results
import run_steps
import summary
from steps import Step, chosen, steps

ROW = '{"measure": "m", "peer": "%s"%s}'


def say(*rows, then="true"):
    return ["sh", "-c", "; ".join([*(f"echo '{row}'" for row in rows), then])]


class GpuBench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.folder.name) / "out"
        self.tar = pathlib.Path(self.folder.name) / "pack.tar"
        self.pack("one")
        self.environment = dict(os.environ)
        for name in [name for name in os.environ if name.startswith("GPU_BENCH_")]:
            del os.environ[name]
        os.environ.update(TORCH_DIR=self.folder.name, GPU_BENCH_STEP_S="20", PATH=f"{self.folder.name}:/usr/bin:/bin")
        self.steps, run_steps.steps = run_steps.steps, lambda *_: self.known
        self.known = {}

    def tearDown(self):
        run_steps.steps = self.steps
        os.environ.clear()
        os.environ.update(self.environment)
        self.folder.cleanup()

    def pack(self, name):
        with tarfile.open(self.tar, "w") as tar:
            tar.addfile(tarfile.TarInfo(name))

    def run_bench(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = run_steps.run(self.tar, self.out)
        told = json.loads((self.out / "gpu-bench.json").read_text(encoding="utf-8"))
        return code, {entry["step"]: entry for entry in told["steps"]}, said.getvalue()

    def test_a_step_leaves_its_rows_and_is_not_taken_again(self):
        count = pathlib.Path(self.folder.name) / "count"
        self.known = {"peers": Step(say(ROW % ("a", ""), "no row", then=f"echo >> {count}"))}
        code, entries, _ = self.run_bench()
        self.assertEqual((code, entries["peers"]["code"], entries["peers"]["rows"]), (0, 0, [{"measure": "m", "peer": "a"}]))
        self.assertIn("no row", (self.out / "gpu-bench.log").read_text(encoding="utf-8"))
        self.run_bench()
        self.assertEqual(count.read_text(), "\n")

    def test_a_cut_step_keeps_its_rows_and_the_next_try_is_told_them(self):
        os.environ["GPU_BENCH_STEP_S"] = "1.5"
        self.known = {"peers": Step(say(ROW % ("a", ""), then="sleep 30"))}
        code, entries, _ = self.run_bench()
        self.assertEqual((code, entries["peers"]["code"], len(entries["peers"]["rows"])), (1, "no end", 1))
        self.known = {"peers": Step(say(ROW % ("b", ""), then="cat $GPU_BENCH_HAVE"))}
        code, entries, _ = self.run_bench()
        self.assertEqual((code, [row["peer"] for row in entries["peers"]["rows"]]), (0, ["a", "b"]))
        self.assertIn('[{"measure": "m", "peer": "a"}]', (self.out / "gpu-bench.log").read_text(encoding="utf-8"))

    def test_rows_are_in_the_file_while_a_step_is_under_way(self):
        copy = pathlib.Path(self.folder.name) / "copy.json"
        self.known = {"peers": Step(say(ROW % ("a", ""), then=f"sleep 2.5; cp {self.out}/gpu-bench.json {copy}"))}
        self.run_bench()
        entry = json.loads(copy.read_text(encoding="utf-8"))["steps"][0]
        self.assertEqual((entry["code"], len(entry["rows"])), ("under way", 1))

    def test_another_build_takes_our_steps_again_and_leaves_those_of_others(self):
        self.known = {"ours": Step(say(ROW % ("a", "")), ours=True), "peers": Step(say(ROW % ("b", "")))}
        self.run_bench()
        self.pack("two")
        self.known = {name: Step(["false"], ours=step.ours) for name, step in self.known.items()}
        code, entries, _ = self.run_bench()
        self.assertEqual((code, entries["ours"]["code"], entries["peers"]["code"]), (1, 1, 0))

    def test_a_way_that_failed_is_tried_again_only_when_that_is_asked_for(self):
        self.known = {"peers": Step(say(ROW % ("a", ', "error": "no"'), ROW % ("b", "")))}
        self.assertIn("1 with errors", self.run_bench()[2])
        self.known = {"peers": Step(say(ROW % ("a", ', "forward_ms": 1')))}
        self.assertEqual(self.run_bench()[1]["peers"]["rows"][0]["error"], "no")
        os.environ["GPU_BENCH_AGAIN"] = "1"
        rows = self.run_bench()[1]["peers"]["rows"]
        self.assertEqual({row["peer"]: "error" in row for row in rows}, {"a": False, "b": False})

    def test_what_cannot_be_taken_says_why(self):
        self.known = {"later": Step([], skipped="not yet")}
        code, entries, said = self.run_bench()
        self.assertEqual((code, entries["later"]["code"], entries["later"]["skipped"]), (0, 77, "not yet"))
        self.assertIn("| later | not yet |", said)

    def test_steps_are_chosen_by_name_or_by_how_names_begin(self):
        known = list(steps(pathlib.Path("pack"), "cuda", False, 100))
        self.assertEqual(chosen(known, ["attention-troupe", "mm-2b"]), ["attention-troupe", "mm-2b-troupe", "mm-2b-transformers"])
        self.assertEqual(len(chosen(known, ["attention-peers"])), 5)
        with self.assertRaises(SystemExit):
            chosen(known, ["attention-peer"])


class Rows(unittest.TestCase):
    def test_a_failure_takes_no_measurements_place(self):
        good, bad = {"peer": "a", "forward_ms": 1}, {"peer": "a", "error": "no"}
        self.assertEqual(results.kept_rows({"rows": [good, bad, {"peer": "b", "error": "CUDA error: x"}]}),
                         [good, {"peer": "b", "error": "CUDA error: x"}])
        self.assertEqual(run_steps.merged([good], [bad]), [good])
        self.assertEqual(run_steps.merged([bad], [good]), [good])

    def test_both_rules_of_a_mask_agree(self):
        rng = random.Random(2)
        for mask in masks.MASKS:
            table = masks.tables_of(masks.samples_of(mask, 2048))
            names, ranges = masks.rule_by_names(mask, table), masks.rule_by_ranges(table)
            for _ in range(4000):
                q, k = rng.randrange(2048), rng.randrange(2048)
                self.assertEqual(bool(names(0, 0, q, k)), bool(ranges(0, 0, q, k)), (mask, q, k))

    def test_an_image_sees_itself_alone_and_text_all_before(self):
        sees = masks.rule_by_ranges(masks.tables_of(masks.samples_of("embedded", 1472)))
        # Text 0 to 159, an image 160 to 735, text 736 to 895, an image 896 to 1471.
        self.assertEqual([sees(0, 0, 160, k) for k in (159, 160, 735, 736)], [False, True, True, False])
        self.assertEqual([sees(0, 0, 740, k) for k in (0, 700, 740, 741)], [True, True, True, False])
        self.assertEqual([sees(0, 0, 1471, k) for k in (895, 896)], [False, True])
        self.assertEqual([tokens for tokens, _ in masks.samples_of("packed text", 2048)], [1024, 512, 256, 256])

    def test_the_last_eight_steps_are_measured(self):
        steps = [{"step_ms": ms, "tokens_per_s": 1000 / ms, "tokens": 5, "loss": 6.0} for ms in (99, 1, 2, 3, 4, 5, 6, 7, 8)]
        row = llama_troupe.measured(steps)
        self.assertEqual((row["step_ms"], row["step_ms_min"], row["step_ms_max"]), (4.5, 1, 8))
        self.assertIsNone(llama_troupe.measured(steps[1:]))

    def test_arithmetic_of_a_token(self):
        # Two layers of 128 x 32 x (2 x 4 + 2 x 2) and 3 x 128 x 256, a head of 128 x 512;
        # 64.5 pairs a token, 12 flops per layer and channel.
        self.assertEqual(llama_job.flops_per_token("small"), 6 * (2 * (49152 + 98304) + 65536) + 12 * 2 * 128 * 64.5)
        # Two norms of 128 in each of the two layers, and one behind them.
        self.assertEqual(llama_job.parameters("small"), 2 * (49152 + 98304 + 256) + 65536 + 128)
        self.assertEqual(llama_job.parameters("1b"), 1235814400)

    def test_kernels_are_held_against_the_memory(self):
        row = {"measure": "memory", "kernel": "AdamW", "bytes": 34 * 2**27, "ms": 1.6}  # 4.56 GB in 1.6 ms.
        self.assertIn("| AdamW | 1.600 | 2.85 | 85.1 % | reached |", summary.memory_table([row], "NVIDIA H100 80GB HBM3"))
        self.assertIn("| AdamW | 1.600 | 2.85 | 59.4 % | **missed** |", summary.memory_table([row], "NVIDIA H200"))
        self.assertIn("| AdamW | 1.600 | 2.85 | - | - |", summary.memory_table([row], "another"))
        self.assertNotIn("|", summary.memory_table([{"mask": "causal"}], "NVIDIA H200"))

    def test_a_program_that_is_not_packed_is_named_with_its_target(self):
        known = steps(pathlib.Path("pack"), "cuda", False, 100)
        self.assertIn("scripts/build release bench_gpu_memory)", known["memory-troupe"].skipped)
        self.assertEqual(known["attention-troupe"].command[1:], ["131072"])

    def test_goals_of_a_step_are_held_against_the_gpu_it_ran_on(self):
        # 1e9 parameters of 38 bytes in 20 ms are 1.9 TB/s: 0.567 of an H100's, 0.396 of an H200's.
        row = {"compute_ms_median": 76.0, "update_ms_median": 20.0, "step_ms": 100.0, "parameters": 1e9}
        self.assertAlmostEqual(summary.busy(row), 0.96)
        self.assertIsNone(summary.busy({"step_ms": 100.0}))
        self.assertAlmostEqual(summary.bandwidth(row, "NVIDIA H100 80GB HBM3"), 1.9 / 3.35)
        self.assertAlmostEqual(summary.bandwidth(row, "NVIDIA H200"), 1.9 / 4.8)
        self.assertIsNone(summary.bandwidth(row, "NVIDIA H100 PCIe"))

    def test_a_clock_is_that_of_a_busy_gpu(self):
        told = machine.summary_of("10, 345, 2619, 70.1, 30, 0\n900, 1980, 2619, 600.0, 50, 98\n900, 1755, 2619, 690.0, 60, 100\n900, 19")
        self.assertEqual((told["samples"], told["memory_mib_max"], told["sm_mhz_busy"], told["kernel_percent_busy"]), (3, 900, 1867.5, 99))

    def test_tables_say_what_is_reached(self):
        size = {"mask": "embedded", "tokens": 4096, "heads": 32, "kv_heads": 8, "dim": 128}
        speed = {"measure": "llama-1b", "step_ms": 1, "tokens_per_s_min": 1, "tokens_per_s_max": 2, "flops_per_token": 7e9}
        told = {"machine": {"gpu": "g"}, "steps": [
            {"step": "attention-peers-4096", "of": {"gpu": "g"}, "code": 0, "rows": [
                {**size, "peer": "flex", "forward_ms": 1.2, "backward_ms": 3.0}, {**size, "peer": "matrix", "error": "none"}]},
            {"step": "attention-troupe", "of": {"gpu": "g"}, "code": 0, "rows": [{**size, "forward_ms": 1.0, "backward_ms": 2.0}]},
            {"step": "llama-1b-troupe", "of": {"gpu": "g"}, "code": 0, "watched": {"memory_mib_max": 400},
             "rows": [{**speed, "system": "troupe", "tokens_per_s": 66000, "compute_ms_median": 0.9, "update_ms_median": 0.08}]},
            {"step": "peer", "of": {"gpu": "g"}, "code": 0, "watched": {"memory_mib_max": 500},
             "rows": [{**speed, "system": "transformers", "tokens_per_s": 60000}]},
            {"step": "peer", "of": {"gpu": "other"}, "code": 0, "rows": [{**speed, "system": "transformers", "tokens_per_s": 9e9}]}]}
        text = summary.text(told)
        self.assertIn("1.000 + 2.000 | 1.200 + 3.000 | - | - | 1.20 | 1.50 | 1.40 | 1.1 x FlexAttention | reached |", text)
        self.assertIn("transformers | 1.10 | **missed** |", text)
        self.assertIn("| MFU of 45 % | 46.7 % | reached |", text)
        self.assertIn("| no more memory than these | 0.80 of theirs | reached |", text)
        self.assertIn("| at actions 97 % of a step | 98.0 % | reached |", text)
        self.assertIn("| AdamW and the norm at 80 % of memory bandwidth | - | - |", text)
        self.assertIn("matrix embedded 4096 none", text)

    def test_each_model_has_peers_and_goals_of_its_own(self):
        row = {"step_ms": 1, "tokens_per_s_min": 1, "tokens_per_s_max": 2, "flops_per_token": 7e9, "watched": {"kernel_percent_busy": 98.0}}
        speeds = [("llama-1b", "troupe", 300), ("llama-1b", "transformers", 100), ("mm-2b", "troupe", 110), ("mm-2b", "transformers", 100)]
        text = summary.training_tables([{**row, "measure": model, "system": system, "tokens_per_s": speed} for model, system, speed in speeds],
                                       "NVIDIA H200")
        llama, mm = text.split("| mm-2b |")
        self.assertIn("fastest transformers | 3.00 | reached |", llama)
        self.assertIn("fastest transformers | 1.10 | **missed** |", mm)
        self.assertIn("| troupe | 110 1 2 | 1.0 | 0.1 % | - | - | 98 |", mm)
        self.assertEqual(summary.training_tables([], "g"), "No training has been measured.")

    def test_curves_are_held_against_torchs(self):
        curves = {("troupe", "bf16"): [4.0, 3.0, 2.0], ("torch", "bf16"): [4.0, 3.5, 1.75], ("torch", "fp32"): [4.0, 3.5, 1.5]}
        rows = [{"system": system, "dtype": dtype, "losses": losses} for (system, dtype), losses in curves.items()]
        text = summary.curve_table(rows)
        self.assertIn("| troupe, bf16 | 3 | 4.0000 | 3.0000 | 0.5000 | 2 | 0.2500 |", text)
        self.assertIn("| torch, fp32 | 3 | 4.0000 | 3.0000 | 0.2500 | 3 | 0.0833 |", text)
        self.assertIn("| troupe, bf16 | 3 | 4.0000 | 3.0000 | - | - | - |", summary.curve_table(rows[:1]))
        self.assertEqual(summary.curve_table([{"tokens_per_s": 1}]), "No curve has been measured.")


class Jobs(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def read(self, job):
        return tomllib.loads(job.read_text(encoding="utf-8")), json.loads((self.folder / "samples.json").read_text(encoding="utf-8"))

    def test_steps_that_train_are_planned(self):
        known = steps(pathlib.Path("pack"), "cuda", False, 100)
        self.assertEqual([name for name, step in known.items() if step.skipped], ["attention-troupe", "memory-troupe"])
        words = {name: " ".join(step.command) for name, step in known.items()}
        self.assertIn("pack/troupe pack/mm --model mm --size 2b --device cuda --limit 93.0 --steps 11", words["mm-2b-troupe"])
        self.assertIn("pack/troupe pack/llama --model llama --size 1b --device cuda --limit 93.0", words["llama-1b-troupe"])
        self.assertIn("mm_transformers.py --device cuda --size 2b", words["mm-2b-transformers"])
        self.assertIn("curve.py pack/troupe pack/curve --size curve --device cuda --limit 60.0", words["curve-bf16"])
        self.assertTrue(known["curve-bf16"].ours and known["mm-2b-troupe"].ours and not known["mm-2b-transformers"].ours)
        self.assertIn("idle_troupe.py pack/troupe pack/idle --size 1b --limit 93.0", words["llama-1b-idle"])
        small = steps(pathlib.Path("pack"), "cpu", True, 100)
        self.assertEqual(small["llama-1b-idle"].skipped, "CUPTI tells of CUDA's kernels, not of cpu's")
        self.assertIn("--size small --steps 20 --device cpu", " ".join(small["curve-bf16"].command))

    def test_both_curves_begin_with_one_file_and_take_samples_in_its_order(self):
        job, samples = self.read(curve_job.write(self.folder, "small", 2))
        self.assertEqual((job["modules"]["llm"]["init"], job["data"]["shuffle"]), (f"{self.folder}/weights.safetensors", False))
        self.assertEqual(job["optimizer"]["lr"], job["optimizer"]["min_lr"])
        taken = curve_job.microbatches("small", 2)
        self.assertEqual([len(ids) for step in taken for ids, _ in step], [4] * 4)
        (ids, *_), (labels, *_) = taken[1][0]  # The first sample of the second step.
        answer = samples[8]["conversations"][1]["value"]
        self.assertEqual(ids, [256, 258, *b"go", 260, 259, *answer.encode(), 260])
        self.assertEqual(labels, [-100] * 6 + [*answer.encode(), 260])
        self.assertEqual((len(samples), len(ids)), (16, llama_job.TOKENS["small"]))

    def test_weights_are_bf16_of_our_names(self):
        curve_job.write_weights(self.folder / "w", "small")
        data = (self.folder / "w").read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + length])
        self.assertEqual(header["llm.model.layers.1.self_attn.k_proj.weight"]["shape"], [64, 128])
        ends = [entry["data_offsets"] for entry in header.values()]
        self.assertEqual(([end for _, end in ends[:-1]], ends[-1][1]), ([begin for begin, _ in ends[1:]], len(data) - 8 - length))
        self.assertEqual(ends[-1][1], 2 * llama_job.parameters("small"))
        self.assertEqual(data[-2:], b"\x80\x3f")  # 1 in bf16, of the last norm.
        self.assertEqual(curve_job.bf16_bytes([-2.5]), b"\x20\xc0")

    def test_a_curve_has_all_its_steps(self):
        steps = [{"step": 1, "loss": 5.0}, {"step": 2, "loss": 9.0}, {"step": 2, "loss": 4.0}]
        self.assertEqual(curve.curve_of(steps, 2), [5.0, 4.0])
        self.assertIsNone(curve.curve_of(steps, 3))

    def test_gaps_between_kernels_are_idle(self):
        # From 20 to 120: until 30 a kernel that began before, until 55 none, until 90 one with another inside, until 100 none.
        spans = idle_troupe.spans_of("55 90\n60 70\n5 30\n0 4\n100 120\n13")
        self.assertEqual(idle_troupe.idle_of(spans, 120, 100), (0.35, 25))
        self.assertEqual(idle_troupe.idle_of([(0, 10)], 10, 40), (0.75, 30))
        steps = [{"step_ms": 99.0}, {"step_ms": 0.00006}, {"step_ms": 0.00004}]
        row = idle_troupe.measured(steps, ["7 9", "55 90\n60 70\n5 30\n0 4\n100 120\n"], count=2)
        self.assertEqual((row["idle_share"], row["kernels"]), (0.35, 4))
        self.assertIsNone(idle_troupe.measured(steps, [], count=2))
        self.assertIsNone(idle_troupe.measured(steps[1:], ["7 9"], count=2))
        self.assertIn("| llama-1b | 35.00 % | 0.000 | 4 | **missed** |", summary.idle_table([{**row, "measure": "idle-llama-1b"}]))
        self.assertIn("| 2.90 % | 0.100 | 7 | reached |", summary.idle_table(
            [{"measure": "idle-llama-1b", "idle_share": 0.029, "longest_gap_ms": 0.1, "kernels": 7}]))
        self.assertEqual(summary.idle_table([{"tokens_per_s": 1}]), "")

    def test_what_watching_kernels_lacks_is_named(self):
        self.assertIn("no cupti.h beside a libcupti.so", idle_troupe.compiled(self.folder, [self.folder])[1])
        for path in ("include/cupti.h", "lib64/libcupti.so.13"):
            (self.folder / path).parent.mkdir(exist_ok=True)
            (self.folder / path).write_text("#error none\n", encoding="utf-8")
        library, why = idle_troupe.compiled(self.folder, [self.folder])
        self.assertIsNone(library)
        self.assertIn("kernel_times.cpp does not compile", why)

    def run_curve(self, losses, have=()):
        """Rows of curve.py with a program that has these losses, and what it said of torch that is not there."""
        program, torch = self.folder / "program", self.folder / "torch.py"
        lines = "".join(f'echo \'{{"step": {step}, "loss": {loss}}}\' >> "$run/metrics.jsonl"\n' for step, loss in enumerate(losses, 1))
        program.write_text(f'#!/bin/sh\nrun="$(dirname "$2")/run"; mkdir -p "$run"\n{lines}', encoding="utf-8")
        program.chmod(0o755)
        torch.write_text("raise ImportError('none here')\n", encoding="utf-8")
        (self.folder / "have.json").write_text(json.dumps(list(have)), encoding="utf-8")
        done = subprocess.run([sys.executable, str(ROOT / "tests/bench/gpu/curve.py"), str(program), str(self.folder / "work"), "--size", "small",
                               "--steps", "2"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(self.folder), "GPU_BENCH_HAVE": str(self.folder / "have.json")})
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def test_a_curve_without_its_peer_says_what_that_needs(self):
        code, rows = self.run_curve([5.5, 4.5])
        self.assertEqual((code, rows[0]["losses"], rows[0]["system"]), (0, [5.5, 4.5], "troupe"))
        self.assertIn("needs torch, transformers and safetensors", rows[1]["error"])
        self.assertEqual(self.run_curve([], have=rows[:1])[0], 0)  # Ours is measured: not again.
        code, rows = self.run_curve([5.5])
        self.assertEqual((code, rows[0]["error"].split(" in ")[0]), (1, "1 steps, of 2,"))

    def test_arithmetic_of_a_multimodal_token(self):
        # 16 patches of 3 images are 12 rows of 128; with 7 around it 109 bytes of text, and its end is trained too.
        self.assertEqual((mm_job.patches("small"), mm_job.image_rows("small"), mm_job.trained_tokens("small")), (16, 12, 110))
        # Of a block 12 x 64 x 64, 9 x 64 biases, 4 x 64 of norms; a merger of 256 x 256 and 256 x 128, with biases, behind a norm.
        vision = 1176 * 64 + 2 * (49152 + 576 + 256) + (128 + 65536 + 256 + 32768 + 128)
        self.assertEqual(mm_job.parameters("small"), vision + llama_job.parameters("small"))
        patch = 6 * (1176 * 64 + 2 * 49152 + (65536 + 32768) / 4) + 12 * 2 * 64 * 16
        text = 6 * 2 * (49152 + 98304) + 12 * 2 * 128 * 64.5 + 6 * 65536 * 110 / 128
        self.assertAlmostEqual(mm_job.flops_per_token("small"), text + patch * 48 / 128, places=3)
        # Qwen2-VL-2B has 2,208,985,600, of which biases of queries, keys and values are 28 x 2048.
        self.assertEqual(mm_job.parameters("2b"), 2208985600 - 28 * 2048)

    def test_a_multimodal_sample_has_pictures_and_tokens_as_said(self):
        job, samples = self.read(mm_job.write_job(self.folder, "small", 2, count=5))
        self.assertEqual(job["modules"]["vision"]["config"], mm_job.SIZES["small"]["vision"])
        self.assertEqual(job["modules"]["llm"]["config"], {**mm_job.SIZES["small"]["llm"], "tie_word_embeddings": True})
        question, answer = samples[4]["conversations"]
        self.assertEqual((question["value"], samples[4]["image"]), ("<image><image><image>go", ["4.png", "5.png", "6.png"]))
        self.assertEqual(len(answer["value"]) + llama_job.TOKENS_AROUND + mm_job.image_rows("small"), mm_job.TOKENS["small"])
        data = (self.folder / "4.png").read_bytes()
        self.assertEqual((data[:8], struct.unpack(">II", data[16:24])), (b"\x89PNG\r\n\x1a\n", (56, 56)))
        at, parts = 8, {}
        while at < len(data):
            (length,) = struct.unpack_from(">I", data, at)
            kind, body = data[at + 4:at + 8], data[at + 8:at + 8 + length]
            self.assertEqual(struct.unpack_from(">I", data, at + 8 + length)[0], zlib.crc32(kind + body))
            parts[kind], at = body, at + 12 + length
        self.assertEqual(len(zlib.decompress(parts[b"IDAT"])), 56 * (1 + 3 * 56))


if __name__ == "__main__":
    unittest.main()
