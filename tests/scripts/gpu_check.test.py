"""What scripts/lib/gpu_check.py keeps of its steps, and which it takes again."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "lib"))
import gpu_check
import gpu_pack


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.folder.name) / "out"
        self.tar = pathlib.Path(self.folder.name) / "pack.tar"
        with tarfile.open(self.tar, "w"):
            pass
        self.environment = dict(os.environ)
        os.environ.update(TORCH_DIR=self.folder.name, GPU_CHECK_DEVICE="other", GPU_CHECK_STEP_S="0.5")
        os.environ.pop("GPU_CHECK_STEPS", None)
        self.steps, gpu_check.steps = gpu_check.steps, lambda binary, device, run: self.commands
        self.commands = {"data": ["true"], "good": ["sh", "-c", "echo well"], "bad": ["sh", "-c", "echo no; exit 3"], "slow": ["sleep", "9"]}

    def tearDown(self):
        gpu_check.steps = self.steps
        os.environ.clear()
        os.environ.update(self.environment)
        self.folder.cleanup()

    def run_steps(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = gpu_check.run(self.tar, self.out)
        lines = [json.loads(line) for line in (self.out / "gpu-check.jsonl").read_text(encoding="utf-8").splitlines()]
        return code, lines, said.getvalue()

    def test_each_step_leaves_a_line_with_how_it_ended(self):
        code, lines, said = self.run_steps()
        self.assertEqual([(line["step"], line["code"]) for line in lines], [("data", 0), ("good", 0), ("bad", 3), ("slow", "no end")])
        self.assertEqual(lines[1]["end"], "well\n")
        self.assertEqual((code, said.splitlines()[-1]), (1, "2 steps failed: bad, slow"))

    def test_what_passed_is_not_taken_again_on_the_same_kind_of_device(self):
        self.run_steps()
        self.commands["bad"] = ["true"]
        self.commands["slow"] = ["true"]
        code, lines, said = self.run_steps()
        self.assertEqual([line["step"] for line in lines[4:]], ["data", "bad", "slow"])
        self.assertEqual((code, said.splitlines()[-1]), (0, "0 steps failed"))
        os.environ["GPU_CHECK_DEVICE"] = "third"
        self.assertEqual([line["step"] for line in self.run_steps()[1][7:]], ["data", "good", "bad", "slow"])

    def test_only_those_asked_for_are_taken(self):
        os.environ["GPU_CHECK_STEPS"] = "good"
        self.assertEqual([line["step"] for line in self.run_steps()[1]], ["data", "good"])

    def test_the_real_steps_have_names_and_commands(self):
        made = self.steps("troupe", "cuda", "run")
        self.assertIn("parity-bf16", made)
        self.assertEqual([made[name][1] for name in ("kernels", "nccl")], ["[gpu]"] * 2)
        self.assertTrue(all(pathlib.Path(made[name][0]).name in gpu_pack.PROGRAMS for name in ("kernels", "nccl")))
        self.assertTrue(all("cluster.device=cuda" in " ".join(map(str, made[name])) for name in ("profile", "demo", "resume")))


if __name__ == "__main__":
    unittest.main()
