#!/usr/bin/python3
"""What only its own tests use stands in one list, with what will use it.

    check_unused.py ROOT BUILD     BUILD: where product and tests are built
    check_unused.py --self

Reads the symbols of all object files. A function that is not inline counts as used where an object of the product needs
it, or where its own source calls it. What tests alone need must be a row of unused.md; a row whose function is used by
now, or gone, is a fault too, and so is a function that nothing at all needs. What is inline, or virtual, is not seen.
"""

import collections
import pathlib
import re
import subprocess
import sys

LIST = pathlib.Path(__file__).resolve().parent / "unused.md"
FOLDERS = ["runtime", "scheduler", "balancer", "kernels", "models", "transport", "engine", "actors", "app"]
ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def strip_arguments(symbol):
    """`troupe::engine::Executor::abandon` of `troupe::engine::Executor::abandon()`, templates left as they are."""
    depth, name = 0, symbol.replace("(anonymous namespace)", "{anonymous}")
    for place, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            name = name[:place]
            break
    return re.sub(r"\[abi:[a-z0-9]+\]", "", name)


def symbols_of(objects):
    """Per object: names that it defines for others, and names that it needs."""
    found = {}
    for object_file in objects:
        text = subprocess.run(["nm", "-C", str(object_file)], capture_output=True, text=True, check=True).stdout
        defined, needed = set(), set()
        for line in text.splitlines():
            kind, _, name = line[17:].partition(" ")
            if not name.startswith("troupe::"):
                continue
            if kind == "T":
                defined.add(strip_arguments(name))
            elif kind == "U":
                needed.add(strip_arguments(name))
        found[object_file] = defined, needed
    return found


def overriders(sources):
    """Words that override something: whoever calls them names the base."""
    return set(re.findall(r"\b(\w+)\([^;{]*\)[^;{]*\boverride\b", sources))


def is_called(name, source):
    """Whether a source uses a name of its own besides defining it. Constructors and operators are taken as used."""
    word = name.rpartition("::")[2]
    if not word.isidentifier() or name.split("::")[-2:-1] == [word]:
        return True
    # Its definition is one place; comments are none, nor is a header of that name.
    code = re.sub(r"//[^\n]*|#include[^\n]*", "", source)
    return len(re.findall(rf"\b{word}\b", code)) > 1


def used_by_tests_alone(product, tests, source_of):
    """Names that objects of tests need, of the product none, and whose own source does not call them."""
    needed = set().union(*(needs for _, needs in product.values()))
    wanted = set().union(*(needs for _, needs in tests.values()))
    alone = set()
    for object_file, (defined, _) in product.items():
        candidates = (defined & wanted) - needed
        if candidates:
            source = source_of(object_file)
            alone |= {name for name in candidates if not is_called(name, source)}
    return alone


def used_by_nobody(product, tests, sources):
    """Names that no object needs and no source has more often than a declaration and a definition do."""
    needed = set().union(*(needs for _, needs in [*product.values(), *tests.values()]))
    defined = set().union(*(names for names, _ in product.values()))
    words = collections.Counter(re.findall(r"\w+", re.sub(r"//[^\n]*|#include[^\n]*", "", sources)))
    return {name for name in defined - needed if words[name.rpartition("::")[2]] in (1, 2)}


def check(root, build):
    objects = sorted([*build.rglob("CMakeFiles/*.dir/**/*.cpp.o"), *build.rglob("CMakeFiles/*.dir/Unity/*.cxx.o")])
    product = [path for path in objects if path.relative_to(build).parts[0] in FOLDERS]
    tests = [path for path in objects if path.relative_to(build).parts[0] == "tests"]
    if not product or not tests:
        print(f"{build} holds no objects of product and tests: build them first")
        return 1

    def path_of(object_file):
        if object_file.name.endswith(".cxx.o"):  # Several sources at once, which it includes.
            return object_file.with_suffix("")
        before, _, after = str(object_file.relative_to(build)).partition("/CMakeFiles/")
        return root / before / after.partition("/")[2].removesuffix(".o")

    def source_of(object_file):
        text = path_of(object_file).read_text(encoding="utf-8")
        if not object_file.name.endswith(".cxx.o"):
            return text
        return "\n".join(pathlib.Path(name).read_text(encoding="utf-8") for name in re.findall(r'#include "([^"]+)"', text))

    # Objects of sources that are gone may still lie there.
    product, tests = [symbols_of([path for path in paths if path_of(path).is_file()]) for paths in (product, tests)]
    sources = "\n".join(path.read_text(encoding="utf-8") for folder in FOLDERS
                        for path in sorted((root / folder).rglob("*.[ch]pp")))
    virtual = overriders(sources)
    alone = {name for name in used_by_tests_alone(product, tests, source_of)
             if name.rpartition("::")[2] not in virtual}
    listed = set(ROW.findall(LIST.read_text(encoding="utf-8")))
    faults = [f"{name}: only tests use it; use it, remove it, or say in {LIST.name} what will use it"
              for name in sorted(alone - listed)]
    faults += [f"{name}: nothing uses it" for name in sorted(used_by_nobody(product, tests, sources))]
    faults += [f"{name}: in {LIST.name}, but used by now or gone: take the row out" for name in sorted(listed - alone)]
    print("\n".join([*faults, f"{len(alone)} functions wait for use, {len(faults)} faults"]))
    return 1 if faults else 0


def check_itself():
    assert strip_arguments("troupe::a::f(std::vector<int (*)(int)>, int)") == "troupe::a::f"
    assert strip_arguments("troupe::a::C::g[abi:cxx11]() const") == "troupe::a::C::g"
    assert strip_arguments("troupe::a::h<int (*)(int)>(int)") == "troupe::a::h<int (*)(int)>"
    product = {"a": ({"troupe::used", "troupe::alone", "troupe::inside"}, set()), "b": (set(), {"troupe::used"})}
    tests = {"t": (set(), {"troupe::used", "troupe::alone", "troupe::inside"})}
    source = "#include \"alone.hpp\"\nvoid alone() {}\nvoid inside() {}\nvoid used() { inside(); }  // alone"
    assert used_by_tests_alone(product, tests, lambda _: source) == {"troupe::alone"}
    tests["t"] = (set(), {"troupe::used"})
    sources = source + "\nvoid alone();\nvoid inside();\n"
    assert used_by_nobody(product, tests, sources) == {"troupe::alone"}
    assert overriders("Status f(A a) override;\n  B g() const override { return {}; }\nvoid h();") == {"f", "g"}
    print("ok")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self"]:
        sys.exit(check_itself())
    sys.exit(check(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
