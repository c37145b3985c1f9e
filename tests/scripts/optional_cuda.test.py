#!/usr/bin/python3
"""What configuring says where no CUDA toolkit is used: stubs, or, where the build needs one, why not.

Configures a project of nothing else, by the cmake of the PATH.
"""

import json
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def configure(*words):
    """Exit code and output, in one line."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.25)\nproject(nothing NONE)\ninclude({ROOT}/cmake/OptionalCuda.cmake)\n", encoding="utf-8")
        done = subprocess.run(["cmake", "-S", folder, "-B", folder / "build", *words], capture_output=True, text=True, timeout=60)
        return done.returncode, " ".join((done.stdout + done.stderr).split())


class OptionalCuda(unittest.TestCase):
    def test_a_build_without_it_has_stubs(self):
        code, said = configure("-DTROUPE_WITHOUT_CUDA=ON")
        self.assertEqual(code, 0, said)
        self.assertIn("CUDA parts: OFF", said)

    def test_a_build_that_needs_it_is_refused_with_the_fix(self):
        code, said = configure("-DTROUPE_WITHOUT_CUDA=ON", "-DTROUPE_NEEDS_CUDA=ON")
        self.assertNotEqual(code, 0, said)
        self.assertIn("this build needs a CUDA toolkit, and none is found: install one, with nvcc in the PATH", said)
        self.assertIn("build the preset 'release'", said)

    def test_the_preset_of_that_name_needs_it_and_no_other_does(self):
        presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
        need = [preset["name"] for preset in presets if "TROUPE_NEEDS_CUDA" in preset.get("cacheVariables", {})]
        self.assertEqual(need, ["cuda"])


if __name__ == "__main__":
    unittest.main()
