#!/usr/bin/python3
"""Examples stay short enough to be read before lunch: each source below examples/ has fewer than 120 lines, each line 100 columns.
Each that is built can be built where scripts/setup has been: its test.sh says `-G Ninja`, as there is no `make`.

    check_examples.py           of this checkout
    check_examples.py --self    check this checker on planted faults

Who finds one too long makes the interface better that it uses, not the lines longer: see models/plugin.hpp.
"""

import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES, COLUMNS = 120, 100
SOURCES = {".cpp", ".hpp", ".cu"}


def faults_of_test(folder):
    """What keeps the test of an example that is built from building it, in words."""
    test = folder / "test.sh"
    if not test.exists():
        return ["has no test.sh"]
    made = [line for line in test.read_text().splitlines() if re.match(r"cmake .*-B ", line)]
    if not made:
        return ["its test.sh makes no build folder"]
    return ["its test.sh makes a build folder without `-G Ninja`"] if any("-G Ninja" not in line for line in made) else []


def faults_of(root):
    """What is wrong, and how many sources were looked at. A folder that is built has a source of its own."""
    faults, count = [], 0
    for folder in sorted((root / "examples").iterdir()):
        sources = [file for file in sorted(folder.rglob("*")) if file.suffix in SOURCES]
        if (folder / "CMakeLists.txt").exists() and not sources:
            faults.append(f"{folder.relative_to(root)}: is built, and has no source")
        if (folder / "CMakeLists.txt").exists():
            faults += [f"{folder.relative_to(root)}: {fault}" for fault in faults_of_test(folder)]
        for file in sources:
            count += 1
            lines = file.read_text(errors="replace").splitlines()
            where = file.relative_to(root)
            if len(lines) >= LINES:
                faults.append(f"{where}: {len(lines)} lines, limit {LINES - 1}")
            faults += [f"{where}:{number}: {len(line)} columns, limit {COLUMNS}" for number, line in enumerate(lines, 1) if len(line) > COLUMNS]
    return faults, count


def check_itself():
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        example = root / "examples" / "one"
        example.mkdir(parents=True)
        (example / "CMakeLists.txt").write_text("")
        test = example / "test.sh"
        assert faults_of(root) == (["examples/one: is built, and has no source", "examples/one: has no test.sh"], 0)
        test.write_text("set -e\ncmake --build build\n")
        assert faults_of(root)[0][1:] == ["examples/one: its test.sh makes no build folder"]
        test.write_text("cmake -S . -B build\ncmake --build build\n")
        assert faults_of(root)[0][1:] == ["examples/one: its test.sh makes a build folder without `-G Ninja`"]
        test.write_text("cmake -S . -B build -G Ninja\ncmake --build build\n")
        assert faults_of(root) == (["examples/one: is built, and has no source"], 0)
        source = example / "one.cpp"
        source.write_text("int x;\n" * 119)
        assert faults_of(root) == ([], 1)
        source.write_text("int x;\n" * 120)
        assert faults_of(root) == (["examples/one/one.cpp: 120 lines, limit 119"], 1)
        source.write_text("x" * 100 + "\n" + "x" * 101 + "\n")
        assert faults_of(root) == (["examples/one/one.cpp:2: 101 columns, limit 100"], 1)
        part = example / "part" / "helper.hpp"
        part.parent.mkdir()
        part.write_text("int x;\n" * 130)
        source.write_text("int x;\n")
        assert faults_of(root) == (["examples/one/part/helper.hpp: 130 lines, limit 119"], 2)
        print("as planted")


def main(root):
    faults, count = faults_of(root)
    print("\n".join(faults + [f"{count} sources, {len(faults)} faults"]))
    return 1 if faults or not count else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self"]:
        check_itself()
    else:
        sys.exit(main(ROOT))  # Mutants name a program, too.
