#!/usr/bin/python3
"""Headers that are compiled once: the commands of the build folder that this is started in.

ccache keys a compilation by what the preprocessor prints. With -fpch-preprocess GCC prints the name of a compiled header
in the place of its text: right for sources, which depend on it; but a header that is compiled again would be keyed by
what it was compiled to before, and come out of the cache as it was for other headers.
"""

import os
import pathlib
import subprocess
import tempfile
import unittest

STRUCT = "#pragma once\n// {}\nstruct Message {{}};\n"


def commands():
    """Each command of a compilation, as words."""
    done = subprocess.run(["ninja", "-t", "commands"], capture_output=True, text=True, check=True, timeout=120)
    return [line.split() for line in done.stdout.splitlines()]


class PrecompiledHeaders(unittest.TestCase):
    def test_the_cache_sees_what_each_is_compiled_from(self):
        compiled, using = 0, 0
        for words in commands():
            if "c++-header" in words:
                compiled += 1
                self.assertNotIn("-fpch-preprocess", words)
            elif words[-1].endswith("/empty.cpp"):
                pass  # Compiled beside each, for nobody.
            elif any(word.endswith("/cmake_pch.hxx") for word in words):
                using += 1
                self.assertIn("-fpch-preprocess", words)
        self.assertEqual(compiled == 0, using == 0)

    def test_one_with_another_comment_is_another_one(self):
        # GCC would not find its text in the compiled one, and define all of it twice.
        command = next((words for words in commands() if "c++-header" in words), None)
        if command is None:
            self.skipTest("this build compiles no headers")
        launched = command[: next(at for at, word in enumerate(command) if word.endswith("++")) + 1]
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            environment = os.environ | {"CCACHE_DIR": str(folder / "cache")}

            def run(*words):
                done = subprocess.run([*launched, *words], cwd=folder, env=environment, capture_output=True, text=True,
                                      timeout=60)
                self.assertEqual(done.returncode, 0, done.stderr)

            (folder / "all.hpp").write_text('#include "message.hpp"\n')
            for name in ["one", "another"]:
                (folder / "message.hpp").write_text(STRUCT.format(name))
                (folder / "source.cpp").write_text(f'#include "message.hpp"\nMessage {name};\n')
                run("-x", "c++-header", "-MD", "-MF", "all.d", "-o", "all.hpp.gch", "-c", "all.hpp")
                run("-fpch-preprocess", "-include", "all.hpp", "-o", "source.o", "-c", "source.cpp")

    def test_checkouts_share_them(self):
        # The headers' own list is compared as it is: a path of this checkout would make it one of its own.
        for path in pathlib.Path("CMakeFiles").glob("troupe_precompiled_*/cmake_pch.hxx"):
            self.assertNotIn('#include "', path.read_text(), path)


if __name__ == "__main__":
    unittest.main()
