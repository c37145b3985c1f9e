#!/usr/bin/python3
"""What installed headers declare, a plug-in finds in the program.

    check_exports.py BINARY     BINARY lies in the build folder, beside lib/libtroupe_engine.a
    check_exports.py --self     check this checker on planted faults

A plug-in is linked against nothing: what it calls and no header defines, it finds in the program or it cannot be loaded.
Every function that the archive defines under a name and scope which an installed header declares, and every table of a
class of one, must be among the program's dynamic symbols. Templates and inline functions are the plug-in's own.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = re.compile(r"set\(TROUPE_PLUGIN_HEADERS\s+([^)]*)\)")
TABLE = re.compile(r"^(?:vtable|typeinfo|typeinfo name) for ")


def declared(text):
    """Namespaces, classes and names before a parenthesis of a header."""
    code = re.sub(r"//[^\n]*", "", text)
    return (set(re.findall(r"\bnamespace (troupe[\w:]*)", code)), set(re.findall(r"\b(?:class|struct)\s+(\w+)", code)),
            set(re.findall(r"(\w+|\boperator[^\w\s(]+)\s*\(", code)))


def scope_and_name(symbol):
    """`troupe::engine::StageLayers` and `make` of `troupe::engine::StageLayers::make[abi:cxx11](int) const`."""
    name = re.sub(r"\[abi:\w+\]", "", TABLE.sub("", symbol))
    name = name.partition("(")[0]
    while "<" in name and not re.search(r"operator[<>-]", name):
        shorter = re.sub(r"<[^<>]*>", "", name)
        if shorter == name:
            break
        name = shorter
    scope, _, last = name.rpartition("::")
    return scope, last.removeprefix("~")


def promised(headers, symbols):
    """Those of `symbols` (demangled) that one of the headers (texts) declares."""
    scopes = {}  # Of names that may stand in it.
    for text in headers:
        spaces, classes, names = declared(text)
        for space in spaces:
            scopes.setdefault(space, set()).update(names)
            for outer in classes:
                scopes.setdefault(f"{space}::{outer}", set()).update(names)
                for inner in classes:
                    scopes.setdefault(f"{space}::{outer}::{inner}", set()).update(names)
    tables = set(scopes)
    found = set()
    for symbol in symbols:
        scope, name = scope_and_name(symbol)
        if f"{scope}::{name}" in tables if TABLE.match(symbol) else name in scopes.get(scope, ()):
            found.add(symbol)
    return found


def symbols_of(path, *flags):
    """Mangled names that are no templates' or inline functions', which every object has its own copy of."""
    text = subprocess.run(["nm", "--defined-only", *flags, str(path)], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines()]
    return {row[2] for row in rows if len(row) == 3 and row[1] in "TDRB"}


def demangled(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(text.splitlines(), names))


def check(binary):
    archive = binary.parent / "lib" / "libtroupe_engine.a"
    if not archive.is_file():
        print(f"{archive} is not there: build the target engine_archive first")
        return 1
    listed = HEADERS.search((ROOT / "cmake" / "Plugins.cmake").read_text(encoding="utf-8")).group(1).split()
    texts = [(ROOT / header).read_text(encoding="utf-8") for header in listed]
    symbols = demangled(sorted(name for name in symbols_of(archive, "--extern-only") if "6troupe" in name))
    wanted = promised(texts, symbols)
    everywhere = {line.split()[-1] for line in subprocess.run(
        ["nm", "-D", "--defined-only", str(binary)], capture_output=True, text=True, check=True).stdout.splitlines()}
    missing = sorted(symbol for symbol in wanted if symbols[symbol] not in everywhere)
    for symbol in missing:
        print(f"{symbol}: an installed header declares it, and {binary.name} does not export it (app/CMakeLists.txt)")
    few = len(wanted) < 200  # A checker that finds nothing declared would find nothing missing.
    print(f"{len(listed)} headers, {len(wanted)} symbols, {len(missing)} not exported" + (": too few" if few else ""))
    return 1 if missing or few else 0


def check_itself():
    assert scope_and_name("troupe::a::B::make[abi:cxx11](std::vector<int>) const") == ("troupe::a::B", "make")
    assert scope_and_name("troupe::a::B::~B()") == ("troupe::a::B", "B")
    assert scope_and_name("vtable for troupe::a::B") == ("troupe::a", "B")
    assert scope_and_name("troupe::a::operator==(troupe::a::B const&)") == ("troupe::a", "operator==")
    header = """namespace troupe::a {  // gone()
class B { B(); virtual ~B(); int size() const; };
int free(int);
}"""
    symbols = {"troupe::a::B::size() const", "troupe::a::B::~B()", "troupe::a::free(int)", "vtable for troupe::a::B",
               "troupe::a::gone()", "troupe::b::free(int)", "troupe::a::C::size()", "vtable for troupe::a::C"}
    assert promised([header], symbols) == {"troupe::a::B::size() const", "troupe::a::B::~B()", "troupe::a::free(int)",
                                           "vtable for troupe::a::B"}
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(check_itself() if sys.argv[1:] == ["--self"] else check(pathlib.Path(sys.argv[1]).resolve()))
