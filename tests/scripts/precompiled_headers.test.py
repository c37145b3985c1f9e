#!/usr/bin/python3
"""Headers that are compiled once: the commands of the build folder that this is started in.

ccache keys a compilation by what the preprocessor prints. With -fpch-preprocess GCC prints the name of a compiled header
in the place of its text: right for sources, which depend on it; but a header that is compiled again would be keyed by
what it was compiled to before, and come out of the cache as it was for other headers.
"""

import subprocess
import unittest


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


if __name__ == "__main__":
    unittest.main()
