"""Cases of the parity test in which the planner gives module groups numbers of replicas of their own, and what it must
choose.

Times come from a profile whose merger and head take nearly all of it, whatever the machine: so the choice is the same
everywhere. Bytes are as measured.
"""

import json

PLANNER = ["train.dtype=fp64", "parallel.mode=auto", "parallel.pipelines=[]"]
HEAVY = {"vision.merger": 2.0, "llm.head": 0.5}  # Milliseconds a row, each pass; of all other kinds 1e-4.

COLOCATED = "auto-numbers-colocated"

# name: (overrides, steps, replicas of each module group; of COLOCATED, of the groups that have these modules)
AUTO_NUMBERS = {
    # Two pipelines of these five devices take a third longer, by the search's simulator.
    "auto-numbers": ([*PLANNER, "cluster.local_nodes=5", "parallel.llm.dp=2", "balancer.policy=deferral",
                      "scheduler.schedule=eager-1f1b"], 5, {"vision+audio": 3, "llm": 2}),
    # Pinned: two encoders with numbers that differ.
    "auto-numbers-pinned": ([*PLANNER, "cluster.local_nodes=7", "parallel.vision.dp=2", "parallel.audio.dp=1",
                             "parallel.llm.dp=3", "balancer.policy=hierarchical", "scheduler.schedule=split-1f1b"], 5,
                            {"vision": 2, "audio": 1, "llm": 3}),
    # Where encoders and llm take turns, the heavy encoder stands on every device of two llms of two stages. The light one
    # takes next to nothing wherever it stands: by itself or with the other, as messages were measured.
    COLOCATED: ([*PLANNER, "cluster.local_nodes=4", "parallel.llm.dp=2", "scheduler.schedule=three-phase",
                 "balancer.exchange=per-phase"], 5, {"vision": 4, "llm": 2}),
    "auto-numbers-few-encoders": ([*PLANNER, "cluster.local_nodes=5", "parallel.vision.dp=1", "parallel.llm.dp=4",
                                   "scheduler.schedule=zero-bubble"], 5, {"vision+audio": 1, "llm": 4}),
}


def write_profile(profiles, path):
    """Writes the profile that the folder has for fp64, with the times of `HEAVY`, to `path`."""
    measured = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(profiles.glob("parity-*.json"))
                if not file.name.endswith(".runs.json")]
    profile = next(one for one in measured if one["key"]["dtype"] == "fp64")
    for kind in profile["kinds"]:
        for point in kind["points"]:
            ms = HEAVY.get(kind["kind"], 1e-4) * point["tokens"]
            point["linear"] = [ms, ms, ms, point["linear"][3]]
            point["attention"] = [0, 0, 0, point["attention"][3]]
    path.write_text(json.dumps(profile), encoding="utf-8")


def faults_of_numbers(run, name):
    """Whether the planner chose these numbers of replicas, on devices of their own unless they are to share some."""
    expected = AUTO_NUMBERS[name][2]
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    names = [plan["module_groups"][replica["group"]]["name"] for replica in plan["replicas"]]
    numbers = {group: names.count(group) for group in dict.fromkeys(names)}
    chosen = numbers
    if name == COLOCATED:
        of_modules = {module: number for group, number in numbers.items() for module in group.split("+")}
        chosen = {module: of_modules.get(module) for module in expected}
    faults = [] if chosen == expected else [f"the planner chose {numbers}, expected {expected}"]
    devices = [device for stage in plan["stages"] for device in stage["devices"]]
    if (len(devices) > len(set(devices))) != (name == COLOCATED):
        faults.append(f"{len(devices)} stages stand on {len(set(devices))} devices")
    return faults
