#!/usr/bin/python3
"""Every source of a bench compiles. scripts/test builds no bench, and what nobody compiles rots.

    check_benches.py ROOT BUILD    ROOT: repository; BUILD: folder with compile_commands.json, where all else is built
    check_benches.py --self        check this checker on planted faults

Each is compiled alone, with the options and warnings of its target, and makes no code: a few seconds where an optimised object takes half
a minute. What only a linker finds, as a library that a bench names no more, shows in scripts/bench. Results are remembered in BUILD by the
text of the source and of all project headers below it.
"""

import json
import pathlib
import re
import sys
import tempfile

from syntax_only import compile_all, compiled_sources, options_of

FOLDER = "tests/bench"
OF_A_BENCH = re.compile(r"CMakeFiles/bench_\w+\.dir/")


def check(root, build):
    """(number of sources compiled, number remembered, faults)"""
    targets = [(source, entry) for source, entry in compiled_sources(root, build) if root / FOLDER in source.parents]
    tasks = [(source, options_of(entry)) for source, entry in targets if OF_A_BENCH.search(entry["command"])]
    compiled, remembered, wrong = compile_all(root, build / "checked_benches.json", tasks)
    faults = [f"{source.relative_to(root)}: does not compile\n{errors}" for source, errors in wrong]
    known = {source for source, _ in targets}
    faults += [f"{source.relative_to(root)}: no target has it: name it in {FOLDER}/CMakeLists.txt, or remove it"
               for source in sorted((root / FOLDER).rglob("*.cpp")) if source not in known]
    return compiled, remembered, faults


def check_itself():
    texts = {"good_bench.cpp": '#include "tests/bench/shared.hpp"\nint main() { return shared(); }\n',
             "bad_bench.cpp": "int main() { return gone(); }\n",
             "warned_bench.cpp": "int main() { int unused; }\n",
             "forgotten.cpp": "int forgotten = 0;\n",
             "shared.hpp": "inline int shared() { return 0; }\n"}
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name).resolve()
        folder, build = root / FOLDER, root / "build"
        folder.mkdir(parents=True)
        build.mkdir()
        for file, text in texts.items():
            (folder / file).write_text(text)
        (build / "compile_commands.json").write_text(json.dumps(
            [{"directory": str(build), "file": str(folder / f"{bench}_bench.cpp"),
              "command": f"c++ -I{root} -O2 -Wall -Werror -o {FOLDER}/CMakeFiles/bench_{bench}.dir/{bench}_bench.cpp.o -c {folder}/{bench}_bench.cpp"}
             for bench in ("good", "bad", "warned")]))
        steps = [("at first", (3, 0), ["bad_bench.cpp", "warned_bench.cpp", "forgotten.cpp"]),
                 ("again", (2, 1), ["bad_bench.cpp", "warned_bench.cpp", "forgotten.cpp"])]
        for when, counts, expected in steps:
            compiled, remembered, faults = check(root, build)
            found = [fault.partition(":")[0].rpartition("/")[2] for fault in faults]
            if (compiled, remembered) != counts or sorted(found) != sorted(expected):
                sys.exit(f"check_benches.py {when}: {compiled} compiled, {remembered} remembered\n" + "\n".join(faults))
        (folder / "shared.hpp").write_text("inline int other() { return 0; }\n")
        if not any("good_bench.cpp: does not compile" in fault for fault in check(root, build)[2]):
            sys.exit("check_benches.py does not see that a header below a bench has changed")
    print("found all planted faults")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self"]:
        check_itself()
        sys.exit(0)
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    fresh, kept, problems = check(*(pathlib.Path(word).resolve() for word in sys.argv[1:]))
    print("\n".join([*problems, f"{fresh + kept} sources of benches: {fresh} compiled, {kept} remembered, {len(problems)} faults"]))
    sys.exit(1 if problems or fresh + kept == 0 else 0)
