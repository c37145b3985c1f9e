#!/usr/bin/python3
"""Folders are layers: reports includes that the architecture forbids, and headers that plug-ins would not find.

    check_includes.py ROOT      check the sources below ROOT
    check_includes.py --self    check this checker on planted faults
"""

import pathlib
import re
import sys
import tempfile

VOCABULARY = "runtime/vocabulary"
FILES = "runtime/files"
PLUGINS = "runtime/plugins"
POLICIES = "runtime/policies"
SCHEDULES = "runtime/schedules"
FORMATS = "runtime/data/formats"
OBSERVERS = "runtime/observers"
RUNTIME = [VOCABULARY, FILES, PLUGINS, POLICIES, SCHEDULES, FORMATS, OBSERVERS, "runtime/door", "runtime/job", "runtime/data", "runtime/state", "runtime/observe"]
FAMILY = "models/family"
GPU = "kernels/gpu"
NCCL = "transport/nccl"
FAMILIES = ["models/llama", "models/mlp", "models/qwen2_vl", "models/whisper"]

# Rooms of a folder, with the rooms of it that each may include from. What the folder may, its rooms may.
ROOMS = {
    "runtime/data": {
        "lengths": [],
        "reading": [],
        "made": ["reading"],
        "samples": ["lengths", "reading"],
        "batches": ["lengths", "reading", "samples"],
    },
    "balancer": {
        "loads": [],
        "corrections": [],
        "microbatches": ["loads"],
        "ranks": ["loads", "microbatches"],
        "tokens": ["loads", "microbatches"],
    },
    "scheduler": {
        "iteration": [],
        "cost": ["iteration"],
        "check": ["iteration", "cost"],
        "state": ["iteration", "cost"],
        "simulate": ["iteration", "cost", "check", "state"],
        "layout": ["iteration", "cost", "check", "state", "simulate"],
        "recovery": ["iteration", "state", "layout"],
    },
    "engine": {
        "learning": [],
        "iteration": ["learning"],
        "setup": ["iteration"],
        "state": ["setup"],
        "execution": ["iteration", "state"],
        "profiling": ["learning", "iteration", "setup", "state", "execution"],
        "layout": ["iteration", "setup", "state", "profiling"],
        "run": ["iteration", "profiling"],
        "reference": ["iteration", "setup", "execution", "profiling", "layout", "run"],
        "contract": ["iteration", "setup", "state", "execution"],
    },
    "actors": {
        "link": [],
        "observing": ["link"],
        "coordination": ["link"],
        "head": ["link"],
        "node": ["link"],
        "supervisor": ["link", "coordination", "head", "node"],
    },
}


def with_rooms(*folders):
    """These folders, and the rooms of those that have some."""
    return [path for folder in folders for path in (folder, *(f"{folder}/{room}" for room in ROOMS.get(folder, ())))]


BELOW_ENGINE = with_rooms(*RUNTIME, FAMILY, "scheduler", "balancer", "kernels", GPU, "models", "transport", NCCL)

# Folder -> folders it may include from, besides itself. Longest match wins.
ALLOWED = {
    VOCABULARY: [],
    FILES: [],
    "runtime/door": [VOCABULARY],
    PLUGINS: [VOCABULARY, FILES],
    POLICIES: [VOCABULARY, PLUGINS, *with_rooms("balancer")],  # The built-in ones stand there.
    SCHEDULES: [VOCABULARY, PLUGINS, "scheduler/iteration"],
    FAMILY: [VOCABULARY, PLUGINS, *FAMILIES],  # Its table names all.
    **{folder: [VOCABULARY, "kernels", "models", FAMILY] for folder in FAMILIES},
    FORMATS: [VOCABULARY, PLUGINS],
    OBSERVERS: [VOCABULARY],
    "runtime/job": [VOCABULARY, FILES, FAMILY, PLUGINS, POLICIES, SCHEDULES, FORMATS, OBSERVERS],
    "runtime/data": [VOCABULARY, FILES, FORMATS],
    "runtime/state": [VOCABULARY, FILES, GPU],
    "runtime/observe": [VOCABULARY, FILES],
    "scheduler": [VOCABULARY, FAMILY],
    "balancer": [VOCABULARY],
    GPU: [],
    "kernels": [VOCABULARY, GPU],
    "models": [VOCABULARY, "kernels", FAMILY, PLUGINS],
    "transport": [VOCABULARY],
    NCCL: [VOCABULARY, "transport"],
    "engine": BELOW_ENGINE,
    "actors": BELOW_ENGINE + with_rooms("engine"),
    "app": BELOW_ENGINE + with_rooms("engine", "actors"),
    "tests": BELOW_ENGINE + FAMILIES + with_rooms("engine", "actors") + ["app"],
}
for folder, rooms in ROOMS.items():
    for room, siblings in rooms.items():
        ALLOWED[f"{folder}/{room}"] = ALLOWED[folder] + [f"{folder}/{sibling}" for sibling in siblings]

# Library: pattern of its headers, and the only folders that know it.
TORCH_USERS = ["runtime/state", "kernels", "models", "transport", "engine", "actors", "app", "tests"]
LIBRARIES = {
    "toml++": (r"toml\+\+/|toml\.hpp", ["runtime/job"]),
    "spdlog": (r"spdlog/", ["runtime/observe"]),
    "prometheus-cpp": (r"prometheus/", ["runtime/observe"]),
    "image and audio decoders": (
        r"turbojpeg|jpeglib|png\.h|sndfile|soxr|kiss_fft|kissfft", ["runtime/data", "tests"]),
    "OpenSSL": (r"openssl/", ["runtime/data/lengths", "runtime/door", "runtime/state"]),
    "CBC": (r"coin/|Cbc_", ["balancer"]),
    "CUDA": (r"cuda|cublas|cudnn|curand", ["kernels", "transport/nccl"]),
    "UCX": (r"uc[pst]/", ["transport"]),
    "NCCL": (r"nccl", ["transport", "tests"]),
    "Asio": (r"boost/asio", ["transport"]),
    "CAF": (r"caf/", ["actors", "app", "tests"]),
    "CLI11": (r"CLI/", ["app"]),
    "Catch2": (r"catch2/", ["tests"]),
    "LibTorch": (r"torch/|ATen/|c10/|ATen\.h", TORCH_USERS),
}

# Planners are functions: no clock, thread or file. A file around a solver may have a time limit.
PURE_FOLDERS = ["scheduler", "balancer"]
IMPURE = {"chrono", "ctime", "thread", "mutex", "atomic", "condition_variable", "future", "iostream",
          "fstream", "filesystem", "unistd.h"}
SOLVER = re.compile(r"coin/|Cbc_")

# Precompiled headers hide a missing include: who uses these names includes their header, itself or
# through a header of the project.
USES = {
    "CLI11": (r"(\.|->)add_(option|flag)\(|\bCLI::(?!App\b)\w", r"CLI/"),
    "nlohmann's JSON": (r"\bnlohmann::", r"nlohmann/"),
    "Catch2": (r"^TEST_CASE\(", r"catch2/catch_test_macros|tests/torch_catch"),
    "Catch2's Approx": (r"\bCatch::Approx\b|\bApprox\(", r"catch2/catch_approx"),
    "Catch2's generators": (r"\bGENERATE(_COPY|_REF)?\(", r"catch2/generators/"),
    "Catch2's matchers": (r"\b(CHECK|REQUIRE)_THAT\(|\bCatch::Matchers::", r"catch2/matchers/"),
    "LibTorch": (r"\b(at|c10)::\w", r"ATen/|c10/|torch/|tests/torch_catch"),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
PLUGIN_HEADERS = re.compile(r"set\(TROUPE_PLUGIN_HEADERS\s+([^)]*)\)")
SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh", ".h"}


def inside(path, folder):
    return path == folder or path.startswith(folder + "/")


def layer_of(path):
    matches = [folder for folder in ALLOWED if inside(path, folder)]
    return max(matches, key=len) if matches else None


def faults_in(path, text):
    """Faults of one file; `path` is relative to the root."""
    layer = layer_of(path)
    if layer is None:
        return [(1, "this folder is in no row of the table in tests/structure/check_includes.py")]
    faults = []
    wraps_solver = SOLVER.search(text)
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        name = match.group(2)
        target = layer_of(name)
        if match.group(1) == '"' and target and target != layer and target not in ALLOWED[layer]:
            allowed = ", ".join(ALLOWED[layer]) or "nothing of the project"
            faults.append((line, f'"{name}": {layer} may include {allowed}'))
        for library, (pattern, users) in LIBRARIES.items():
            if match.group(1) == '"' and target:
                continue
            if re.match(pattern, name) and not any(inside(path, user) for user in users):
                faults.append((line, f"<{name}>: {library} belongs to {', '.join(users)}"))
        if any(inside(path, pure) for pure in PURE_FOLDERS) and name in IMPURE and not wraps_solver:
            faults.append((line, f"<{name}>: {layer} is pure: no clock, thread, file"))
    return faults


def included_below(root, name, seen):
    """Adds every header that a project file brings, directly or not."""
    for _, below in INCLUDE.findall((root / name).read_text(errors="replace")):
        if below not in seen:
            seen.add(below)
            beside = (pathlib.Path(name).parent / below).as_posix()
            for file in (below, beside):
                if (root / file).is_file():
                    included_below(root, file, seen)


def hidden_in(root, path, text):
    """Names of a library used in this file while no include brings the library."""
    code = re.sub(r"//.*", "", text)
    used = {name: pattern for name, (use, pattern) in USES.items() if re.search(use, code, re.MULTILINE)}
    if not used:
        return []
    brought = set()
    included_below(root, path, brought)
    return [(1, f"uses {name} and includes none of its headers") for name, pattern in used.items()
            if not any(re.match(pattern, header) for header in brought)]


def unlisted(root):
    """Headers that a header for plug-ins includes and that authors of plug-ins would not find."""
    table = root / "cmake/Plugins.cmake"
    if not table.is_file():
        return []
    headers = PLUGIN_HEADERS.search(table.read_text())
    listed = headers.group(1).split() if headers else []
    if not listed:
        return ["cmake/Plugins.cmake:1: no TROUPE_PLUGIN_HEADERS"]
    faults = []
    for header in listed:
        if not (root / header).is_file():
            faults.append(f"cmake/Plugins.cmake:1: {header} is not there")
            continue
        for quote, name in INCLUDE.findall((root / header).read_text(errors="replace")):
            if quote == '"' and name not in listed:
                faults.append(f"cmake/Plugins.cmake:1: {header} includes {name}, which plug-ins would not find: list it")
    return faults


def check(root):
    faults = unlisted(root)
    count = 0
    for top in sorted({folder.split("/")[0] for folder in ALLOWED}):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            count += 1
            path = file.relative_to(root).as_posix()
            text = file.read_text(errors="replace")
            faults += [f"{path}:{line}: {why}"
                       for line, why in faults_in(path, text) + hidden_in(root, path, text)]
    return count, faults


def check_itself():
    planted = {
        "scheduler/a.hpp": '#include "balancer/b.hpp"\n',
        "scheduler/b.cpp": "#include <chrono>\n",
        "balancer/b.hpp": "#include <torch/torch.h>\n",
        "runtime/data/c.cpp": '\n# include "runtime/job/job.hpp"\n',
        "engine/d.cpp": '#include "actors/link/protocol.hpp"\n',
        "engine/state/k.cpp": '#include "engine/layout/choose_layout.hpp"\n',
        "scheduler/cost/l.cpp": "#include <chrono>\n",
        "transport/e.hpp": '#include "caf/all.hpp"\n',
        "models/f.cpp": '#include "transport/transport.hpp"\n',
        "tests/i.cpp": '#include "app/fine.hpp"\nTEST_CASE("a") {}\n',
        "app/j.cpp": "nlohmann::json page;\n",
        "cmake/Plugins.cmake": "set(TROUPE_PLUGIN_HEADERS\n  app/open.hpp\n  app/shown.hpp)\n",
    }
    fine = {
        "balancer/cbc.cpp": "#include <coin/Cbc_C_Interface.h>\n#include <chrono>\n",
        "actors/g.cpp": '#include "engine/execution/executor.hpp"\n#include <caf/all.hpp>\n',
        "engine/layout/m.cpp": '#include "engine/state/state_memory.hpp"\n',
        "app/open.hpp": '#include "app/shown.hpp"\n#include "app/hidden.hpp"\n',
        "app/shown.hpp": "#include <string>\n",
        "models/h.cpp": '#include "kernels/attention.hpp"\n#include <ATen/core/Tensor.h>\n',
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in {**planted, **fine}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        _, faults = check(root)
        found = {fault.split(":")[0] for fault in faults}
        if found != set(planted) or len(faults) != len(planted):
            sys.exit("check_includes.py does not find exactly the planted faults:\n" + "\n".join(faults))
    print(f"found all {len(planted)} planted faults")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self"]:
        check_itself()
        sys.exit(0)
    files, problems = check(pathlib.Path(sys.argv[1]))
    for problem in problems:
        print(problem)
    if files == 0:
        sys.exit(f"no sources below {sys.argv[1]}")
    print(f"{files} files, {len(problems)} forbidden includes")
    sys.exit(1 if problems else 0)
