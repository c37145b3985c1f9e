#!/usr/bin/python3
"""What the ledger of parity.py's matrix keeps, and for whom it counts. No job is run: the binary only says its version."""

import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("engine", "support")]

import parity  # noqa: E402
from parity_matrix import Ledger  # noqa: E402

CASE = "auto/1f1b/all"


class TheLedger(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.file = pathlib.Path(self.folder.name) / "matrix.jsonl"

    def tearDown(self):
        self.folder.cleanup()

    def ledger(self, *words, version="troupe 1"):
        binary = pathlib.Path(self.folder.name) / "troupe"
        binary.write_text(f"#!/bin/sh\necho {version}\n", encoding="utf-8")
        binary.chmod(0o755)
        arguments = parity.parse([str(binary), "--matrix", str(self.file), *words])
        return Ledger(arguments.binary, self.file, parity.words_of_devices(arguments))

    def test_goes_on_where_it_was(self):
        self.ledger().add(CASE, True, 1.0, "")
        self.assertTrue(self.ledger().passed(CASE))
        self.assertFalse(self.ledger().passed("auto/gpipe/all"))

    def test_what_another_build_passed_counts_for_nothing(self):
        self.ledger().add(CASE, True, 1.0, "")
        self.assertFalse(self.ledger(version="troupe 2").passed(CASE))

    def test_what_passed_on_other_devices_counts_for_nothing(self):
        kinds = [(), ("--late", "0.4"), ("--late", "2"), ("--device", "apart")]
        for number, words in enumerate(kinds):
            self.assertFalse(self.ledger(*words).passed(CASE), words)
            self.ledger(*words).add(CASE, True, 1.0, "")
            self.assertEqual([self.ledger(*others).passed(CASE) for others in kinds], [other <= number for other in range(len(kinds))])

    def test_a_record_says_how_it_came_about(self):
        page = pathlib.Path(self.folder.name) / "page.json"
        for words, said in (((), "--matrix FILE --record"), (("--late", "0.4"), "--matrix FILE --late 0.4 --record")):
            ledger = self.ledger(*words)
            ledger.add(CASE, True, 1.0, "")
            ledger.record(page, 20, 1.0)
            told = json.loads(page.read_text(encoding="utf-8"))
            self.assertIn(said, told["command"])
            self.assertEqual((told["passed"], told["failed"], told["not_run"]), (1, 0, told["cases"] - 1))


if __name__ == "__main__":
    unittest.main()
