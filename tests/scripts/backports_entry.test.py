#!/usr/bin/python3
"""From which apt entry setup makes the one for the newer suite."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))
from backports_entry import find_entry

SECURITY = "Types: deb\nURIs: http://mirror.test/security\nSuites: bookworm-security\nComponents: main\n"


class BackportsEntry(unittest.TestCase):
    def entry(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name.replace("__", "/").replace("_", ".")
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return find_entry(folder)

    def test_deb822_keeps_all_but_the_suite(self):
        text = (f"{SECURITY}\n# The mirror.\nTypes: deb\nURIs: http://mirror.test/debian\n"
                "Suites: bookworm bookworm-updates\nComponents: main\nSigned-By: /usr/share/keyrings/key.gpg\n")
        self.assertEqual(self.entry(sources_list_d__debian_sources=text).splitlines(),
                         ["Types: deb", "URIs: http://mirror.test/debian", "Suites: bookworm-backports",
                          "Components: main", "Signed-By: /usr/share/keyrings/key.gpg"])

    def test_one_line_keeps_options_and_components(self):
        text = ("deb http://mirror.test/security bookworm-security main\n# deb http://old.test bookworm main\n"
                "deb [signed-by=/k.gpg arch=amd64] http://mirror.test/debian bookworm main contrib\n")
        self.assertEqual(self.entry(sources_list=text),
                         "deb [signed-by=/k.gpg arch=amd64] http://mirror.test/debian bookworm-backports main contrib")

    def test_security_updates_sources_and_disabled_entries_are_never_taken(self):
        for text in (SECURITY, "Types: deb-src\nURIs: http://mirror.test\nSuites: bookworm\nComponents: main\n",
                     "Enabled: no\nTypes: deb\nURIs: http://mirror.test\nSuites: bookworm\nComponents: main\n",
                     "Types: deb\nURIs: http://mirror.test\nSuites: trixie\nComponents: main\n"):
            self.assertIsNone(self.entry(sources_list_d__a_sources=text), text)
        for line in ("deb http://mirror.test bookworm-security main", "deb-src http://mirror.test bookworm main",
                     "#deb http://mirror.test bookworm main", "deb http://mirror.test bookworm-updates main"):
            self.assertIsNone(self.entry(sources_list_d__a_list=line), line)

    def test_no_apt_folder(self):
        self.assertIsNone(find_entry("/nowhere"))


if __name__ == "__main__":
    unittest.main()
