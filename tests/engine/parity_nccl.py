"""Jobs of the parity test whose sums of gradients go by calls to the fake NCCL (tests/transport/nccl), and what their runs
must show: groups of several holders that call, in the chain's order or in NCCL's own."""

import json
import os
import pathlib

from parity_layouts import CHANGING, CHANGING_STEPS, REPLICAS, TWO_DEVICES
from parity_standby import STANDBY

CHAIN, OWN = "cluster.sums=nccl-chain", "cluster.sums=nccl"

# name: (overrides, steps)
CASES = {
    "nccl-fp64": (["train.dtype=fp64", OWN], 5),  # In fp64 the chain all the same.
    "nccl-fp32": (["train.dtype=fp32", CHAIN, "scheduler.schedule=eager-1f1b"], 3),
    "nccl-bf16": (["train.dtype=bf16", CHAIN], 3),
    # Two holders of one process; a tree by messages.
    "nccl-two-devices": (["train.dtype=fp64", CHAIN, *TWO_DEVICES, "scheduler.schedule=zero-bubble"], 5),
    "nccl-replicas-5-3": (["train.dtype=fp64", CHAIN, *REPLICAS["5-3"], "scheduler.schedule=zero-bubble"], 5),
    "nccl-standby": ([*STANDBY["standby-1-2-frozen"][0], CHAIN], STANDBY["standby-1-2-frozen"][1]),
    "nccl-late": (["train.dtype=fp64", CHAIN, "debug.delayed_device_ms=0.4"], 5),
    # Seven generations of groups: smaller, larger, and others.
    "nccl-layouts": ([*CHANGING, CHAIN], CHANGING_STEPS),
}


def words(binary, overrides):
    """What a job says besides, whose CPUs are to call the fake library."""
    if not {CHAIN, OWN} & set(overrides):
        return []
    plugin = pathlib.Path(binary).resolve().parent / "tests" / "fake_nccl_devices.so"
    if not plugin.is_file():
        raise FileNotFoundError(f"{plugin} is not there: `cmake --build build/release --target fake_nccl_devices` makes it")
    return [f'plugins.libraries=["{plugin}"]']


def use_fake(binary, folder, environment=os.environ):
    """Lets jobs find the fake library, and it a folder of its own."""
    environment["TROUPE_NCCL_LIBRARY"] = str(pathlib.Path(binary).resolve().parent / "tests" / "libfake_nccl.so")
    environment["FAKE_NCCL_FOLDER"] = str(folder)


def faults_of_calls(run, order="nccl_chain"):
    """Groups that several devices hold are calls in this order; nobody sends another one a chunk."""
    faults, calls = [], 0
    for path in sorted(run.glob("plan*.json")):
        plan = json.loads(path.read_text(encoding="utf-8"))
        for group in plan["groups"]:
            wanted = order if len(group["holders"]) > 1 else "chain"
            calls += wanted == order
            if group["sum"] != wanted:
                faults.append(f"{path.name}: {group['name']} of {len(group['holders'])} holders is summed in the order {group['sum']}")
    if not calls:
        faults.append("no group is a call")
    return faults
