#!/usr/bin/python3
"""Makes the pages of the installed headers, and says what Doxygen finds wrong with them.

    docs.py OUT    HTML in the folder OUT; exit code 1 where there is a warning, 77 where there is no Doxygen

Headers are those that `cmake --install` installs (cmake/Plugins.cmake), pages the guide (docs/) and READMEs beside it.
"""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "docs/Doxyfile"

# The guide first. Everything it sends its readers to that no header says.
PAGES = ["docs/parts.md", "docs/parts-reference.md", "docs/namespaces.dox", "models/family/README.md", "runtime/policies/README.md",
         "runtime/schedules/README.md", "runtime/data/formats/README.md", "runtime/observers/README.md",
         "actors/observing/README.md", "engine/execution/README.md", "runtime/plugins/README.md", "examples/resampler/README.md", "examples/mixture/README.md", "examples/balanced/README.md",
         "examples/distill/README.md", "examples/frugal/README.md",
         "examples/snake/README.md", "examples/windows/README.md", "examples/captions/README.md",
         "examples/statistics/README.md", "examples/sentry/README.md", "examples/weaver/README.md"]

# A field, a comparison or a sum says enough by its name (STYLE: never restate the signature); so does what CAF asks for.
SAYS_ENOUGH = re.compile(r"Member (\S+ \(variable\)|operator\S*\(.*\).*|operator bool\(.*|inspect\(.*\(friend\)) of .* is not documented")


def headers():
    text = (ROOT / "cmake/Plugins.cmake").read_text()
    return re.search(r"set\(TROUPE_PLUGIN_HEADERS\s+([^)]+)\)", text).group(1).split()


def warnings(words):
    """Lines of what Doxygen says that somebody should do something about."""
    return [line for line in dict.fromkeys(words.splitlines()) if line.strip() and not SAYS_ENOUGH.search(line)]


def make(out):
    doxygen = shutil.which("doxygen")
    if doxygen is None:
        print("the pages need Doxygen, and there is no `doxygen` on the PATH: scripts/setup --docs installs it (Debian package doxygen)")
        return 77
    out.mkdir(parents=True, exist_ok=True)
    (out / "index.html").unlink(missing_ok=True)
    more = {"INPUT": " ".join(PAGES + headers()), "OUTPUT_DIRECTORY": out, "STRIP_FROM_PATH": ROOT,
            "STRIP_FROM_INC_PATH": ROOT, "HTML_OUTPUT": "."}
    text = CONFIGURATION.read_text() + "".join(f"{key} = {value}\n" for key, value in more.items())
    done = subprocess.run([doxygen, "-"], input=text, cwd=ROOT, capture_output=True, text=True)
    found = warnings(done.stderr)
    for line in found:
        print(line.removeprefix(f"{ROOT}/"))
    if done.returncode != 0 or not (out / "index.html").is_file():
        print(f"Doxygen ended with {done.returncode} and made no {out / 'index.html'}")
        return 1
    print(f"{len(headers())} headers, {len(found)} warnings: {out / 'index.html'}")
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(make(pathlib.Path(sys.argv[1]).resolve()))
