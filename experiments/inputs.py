"""The experiments' inputs, each with where its value comes from (provenance.json), and their variations.

An entry of provenance.json names a file and a path in it, `*` for any step, and says `origin`:
- `paper`: printed there. `table` (its caption's number) or `quote` says where, `elsewhere` that it is another paper.
- `computed`: from printed values alone, by `formula`.
- `chosen`: by us; `matches` says what it was to match, `formula` how it was found, if there is one. Such an entry says
  how it is varied: `vary` is "factor" (half and twice) or a list of other values, `also` lists variations of several
  inputs at once, and `fixed` says why it cannot be varied.
Under `program` stand inputs that no file holds, as the program has them built in.
"""

import ast
import fnmatch
import json
import math
import operator
import pathlib
import re
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
TABLES = {"oobleck": "oobleck/table-2.2.json", "cornstarch": "cornstarch/table-3.2.json", "entrain": "entrain/table-4.1.json",
          "orchmllm": "orchmllm/section-8.json", "heterogeneous": "heterogeneous/table-a5.json"}
PAPERS = {"orchmllm": "orchmllm.txt", "heterogeneous": "heterogeneous-parallelism.txt"}  # The others are chapters of the dissertation.
ORIGINS = ("paper", "computed", "chosen")
NOT_INPUTS = ("source", "*.row", "job.name", "data.sources.*")  # Texts for people; data that nothing reads.


def leaves(data, path=""):
    """(path, value) of every value that is no object or list."""
    if isinstance(data, (dict, list)):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, data


def replaced(data, path, value):
    """The data with one value changed in place."""
    *folders, last = [int(step) if step.isdigit() else step for step in split(data, path)]
    inner = data
    for step in folders:
        inner = inner[step]
    inner[last] = value


def split(data, path):
    """Steps of a path; a key may hold a dot (`gpt3-2.7b`)."""
    if not path:
        return []
    for key in data if isinstance(data, dict) else map(str, range(len(data))):
        if path == key or path.startswith(key + "."):
            return [key] + split(data[key] if isinstance(data, dict) else data[int(key)], path[len(key) + 1:])
    raise KeyError(path)


def files():
    """Every file that holds inputs, by its name from here, parsed."""
    found = {name: json.loads((HERE / name).read_text()) for name in TABLES.values()}
    for file in sorted(HERE.glob("*/*.toml")):
        found[file.relative_to(HERE).as_posix()] = tomllib.loads(file.read_text())
    return found


def inputs():
    """(file, path, value) of every input."""
    return [(file, path, value) for file, data in files().items() for path, value in leaves(data)
            if not any(fnmatch.fnmatchcase(path, pattern) for pattern in NOT_INPUTS)]


class Entry:
    def __init__(self, file, path, says):
        self.file, self.path, self.says = file, path, says
        self.origin, self.experiment = says.get("origin"), file.split("/")[0]

    def covers(self, file, path):
        return fnmatch.fnmatchcase(file, self.file) and fnmatch.fnmatchcase(path, self.path)

    def values(self):
        return [value for file, path, value in inputs() if self.covers(file, path)]

    def variations(self):
        """(what it is set to, in words; changes as `load` takes them)."""
        vary = self.says.get("vary", [])
        if vary == "factor":
            yield from ((words, [(self.file, self.path, ("times", factor))]) for words, factor in (("halved", 0.5), ("doubled", 2)))
        else:
            yield from ((json.dumps(value).strip('"'), [(self.file, self.path, ("set", value))]) for value in vary)
        for more in self.says.get("also", []):
            yield more["say"], [(self.file, path, ("set", value)) for path, value in more["set"].items()]


def provenance():
    return json.loads((HERE / "provenance.json").read_text())


def entries():
    return [Entry(file, path, says) for file, paths in provenance().items() if file != "program" for path, says in paths.items()]


def changed(value, change):
    how, by = change
    if how == "set":
        return by
    return max(1, round(value * by)) if isinstance(value, int) else value * by


def load(experiment, changes=()):
    """The experiment's table, and per job file the words that change it."""
    words, table = {}, None
    for file, data in files().items():
        if file.split("/")[0] != experiment:
            continue
        for file_pattern, path_pattern, change in changes:
            for path, value in list(leaves(data)):
                if fnmatch.fnmatchcase(file, file_pattern) and fnmatch.fnmatchcase(path, path_pattern):
                    replaced(data, path, changed(value, change))
                    if file.endswith(".toml"):
                        words.setdefault(pathlib.Path(file).stem, []).append(f"{path}={json.dumps(changed(value, change))}")
        if file == TABLES[experiment]:
            table = data
    return table, words


OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value_of(formula):
    """Arithmetic of numbers and `sqrt`."""
    def of(node):
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](of(node.left), of(node.right))
        if isinstance(node, ast.Call) and node.func.id == "sqrt":
            return math.sqrt(of(node.args[0]))
        return ast.literal_eval(node)
    return of(ast.parse(formula, mode="eval").body)


def numbers_in(text):
    """Numbers as printed: `8*` is 8, `DP=4.` is 4, `one` is 1, `6,750` is 6750."""
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    words = {float(number) for word, number in (("one", 1), ("eight", 8)) if re.search(rf"\b{word}\b", text)}
    return words | {float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?!\d)", text)}


def printed_table(text, number):
    """The block of lines behind the caption of a table."""
    at = re.search(rf"^\**Table {re.escape(number)}(?:: |\.\** | \| )", text, re.MULTILINE)
    return "" if at is None else "\n\n".join(text[at.start():].split("\n\n")[:2])


def papers(folder):
    """The text of each experiment's paper, to look printed values up in; none where it is not there."""
    files = {experiment: folder / PAPERS.get(experiment, "dissertation.txt") for experiment in TABLES}
    return {experiment: file.read_text() if file.is_file() else None for experiment, file in files.items()}


def faults(paper_of=None):
    """What is wrong with the provenance; `paper_of`: as from `papers`."""
    found, listed = [], entries()
    for file, path, _ in inputs():
        count = sum(entry.covers(file, path) for entry in listed)
        if count != 1:
            found.append(f"{file}: {path} has {count} entries in provenance.json")
    for entry in listed:
        found += [f"{entry.file}: {entry.path}: {what}" for what in entry_faults(entry, (paper_of or {}).get(entry.experiment))]
    return found


def entry_faults(entry, paper):
    says, values = entry.says, entry.values()
    if not values:
        return ["covers no input"]
    if entry.origin not in ORIGINS:
        return [f"its origin is one of {ORIGINS}"]
    found = []
    if "formula" in says and not all(math.isclose(value_of(says["formula"]), value, rel_tol=0.01) for value in values):
        found.append(f"{says['formula']} is {value_of(says['formula'])}, not {values}")
    if entry.origin == "computed" and not ("formula" in says and "of" in says):
        found.append("computed, but not by which formula of what")
    if entry.origin == "chosen":
        if not says.get("why"):
            found.append("chosen, but not why")
        if "fixed" not in says and not list(entry.variations()):
            found.append("chosen, but neither varied nor said why not")
    if entry.origin == "paper":
        found += paper_faults(says, values, paper)
    return found


def paper_faults(says, values, paper):
    if "elsewhere" in says:
        return []
    if ("table" in says) == ("quote" in says):
        return ["from the paper, but not from which table or which words"]
    if paper is None:
        return []
    where = printed_table(paper, says["table"]) if "table" in says else says["quote"]
    if "quote" in says and says["quote"] not in " ".join(paper.split()):
        return [f"the paper does not say '{says['quote']}'"]
    numbers = numbers_in(where)
    return [f"{value} is not printed in '{where[:60]}'" for value in values
            if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(float(value)) not in numbers]
