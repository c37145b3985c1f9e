"""Jobs of the parity test in which several holders of a parameter stand on one node and others on other nodes, and what
their runs must show: sums that are trees by node."""

import json

from parity_layouts import BOTH

# On device D of node N.
WHOLE = '{stages=[{node=N,device=D,vision="all",audio="all",llm="all"}]}'


def layout(nodes, devices, *words):
    return [f"cluster.local_nodes={nodes}", f"cluster.devices_per_node={devices}", *words]


def by_replicas(encoders, llm_places):
    """Encoders and replicas of the llm, each on a (node, device) of its own."""
    tables = [f'{{modules=[{BOTH}],stages=[{{node={node},device={device},vision="all",audio="all"}}]}}'
              for node, device in encoders]
    tables += [f'{{modules=["llm"],stages=[{{node={node},device={device},llm="all"}}]}}' for node, device in llm_places]
    return [f"parallel.replicas=[{','.join(tables)}]", "parallel.pipelines=[]"]


PAIRS = [(0, 0), (0, 1), (1, 0), (1, 1)]
FOUR_COPIES = "parallel.pipelines=[" + ",".join(
    WHOLE.replace("=N", f"={node}").replace("=D", f"={device}") for node, device in PAIRS) + "]"

# name: (overrides, steps)
CASES = {
    # Four copies of all on two nodes.
    "tree-2-2": (["train.dtype=fp64", *layout(2, 2, FOUR_COPIES)], 5),
    "tree-2-2-bf16": (["train.dtype=bf16", *layout(2, 2, FOUR_COPIES)], 3),
    # The llm three times on node 0, whose partial sums go to the copy on node 1, and once there.
    "tree-3-1": (["train.dtype=fp64", *layout(2, 3, *by_replicas([(1, 1), (1, 2)], [(0, 0), (0, 1), (0, 2), (1, 0)]),
                                              "scheduler.schedule=zero-bubble")], 5),
    # Holder after holder changes the node; a tied head. Node 2 encodes and stands by for the llm.
    "tree-standby": (["train.dtype=fp64", "modules.llm.config.tie_word_embeddings=true",
                      *layout(3, 2, *by_replicas([(2, 0), (2, 1)], [(0, 0), (1, 0), (0, 1), (1, 1)]),
                              "cluster.fault_tolerance=2")], 5),
}


def faults_of_trees(run, name):
    """Groups whose holders share several nodes are trees, those of one node or of a node each are chains, and lists have
    what trees need."""
    faults = []
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    trees = 0
    standbys = {standby["device"] for standby in plan["standbys"]}
    for group in plan["groups"]:
        users = {use["stage"] for use in group["uses"]}
        nodes = [plan["devices"][device]["node"] for device in {plan["stages"][stage]["devices"][0] for stage in users}]
        shared = [node for node in set(nodes) if nodes.count(node) > 1]
        may_be = {"tree_by_node" if len(set(nodes)) > 1 and shared else "chain"}
        if len(shared) == 1:
            may_be.add("chain")  # Who adds all up may be on the one node that would send less.
        if group["sum"] not in may_be:
            faults.append(f"{group['name']} of holders on nodes {sorted(nodes)} is summed in the order {group['sum']}")
        trees += group["sum"] == "tree_by_node"
    if not trees:
        faults.append("no group is a tree")
    if name == "tree-standby" and not standbys:
        faults.append("nobody stands by")
    with open(run / "trace.json", encoding="utf-8") as file:
        kinds = {event["args"]["kind"] for event in json.load(file) if event.get("ph") == "X"}
    return faults + [f"no list has a {kind}" for kind in ("reduce_partial", "reduce_relay") if kind not in kinds]
