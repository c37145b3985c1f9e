"""What scripts/lib/docs.py shows of headers, and what it finds fault with."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))
import docs

HEADER = "runtime/policies/registry.hpp"


class Docs(unittest.TestCase):
    def test_fields_and_operators_say_enough(self):
        at = "x.hpp:1: warning: "
        enough = [at + "Member step (variable) of struct troupe::A is not documented.",
                  at + "Member operator==(const A &, const A &)=default (friend) of struct troupe::A is not documented.",
                  at + "Member operator[](int index) const (function) of class troupe::A is not documented.",
                  at + "Member inspect(Inspector &f, A &x) (friend) of struct troupe::A is not documented."]
        wanted = [at + "Member size() const (function) of class troupe::A is not documented.",
                  at + "Compound troupe::A is not documented.",
                  at + "Member Kind (enumeration) of namespace troupe is not documented.",
                  at + "explicit link request to 'step' could not be resolved"]
        self.assertEqual(docs.warnings("\n".join(enough + wanted + wanted)), wanted)

    def test_the_list_is_that_of_what_is_installed(self):
        self.assertIn(HEADER, docs.headers())
        for file in docs.headers() + docs.PAGES:
            self.assertTrue((ROOT / file).is_file(), file)

    @unittest.skipUnless(shutil.which("doxygen"), "Doxygen is not installed")
    def test_planted_faults_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "copy"
            for file in docs.headers() + docs.PAGES + ["docs/Doxyfile", "cmake/Plugins.cmake", "scripts/lib/docs.py"]:
                (copy / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / file, copy / file)
            self.assertEqual(self.faults(copy), (0, []))
            page = (copy / "out/runtime_2policies_2registry_8hpp.html").read_text()
            self.assertIn("All microbatch policies that a job can name", page)  # Its first lines.
            header = copy / HEADER
            text = header.read_text()
            end = "}  // namespace troupe::policies"
            header.write_text(text.replace(end, "int forgotten(int value);\n" + end))
            code, found = self.faults(copy)
            self.assertEqual(code, 1)
            self.assertEqual(len(found), 1)
            self.assertIn("forgotten", found[0])
            self.assertTrue(found[0].startswith(HEADER + ":"), found[0])
            header.write_text(text.replace(end, "/// @param no_such of none.\nint wrong(int value);\n" + end))
            code, found = self.faults(copy)
            self.assertEqual(code, 1)
            self.assertIn("no_such", found[0])

    def faults(self, copy):
        done = subprocess.run(["/usr/bin/python3", str(copy / "scripts/lib/docs.py"), str(copy / "out")],
                              capture_output=True, text=True, timeout=120)
        lines = done.stdout.splitlines()
        return done.returncode, [line for line in lines[:-1] if line]


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])  # Mutants name a program, too.
