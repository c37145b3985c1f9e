"""Jobs of the parity test whose sums of gradients, or rows between stages, go by calls to the fake NCCL
(tests/transport/nccl), and what their runs must show: groups of several holders that call, in the chain's order or in
NCCL's own; or none that does, and communicators of two for rows."""

import json
import os
import pathlib

from parity_layouts import CHANGING, CHANGING_STEPS, REPLICAS, TWO_DEVICES
from parity_standby import STANDBY

CHAIN, OWN, AUTO = "cluster.sums=nccl-chain", "cluster.sums=nccl", "cluster.sums=auto"
ROWS, OPEN_ROWS = "cluster.rows=nccl", "cluster.rows=auto"

# What decides where the job leaves it open: milliseconds and GB/s of each link (0: bytes take no time). And what then
# stands in the run's own job file, and the order of the groups in its plan.
CHOICES = {
    # Bytes decide. By messages the owner of a small group's sum sends it to three others; NCCL has all four send.
    "nccl-auto": ((0, 0.01), "nccl", "nccl_chain"),
    # The way decides. NCCL's tree of four takes it four times, messages take it twice.
    "nccl-auto-messages": ((10, 0), "messages", "chain"),
}

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
    # The profile says what its links are: `CHOICES`.
    "nccl-auto": (["train.dtype=fp64", AUTO, *REPLICAS["1-4"]], 3),
    "nccl-auto-messages": (["train.dtype=fp32", AUTO, *REPLICAS["1-4"]], 3),
    # Seven generations of groups: smaller, larger, and others.
    "nccl-layouts": ([*CHANGING, CHAIN], CHANGING_STEPS),
}

# The same of rows: sums by messages, but where the overrides say otherwise. Every lane is a communicator of two.
ROW_CASES = {
    "nccl-rows-fp64": (["train.dtype=fp64", ROWS], 5),
    "nccl-rows-bf16": (["train.dtype=bf16", ROWS, CHAIN, "scheduler.schedule=eager-1f1b"], 3),
    # Lanes inside a process, and stages that send and receive on several of them.
    "nccl-rows-two-devices": (["train.dtype=fp64", ROWS, *TWO_DEVICES, "balancer.policy=deferral", "scheduler.schedule=split-1f1b"], 5),
    # Encoders feed llm replicas in an order of their own.
    "nccl-rows-replicas-5-3": (["train.dtype=fp64", ROWS, *REPLICAS["5-3"], "scheduler.schedule=zero-bubble"], 5),
    "nccl-rows-late": (["train.dtype=fp64", OPEN_ROWS, "debug.delayed_device_ms=0.4"], 5),
    "nccl-rows-layouts": ([*CHANGING, ROWS], CHANGING_STEPS),
}
CASES |= ROW_CASES


def words(binary, overrides):
    """What a job says besides, whose CPUs are to call the fake library."""
    if not {CHAIN, OWN, AUTO, ROWS, OPEN_ROWS} & set(overrides):
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


def write_profile(measured, path, name):
    """Writes a measured profile to `path`, with the links of a case of `CHOICES`; adding takes no time."""
    profile = json.loads(measured.read_text(encoding="utf-8"))
    for link in ("node", "machine", "network"):
        profile["speeds"][link] = dict(zip(("latency_ms", "gigabytes_per_s"), CHOICES[name][0]))
    profile["speeds"]["reduce_gigabytes_per_s"] = 0
    path.write_text(json.dumps(profile), encoding="utf-8")


def faults_of_rows(run, overrides):
    """Rows are calls by the run's own job file, and sums as the case says."""
    job, faults = (run / "resolved.toml").read_text(encoding="utf-8"), []
    if '\nrows = "nccl"' not in job:
        faults.append("its own job file does not say that rows are calls")
    if OPEN_ROWS in overrides and "because rows by NCCL: " not in (run / "train.log").read_text(encoding="utf-8"):
        faults.append("its log does not say why rows are calls")
    return faults + (faults_of_calls(run) if CHAIN in overrides else [])


def faults_of_sums(run, name):
    """Whether a run of a case adds up as it should, and one that leaves it open says what it chose, and why."""
    if name in ROW_CASES:
        return faults_of_rows(run, ROW_CASES[name][0])
    if name not in CHOICES:
        return faults_of_calls(run)
    _, sums, order = CHOICES[name]
    faults = faults_of_calls(run, order)
    if f'\nsums = "{sums}"  # command line: auto\n' not in (run / "resolved.toml").read_text(encoding="utf-8"):
        faults.append(f"its own job file does not say {sums}")
    why = f"because sums by {'NCCL' if sums == 'nccl' else sums}: the sums of a step take "
    if why not in (run / "train.log").read_text(encoding="utf-8"):
        faults.append(f"its log does not say '{why}...'")
    return faults
