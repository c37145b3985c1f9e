#!/usr/bin/python3
"""docs/run-folder.md names every file of a run folder, every key and every kind of event that the sources write, and no other;
and the report and the trace have words and a look for each kind.

    check_run_folder.py
    check_run_folder.py --self    check this checker on planted faults

A word counts as written where a function that makes a file has it as a literal: a key, or a value of a few. A key whose
literal stands in another function is found from the page's side, which then names what nobody writes.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/run-folder.md"
# Section of the page: (source, the functions in it that write the file; none: all of it; after `-`: all but these).
WRITERS = {
    "metrics.jsonl": ("runtime/observe/step_metrics.cpp", ["metrics_line"]),
    "samples.jsonl": ("runtime/observe/step_metrics.cpp", ["samples_line"]),
    "events.jsonl": ("runtime/observe/run_event.cpp", []),
    "bad_samples.jsonl": ("runtime/data/samples/bad_sample.cpp", ["to_json", "to_json_line"]),
    "iterations.jsonl": ("runtime/observe/plan_json.cpp", ["iteration_line"]),
    "plan.json": ("runtime/observe/plan_json.cpp", ["-", "iteration_line"]),
    "run.json": ("runtime/observe/run_facts.cpp", ["run_facts_json"]),
    "control": ("app/control_file.cpp", ["write_control"]),
    "learned.json": ("engine/run/head_memory_file.cpp", ["write_head_memory"]),
}
KINDS_OF = "events.jsonl"
# Where the report and the trace have something for each kind of event: how its name stands there.
SHOWN_IN = {
    "runtime/observe/report_history.cpp": r'\{"([a-z-]+)", "[^"]+", "m-',
    "runtime/observe/report_events.cpp": r'kind == "([a-z-]+)"\) return "',
    "runtime/observe/page/page.css": r"\.m-([a-z-]+)",
}
# Who makes events, and who makes files in a run folder.
EVENT_SOURCES = ["actors", "engine", "app"]
FILE_SOURCES = ["engine/run", "runtime/observe/run_trace.cpp", "runtime/observe/run_facts.cpp", "runtime/state/checkpoint.hpp", "app/report.cpp"]

WORD = re.compile(r'"([a-z][a-z0-9_]*)"')
FILE = re.compile(r'"([\w-]+\.(?:jsonl|json|toml|log|safetensors|html))"')
MARKED = re.compile(r"`([^`]+)`")
EXAMPLE = re.compile(r"^```json\n(.*?)^```", re.MULTILINE | re.DOTALL)


def functions(text):
    """{name: text} of the functions that begin at the begin of a line, all of one name together."""
    found = {}
    for match in re.finditer(r"^[A-Za-z][^\n;={}]*?\b(\w+)\([^;{}]*\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        found[match[1]] = found.get(match[1], "") + match[2]
    return found


def without_includes(text):
    return re.sub(r"^#include.*$", "", text, flags=re.MULTILINE)


def written(text, names):
    """Words of the functions of a source that write a file, and names of functions that are not there."""
    text = without_includes(text)
    if not names:
        return set(WORD.findall(text)), []
    known = functions(text)
    missing = [name for name in names if name != "-" and name not in known]
    if names[0] == "-":
        for name in names[1:]:
            text = text.replace(known.get(name, "\0"), "")
        return set(WORD.findall(text)), missing
    return set(WORD.findall("".join(known.get(name, "") for name in names))), missing


def kinds_in(text):
    """Kinds of events that a source makes, and assignments of a kind that this checker cannot follow."""
    kinds, odd = set(), []
    for value in re.findall(r"\bevent\.kind = ([^;]+);", text):
        literal = re.fullmatch(r'"([a-z-]+)"', value)
        if literal:
            kinds.add(literal[1])
        elif value == "kind":  # Of a function `add`, whose first argument it is.
            kinds |= {kind for first in re.findall(r"\badd\(([^,]+),", text) for kind in re.findall(r'"([a-z-]+)"', first)}
        else:
            odd.append(value)
    return kinds, odd


def sections(page):
    """{name: text} of the headings that are a file's name."""
    return {name: body for name, body in re.findall(r"^## `([^`]+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)}


def first_cells(section, head):
    """Marked names in the first cells of the tables whose first column is called `head`."""
    names, inside = [], False
    for line in section.splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(f"| {head} |"):
            inside = True
        elif inside:
            names += MARKED.findall(line.split("|")[1])
    return names


def faults_of_section(name, section, words):
    marked = set(MARKED.findall(EXAMPLE.sub("", section)))
    faults = [f"`{name}`: the page does not explain `{word}`" for word in sorted(words - marked)]
    keys = first_cells(section, "Key")
    faults += [f"`{name}`: the page explains `{key}`, which nobody writes" for key in keys if key not in words]
    faults += [f"`{name}`: `{key}` stands twice" for key in sorted({key for key in keys if keys.count(key) > 1})]
    for example in EXAMPLE.findall(section):
        faults += [f"`{name}`: its example has `{key}`, which nobody writes" for key in json.loads(example) if key not in words]
    return faults


def faults_of_kinds(section, kinds):
    told = first_cells(section, "Kind")
    return ([f"`{KINDS_OF}`: the page does not explain the kind `{kind}`" for kind in sorted(kinds - set(told))] +
            [f"`{KINDS_OF}`: the page explains the kind `{kind}`, which nobody writes" for kind in told if kind not in kinds])


def faults_of_shown(file, text, kinds):
    shown = set(re.findall(SHOWN_IN[file], text))
    return ([f"{file}: nothing shows the kind `{kind}`" for kind in sorted(kinds - shown)] +
            [f"{file}: the kind `{kind}`, which nobody writes, is shown" for kind in sorted(shown - kinds)])


def sources_below(root, places):
    for place in places:
        path = root / place
        yield from [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.suffix in (".cpp", ".hpp"))


def faults_of_files(page, names):
    told = {name.rpartition("/")[2] for name in first_cells(page, "File")}
    return [f"the page does not have the file `{name}`" for name in sorted(names - told)]


def faults_of(root):
    page = (root / PAGE).read_text(encoding="utf-8")
    known, faults, count = sections(page), [], 0
    for name, (source, names) in WRITERS.items():
        words, missing = written((root / source).read_text(encoding="utf-8"), names)
        count += len(words)
        faults += [f"{source}: no function `{function}` writes `{name}` any more" for function in missing]
        if name in known:
            faults += faults_of_section(name, known[name], words)
        else:
            faults.append(f"{PAGE}: no section `{name}`")
    kinds = set()
    for file in sources_below(root, EVENT_SOURCES):
        text = file.read_text(encoding="utf-8")
        if "RunEvent" not in text:
            continue
        found, odd = kinds_in(text)
        kinds |= found
        faults += [f"{file.relative_to(root)}: what kind of event is `{value}`?" for value in odd]
    faults += faults_of_kinds(known.get(KINDS_OF, ""), kinds)
    for file in SHOWN_IN:
        faults += faults_of_shown(file, (root / file).read_text(encoding="utf-8"), kinds)
    files = {name for file in sources_below(root, FILE_SOURCES) for name in FILE.findall(file.read_text(encoding="utf-8"))}
    return faults + faults_of_files(page, files), count + len(kinds) + len(files)


def check_itself():
    source = 'std::string line(const M& m) {\n  Json json = {{"step", m.step},\n {"loss", 1}};\n  json["skipped"] = "x y";\n}\n\nint other() {\n  f("far");\n}\n'
    assert written(source, ["line"]) == ({"step", "loss", "skipped"}, [])
    assert written(source, ["-", "line"]) == ({"far"}, [])
    assert written(source, ["gone"]) == (set(), ["gone"])
    page = '# P\n\n| File | Says |\n|---|---|\n| `model/m.json`, `a.toml` | x |\n\n## `a`\n\n```json\n{"step":1}\n```\n\n| Key | Says |\n|---|---|\n| `step`, `loss` | x |\n\n## Other\n'
    section = sections(page)["a"]
    assert first_cells(section, "Key") == ["step", "loss"]
    assert faults_of_section("a", section, {"step", "loss"}) == []
    assert faults_of_section("a", section, {"step", "loss", "lr"}) == ["`a`: the page does not explain `lr`"]
    assert faults_of_section("a", section, {"step"}) == ["`a`: the page explains `loss`, which nobody writes"]
    assert faults_of_section("a", section.replace('"step":', '"stop":'), {"step", "loss"}) == ["`a`: its example has `stop`, which nobody writes"]
    assert faults_of_files(page, {"m.json", "a.toml", "b.log"}) == ["the page does not have the file `b.log`"]
    made = 'RunEvent e; event.kind = "slow"; event.kind = kind; add(is_it ? "head-lost" : "lost", x); add("joined", y);'
    assert kinds_in(made) == ({"slow", "head-lost", "lost", "joined"}, [])
    assert kinds_in("event.kind = word_of(x);") == (set(), ["word_of(x)"])
    table = "| Kind | What |\n|---|---|\n| `lost` | x |\n| `old` | y |\n"
    assert faults_of_kinds(table, {"lost", "slow"}) == ["`events.jsonl`: the page does not explain the kind `slow`",
                                                        "`events.jsonl`: the page explains the kind `old`, which nobody writes"]
    css = "runtime/observe/page/page.css"
    assert faults_of_shown(css, ".m-lost, .m-old { x }", {"lost", "slow"}) == [f"{css}: nothing shows the kind `slow`",
                                                                               f"{css}: the kind `old`, which nobody writes, is shown"]
    print("as planted")


def main(root):
    faults, count = faults_of(root)
    print("\n".join(faults + [f"{count} words, {len(faults)} faults"]))
    return 1 if faults or not count else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self"]:
        check_itself()
    else:
        sys.exit(main(ROOT))  # Mutants name a program, too.
