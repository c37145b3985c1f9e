"""Nodes die, are stopped and vanish while a job trains, and its parameters are as if nothing had happened.

    recovery.py BINARY [CASE...]     prints `N passed, M failed, K skipped` last
    recovery.py --chaos N BINARY     N random events instead of a few
    recovery.py --seed S BINARY      of what is drawn, instead of 1
    recovery.py --record FILE BINARY a line of JSON for each case is appended there (kept_records.py)

The job is parity.toml on data that `data make --uneven` makes, some of them spoilt. Every run is held against
`--reference` (fp64, 1e-10); that it went on, and how, is read from its events and its record.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "engine"), str(ROOT / "tests" / "actors")]

from parity_data import UnevenData  # noqa: E402
from parity_layouts import BOTH, LLM_CUT, REPLICAS, THREE_STAGES, by_replicas  # noqa: E402
import exchange_products  # noqa: E402
import kept_records  # noqa: E402
import parity_exchange  # noqa: E402
import parity_nccl  # noqa: E402
from parity_matrix import POLICIES, SCHEDULES  # noqa: E402
from whole_jobs import alive, children  # noqa: E402
from tests.support.device_words import device_words  # noqa: E402
from tests.support.drawn_cases import third_here, some_here  # noqa: E402
from tests.support.free_port import free_port  # noqa: E402
from tests.support.recorded_runs import read_lines, read_lines_so_far  # noqa: E402
from tests.support.run_cases import Failure, expect, run_cases  # noqa: E402

JOB = ROOT / "tests" / "engine" / "parity.toml"
STEPS, BATCH, RECORDS = 20, 8, 60
SLOW_STEPS = 90  # Usual speed is known after 20 steps, and a node slow after 16.
FP64 = "train.dtype=fp64"
TO_LOOK_S = 2  # Nodes and head look every 0.2 s, on a busy machine more rarely.
RESOLVED_WITHIN_S = 10  # Of each event, besides the time until silence counts.
RANDOM_EVENTS, SEED = 10, 1  # As scripts/test has it: the same every day, so that a failure is a change's.
JOBS_PER_EVENT = 2  # At most: where most of what is tried comes to nothing, the script is at fault.
PHASES = ("detect_ms", "decide_ms", "connect_ms", "copy_ms", "rebuild_ms", "decode_ms", "replay_ms")  # Of a loss, as its event tells.
GONE = ("lost", "drained", "head-lost")  # How the job's record says that it goes on without a node.
ENCODERS, LLM = '{node=N,vision="all",audio="all"}', '{node=N,llm="all"}'


def pipelines(*nodes):
    """A pipeline for each list of nodes: the encoders on the first, the llm cut over the others, or beside them."""
    tables = []
    for own in nodes:
        if len(own) == 1:
            stages = [f'{{node={own[0]},vision="all",audio="all",llm="all"}}']
        else:
            cuts = [round(7 * i / (len(own) - 1)) for i in range(len(own))]
            stages = [f'{{node={own[0]},vision="all",audio="all"}}']
            stages += [f"{{node={node},llm=[{a},{b}]}}" for node, a, b in zip(own[1:], cuts, cuts[1:])]
        tables.append(f"{{stages=[{','.join(stages)}]}}")
    count = 1 + max(node for own in nodes for node in own)
    return [f"parallel.pipelines=[{','.join(tables)}]", f"cluster.local_nodes={count}"]


class Job:
    """A running job."""

    def __init__(self, bench, name, words, steps, environment=None):
        self.bench, self.run = bench, bench.folder / name
        self.process = subprocess.Popen(
            [str(bench.binary), "train", str(JOB), *bench.job, FP64, f"train.steps={steps}", f"job.run_dir={self.run}", *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})})
        self.nodes = []

    def steps(self):
        return len({line["step"] for line in read_lines_so_far(self.run / "metrics.jsonl")})

    def wait_for(self, step, within=60):
        deadline = time.monotonic() + within
        while self.steps() < step:
            if self.process.poll() is not None:
                raise Failure(f"it ended with {self.process.returncode}\n{self.process.communicate()[0][-2500:]}")
            expect(time.monotonic() < deadline, f"no step {step} within {within} s")
            time.sleep(0.01)
        self.nodes = self.nodes or children(self.process.pid)

    def wait_for_loss(self, within=60):
        deadline = time.monotonic() + within
        while True:
            is_over = self.process.poll() is not None
            if self.events():
                return
            expect(not is_over and time.monotonic() < deadline, f"no node is lost before the end, or within {within} s")
            time.sleep(0.01)

    def signal(self, node, which):
        os.kill(self.nodes[node], which)

    def finish(self, code=0, within=120):
        try:
            output = self.process.communicate(timeout=within)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failure(f"it hangs\n{self.process.communicate()[0][-2500:]}") from None
        expect(self.process.returncode == code, f"exit {self.process.returncode} instead of {code}\n{output[-2500:]}")
        deadline = time.monotonic() + 5
        while any(alive(pid) for pid in self.nodes):
            expect(time.monotonic() < deadline, "processes of nodes are left behind")
            time.sleep(0.05)
        return output

    def events(self, kind="lost"):
        return [line for line in read_lines_so_far(self.run / "events.jsonl") if line["kind"] == kind]


def slowest_phases(job):
    """What each phase of a job's losses took at most; what took no time is left out."""
    slowest = {key.removesuffix("_ms"): round(max(event.get(key, 0) for event in job.events())) for key in PHASES if job.events()}
    return {name: took for name, took in slowest.items() if took > 0}


class Bench:
    def __init__(self, binary, folder, device="cpu"):
        self.binary, self.folder, self.numbers = binary, folder, {}
        data = UnevenData(binary, folder / "data")
        chosen = random.Random(5).sample(data.samples, RECORDS)
        for index in (7, 31):
            chosen[index] = dict(chosen[index], id=f"spoilt-{index}", image="is-not-there.png")
        self.profiles = {}
        self.job = [data.write("some", chosen), f"train.global_batch_size={BATCH}", "train.microbatches=2",
                    "data.max_bad_fraction=1", "debug.parameter_hashes=true", "cluster.heartbeat_interval_s=0.2",
                    "cluster.heartbeat_timeout_s=1.5"]
        self.references = {}
        self.device = device
        self.job += self.on("cpu")

    def on(self, device):
        """What says that a job trains on such devices, with costs that were measured there."""
        if device not in self.profiles:
            words, file = device_words(self.binary, device), self.folder / f"profile-{device}.json"
            self.run(["profile", str(JOB), *self.job, FP64, *words, "--out", str(file), "--budget", "3"])
            self.profiles[device] = [*words, f"scheduler.profile={file}"]
        return self.profiles[device]

    def run(self, words, code=0, timeout=300):
        done = subprocess.run([str(self.binary), *words], capture_output=True, text=True, timeout=timeout, check=False,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        expect(done.returncode == code, f"{' '.join(words)}\nexit {done.returncode} instead of {code}\n"
                                        f"{done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done.stdout

    def reference(self, model, steps):
        if (tuple(model), steps) not in self.references:
            run = self.folder / f"reference-{len(self.references)}"
            self.run(["train", str(JOB), *self.job, FP64, f"train.steps={steps}", "--reference", f"job.run_dir={run}", *model])
            self.references[tuple(model), steps] = run
        return self.references[tuple(model), steps]

    def start(self, name, *words, steps=STEPS, environment=None):
        return Job(self, name, [*(self.on(self.device) if self.device != "cpu" else []), *words], steps, environment)

    def start_by_nccl(self, name, *words, steps=STEPS, calls=parity_nccl.CHAIN, **environment):
        """A job whose sums, or rows, are calls to the fake NCCL."""
        parity_nccl.use_fake(self.binary, self.folder, environment)
        words = [*words, calls, *parity_nccl.words(self.binary, [calls])]
        return self.start(name, *words, steps=steps, environment=environment)

    def check(self, job, model=(), steps=STEPS):
        """The run equals the reference, each sample was trained once, each loss is told."""
        self.run(["compare", str(self.reference(list(model), steps)), str(job.run), "--rtol", "1e-10", "--loss-rtol", "1e-10"])
        audit = json.loads(self.run(["data", "audit", str(job.run), "--json"]))
        expect(audit["steps"] == steps, f"audit: {audit}")
        changes = [event for kind in ("lost", "drained", "joined") for event in job.events(kind)]
        for event in job.events():
            if "decide_ms" not in event:  # No layout followed: the job stopped, and went on from what was saved.
                expect(any(other["generation"] > event["generation"] for other in job.events("resumed")), f"no layout followed: {event}")
                continue
            for key in PHASES:
                expect(event[key] >= 0, f"{key} of {event}")
            expect((event["senders"] > 0) == (event["copy_bytes"] > 0), f"senders of {event}")
            # Who leaves or comes before that step is trained again begins a generation of its own.
            followed = any(other["step"] == event["step"] and other["generation"] > event["generation"] for other in changes)
            expect(event["replay_ms"] > 0 or followed, f"no step was trained again: {event}")


# ---- cases ----------------------------------------------------------------------------------------

LAYOUTS = {
    "two pipelines": pipelines([0, 1], [2, 3]),
    "one and three": pipelines([0], [1, 2, 3]),
    "three": pipelines([0], [1], [2]),
    "three stages": [THREE_STAGES],
    "two on a node": ["cluster.local_nodes=2", "cluster.devices_per_node=2",
                      "parallel.pipelines=[" + ",".join(
                          f'{{stages=[{{node={node},device={device},vision="all",audio="all",llm="all"}}]}}'
                          for node in (0, 1) for device in (0, 1)) + "]"],
    "3 encoders, 2 llms": REPLICAS["3-2"],
}
# Of the fake NCCL: what its script says, and what is said of it.
FAILURES_OF_CALLS = [("hang", "stall", "has not ended after"), ("late", "late=6", "it failed on its way")]
# And of a lane that opens: the one that is lost, and its call. Rank 0 of a lane sends, and makes the id.
OPENINGS_THAT_HANG = [("init", "hang@init:1 hang@init#2:1", 2, "the call that opens it"),
                      ("id", "hang@id hang@id#2", 1, "the call that makes its id")]
MODELS = {"all": [], "vision frozen": ["modules.vision.freeze=true"],
          "tied": ["modules.llm.config.tie_word_embeddings=true"]}


def a_killed_node_changes_nothing(bench):
    """Every layout, with schedules, policies and models that change from run to run."""
    for number, (layout, words) in enumerate(LAYOUTS.items()):
        schedule, policy = bench.draw.choice(SCHEDULES), bench.draw.choice(POLICIES)
        model = bench.draw.choice(list(MODELS))
        step, node = bench.draw.randint(2, 9), bench.draw.randrange(2)
        print(f"  {layout}: {model}, {schedule}, {policy}; node {node} in step {step + 1}", flush=True)
        job = bench.start(f"killed-{number}", *words, *MODELS[model], f"scheduler.schedule={schedule}",
                          f"balancer.policy={policy}")
        job.wait_for(step)
        time.sleep(0.2 * bench.draw.random())
        job.signal(node, signal.SIGKILL)
        output = job.finish()
        bench.check(job, MODELS[model])
        events = job.events()
        expect([event["nodes"] for event in events] == [[node]], f"events: {events}")
        rates = [events[0][f"samples_per_s_{which}"] for which in ("before", "first")]
        expect(min(rates) > 0, f"samples per s before and after: {rates}")
        expect(events[0]["detect_ms"] < 1000, f"it was killed, and long not noticed: {events}")
        expect("was lost" in output and "goes on without it" in output and f"the loss of node {node}: noticed" in output,
               f"the log does not tell:\n{output[-2500:]}")
        lines = read_lines(job.run / "metrics.jsonl")
        expect([line["step"] for line in lines] == list(range(1, STEPS + 1)), "a step stands twice, or not at all")
        nodes = [line["nodes"] for line in lines]
        expect(nodes[0] == nodes[-1] + 1, f"nodes of the steps: {nodes}")
        expect({line["generation"] for line in lines} == {1, 2}, "generations")


def only_the_encoders_change_where_one_of_them_is_lost(bench):
    job = bench.start("encoder", *REPLICAS["3-2"])
    job.wait_for(3)
    job.signal(1, signal.SIGKILL)
    job.finish()
    bench.check(job)
    before, after = (json.loads((job.run / name).read_text(encoding="utf-8")) for name in ("plan-1.json", "plan.json"))
    counts = [sum(replica["group"] == 0 for replica in plan["replicas"]) for plan in (before, after)]
    expect(counts == [3, 2], f"replicas of the encoders: {counts}")
    expect(job.events()[0]["copy_bytes"] == 0, "state was moved")


def loses_node_3_and_gets_another(bench, name, *words):
    """The job, which has trained what it should."""
    job = bench.start(name, *words, steps=60)
    job.wait_for(3)
    job.signal(3, signal.SIGKILL)
    job.wait_for(10)
    joiner = join(bench, job)
    job.finish()
    joiner.communicate(timeout=10)
    bench.check(job, steps=60)
    return job


def what_is_left_of_a_replica_works_on(bench):
    """A language model on two nodes loses one and goes on on the other; who joins then works too."""
    job = loses_node_3_and_gets_another(bench, "group", *by_replicas((BOTH, ENCODERS), ('"llm"', LLM, LLM_CUT)))
    plans = [json.loads((job.run / name).read_text(encoding="utf-8")) for name in ("plan-1.json", "plan-2.json", "plan.json")]
    works = [sorted({plan["devices"][device]["node"] for stage in plan["stages"] for device in stage["devices"]}) for plan in plans]
    expect(works == [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2, 3]], f"nodes with stages: {works}")
    counts = [[sum(replica["group"] == group for replica in plan["replicas"]) for group in (0, 1)] for plan in plans]
    expect(counts[:2] == [[1, 2], [1, 2]] and sum(counts[2]) == 4, f"replicas: {counts}")


def phases_stay_exchanged_where_a_node_is_lost(bench):
    """Pipelines of both; encoders and llms of other numbers are exchange_products.py's."""
    name = "exchange-pipelines-1f1b-all"
    words = [word for word in parity_exchange.CASES[name] if word != FP64]
    exchange_products.goes_on_without(bench, name, [*words, *pipelines([0], [1], [2])], 1, [])


def nodes_that_encode_too_work_for_both(bench):
    """Encoders stand on the nodes of two llm replicas: one of the four is lost, and another one comes."""
    job = loses_node_3_and_gets_another(bench, "shared", *parity_exchange.LAYOUTS["4-2"])
    for name, nodes in (("plan-2.json", [0, 1, 2]), ("plan.json", [0, 1, 2, 3])):
        plan = json.loads((job.run / name).read_text(encoding="utf-8"))
        works = [sorted({plan["devices"][device]["node"] for replica in plan["replicas"] if replica["group"] == group
                         for stage in replica["stages"] for device in plan["stages"][stage]["devices"]}) for group in (0, 1)]
        expect(works == [nodes, nodes], f"{name}: nodes with encoders and with llms: {works}")


def groups_keep_devices_of_their_own(bench):
    """Encoders on one device of each of four nodes, two llms on the others: a node is lost, and another one comes."""
    tables = [f'{{modules=[{BOTH}],stages=[{{node={node},vision="all",audio="all"}}]}}' for node in range(4)]
    tables += [f'{{modules=["llm"],stages=[{{node={first},device=1,llm=[0,3]}},{{node={first + 1},device=1,llm=[3,7]}}]}}'
               for first in (0, 2)]
    job = loses_node_3_and_gets_another(bench, "devices", f"parallel.replicas=[{','.join(tables)}]", "parallel.pipelines=[]",
                                        "cluster.local_nodes=4", "cluster.devices_per_node=2")
    for name, nodes in (("plan-2.json", 3), ("plan.json", 4)):
        plan = json.loads((job.run / name).read_text(encoding="utf-8"))
        groups = {}
        for replica in plan["replicas"]:
            for stage in replica["stages"]:
                for device in plan["stages"][stage]["devices"]:
                    groups.setdefault(device, set()).add(replica["group"])
        expect(len(groups) == 2 * nodes, f"{name}: devices with work: {len(groups)} of {2 * nodes}")
        expect(all(len(own) == 1 for own in groups.values()), f"{name}: groups of each device: {groups}")


# What is moved to host memory and back: parameters while an llm computes, moments but for the update, activations between the phases.
MOMENTS_MOVE = {"offload_state", "fetch_state"}
ALL_MOVE = {*MOMENTS_MOVE, "evict_parameters", "fetch_parameters", "offload", "fetch"}


def moves_by_generation(run):
    """Kinds of moves to host memory and back, by the run's trace."""
    moves = {1: set(), 2: set()}
    for event in json.loads((run / "trace.json").read_text(encoding="utf-8")):
        if event.get("cat") == "offload":
            moves[event["args"]["epoch_number"]].add(event["args"]["kind"])
    return moves


def what_encoders_have_in_host_memory_outlives_a_node(bench):
    """A step is given up while some of it is away, and whoever trains then moves it as before: devices that have encoders and an llm,
    and one that kept all moments of encoders without a stage for them."""
    for name, words, node, kinds in (
            ("all", [*parity_exchange.LAYOUTS["4-4"], "scheduler.schedule=three-phase"], 2, ALL_MOVE),
            ("moments", [*pipelines([0, 1]), "cluster.fault_tolerance=1"], 0, MOMENTS_MOVE)):
        job = bench.start(f"offloading-{name}", *words, f"scheduler.offload_encoders={name}")
        job.wait_for(4)
        time.sleep(0.2 * bench.draw.random())
        job.signal(node, signal.SIGKILL)
        job.finish()
        bench.check(job)
        expect([event["nodes"] for event in job.events()] == [[node]], f"{name}: events: {job.events()}")
        moves = moves_by_generation(job.run)
        expect(moves == {1: kinds, 2: kinds}, f"{name}: moves by generation: {moves}")
        still = [line["step"] for line in read_lines(job.run / "metrics.jsonl") if line.get("moved_to_host_bytes", 0) <= 0]
        expect(not still, f"{name}: nothing went to host memory in steps {still}")


def standby_holders_take_over(bench):
    """One copy of the model and one node that may be lost: what a lost node trained, others kept up to date."""
    for name, nodes, model in (("two", [0, 1], "all"), ("three", [0, 1, 2], "tied"), ("frozen", [0, 1, 2], "vision frozen")):
        job = bench.start(f"standby-{name}", *pipelines(nodes), *MODELS[model], "cluster.fault_tolerance=1")
        job.wait_for(4)
        job.signal(1, signal.SIGKILL)
        if len(nodes) > 2:
            job.wait_for(9)
            job.signal(bench.draw.choice([0, 2]), signal.SIGKILL)
        job.finish()
        bench.check(job, MODELS[model])
        events = job.events()
        expect(len(events) == len(nodes) - 1, f"events: {events}")
        expect([event["tolerance_left"] for event in events] == list(range(len(nodes) - 2, -1, -1)), f"events: {events}")
        expect(events[-1]["copy_bytes"] == 0, f"the last node had not everything: {events}")


def lose_amid_calls(bench, name, layout, **started):
    """A job on that layout that loses node 1, killed or stopped, while devices call NCCL; it has gone on without it."""
    which = bench.draw.choice([signal.SIGKILL, signal.SIGSTOP])
    print(f"  {layout}: {which.name}", flush=True)
    job = bench.start_by_nccl(f"{name}-{layout.replace(' ', '-')}", *LAYOUTS[layout], **started)
    job.wait_for(3)
    time.sleep(0.2 * bench.draw.random())
    job.signal(1, which)
    if which == signal.SIGSTOP:
        job.wait_for_loss()
        job.signal(1, signal.SIGCONT)  # It ends when it hears that it was done without.
    job.finish()
    bench.check(job)
    expect([event["nodes"] for event in job.events()] == [[1]], f"events: {job.events()}")
    return job


def nodes_are_lost_amid_sums_by_nccl(bench):
    """Groups are rebuilt without the lost ones, and a node that stops in the middle of a sum holds nobody up."""
    for layout in ("three", "two pipelines", "two on a node", "3 encoders, 2 llms"):
        job = lose_amid_calls(bench, "nccl", layout)
        faults = parity_nccl.faults_of_calls(job.run)
        expect(not faults or layout == "two on a node" and faults == ["no group is a call"], f"plans: {faults}")


def a_sum_by_nccl_that_hangs_or_fails_costs_a_node(bench):
    """Rank 1's NCCL takes a part of a sum in and never ends it, or gives it up later: the group is named, and the others go on."""
    for name, kind, words in FAILURES_OF_CALLS:
        job = bench.start_by_nccl(f"nccl-{name}", *LAYOUTS["three"], "cluster.sum_timeout_s=2", FAKE_NCCL_SCRIPT=f"{kind}@send#300:1")
        job.finish()
        bench.check(job)
        lost = [event["why"] for event in job.events()]
        expect(1 <= len(lost) <= 2, f"{name}: losses: {lost}")
        expect("NCCL group 'gradients of " in lost[0], f"{name}: the group is not named: {lost}")
        expect(words in lost[0], f"{name}: it is not said what happened: {lost}")


def nodes_are_lost_amid_rows_by_nccl(bench):
    """Lanes to the lost one end at once, and others are opened for the next layout."""
    for layout in ("one and three", "two pipelines", "3 encoders, 2 llms"):
        lose_amid_calls(bench, "nccl-rows", layout, calls=parity_nccl.ROWS)


def rows_by_nccl_that_hang_or_fail_cost_a_node(bench):
    """A send that NCCL never ends, or gives up later: both devices are named, and the others go on. Rows go one way, as only the
    llm trains, so that one process at a time comes so far; what is left after two of them is one node, which sends nobody anything."""
    frozen = [f"modules.{module}.freeze=true" for module in ("vision", "vision_projector", "audio", "audio_projector")]
    for name, kind, words in FAILURES_OF_CALLS:
        job = bench.start_by_nccl(f"nccl-rows-{name}", *pipelines([0], [1, 2]), *frozen, "cluster.sum_timeout_s=2",
                                  "cluster.fault_tolerance=1", calls=parity_nccl.ROWS, FAKE_NCCL_SCRIPT=f"{kind}@send#20")
        job.finish()
        bench.check(job, frozen)
        lost = [event["why"] for event in job.events()]
        expect(1 <= len(lost) <= 2, f"{name}: losses: {lost}")
        expect("NCCL group 'rows from device " in lost[0], f"{name}: the devices are not named: {lost}")
        # Also where the sender is PREPARED by then: before who waits for its rows in vain has waited for 2 s.
        expect(words in lost[0], f"{name}: it is not said what happened: {lost}")


def a_lane_of_rows_that_hangs_as_it_opens_costs_a_node(bench):
    """In NCCL's own call, in both attempts, as the job begins: the layout comes up without the node whose call it is, in the time in which
    it must. In what is left another one may be the end of a lane that hangs likewise."""
    frozen = [f"modules.{module}.freeze=true" for module in ("vision", "vision_projector", "audio", "audio_projector")]
    for name, script, node, words in OPENINGS_THAT_HANG:
        job = bench.start_by_nccl(f"nccl-rows-open-{name}", *pipelines([0], [1, 2]), *frozen, "cluster.join_timeout_s=30",
                                  "cluster.fault_tolerance=1", calls=parity_nccl.ROWS, FAKE_NCCL_SCRIPT=script)
        job.finish()
        bench.check(job, frozen)
        lost = [event["why"] for event in job.events()]
        expect(1 <= len(lost) <= 2, f"{name}: losses: {lost}")
        expect(f"node {node} (" in lost[0], f"{name}: it is not the one whose call hangs: {lost}")
        expect("NCCL group 'rows from device 1.0 to 2.0'" in lost[0], f"{name}: the devices are not named: {lost}")
        expect(f"{words} has not ended after" in lost[0], f"{name}: it is not said what happened: {lost}")


def one_after_the_other_down_to_one(bench):
    job = bench.start("down", *LAYOUTS["two pipelines"])
    for step, node in ((2, 1), (5, 3), (9, 0)):
        job.wait_for(step)
        job.signal(node, signal.SIGKILL)
    job.finish()
    bench.check(job)
    expect([event["nodes"] for event in job.events()] == [[1], [3], [0]], f"events: {job.events()}")
    # Which of two layouts of three nodes is taken depends on the network's speed as it was measured.
    left = [event["tolerance_left"] for event in job.events()]
    expect(left[0] in (1, 2) and left[1:] == [1, 0], f"tolerance: {job.events()}")


# Window: several nodes at once, in a step that is decided or not
def two_at_once(bench):
    for number in range(2):
        job = bench.start(f"two-{number}", *LAYOUTS["two pipelines"])
        job.wait_for(4)
        job.signal(0, signal.SIGKILL)
        time.sleep(0.02 * number)
        job.signal(1, signal.SIGKILL)
        job.finish()
        bench.check(job)
        expect(sorted(node for event in job.events() for node in event["nodes"]) == [0, 1], f"events: {job.events()}")


# Window: a silent node comes back
def a_stopped_node_is_done_without_and_ends_when_it_goes_on(bench):
    job = bench.start("stopped", *LAYOUTS["two pipelines"], steps=40)
    job.wait_for(3)
    job.signal(1, signal.SIGSTOP)
    begin = time.monotonic()
    job.wait_for(8)
    expect(time.monotonic() - begin < 1.5 + RESOLVED_WITHIN_S, "it took too long")
    job.signal(1, signal.SIGCONT)
    deadline = time.monotonic() + 5
    while alive(job.nodes[1]):
        expect(time.monotonic() < deadline, "the node that was away does not end")
        time.sleep(0.05)
    job.finish()
    bench.check(job, steps=40)
    expect(1500 <= job.events()[0]["detect_ms"] < 1500 + 1000 * TO_LOOK_S, f"events: {job.events()}")


def the_last_copy(bench):
    """The job ends and names what is lost, what lives is saved; with a checkpoint it can be gone on with."""
    words = pipelines([0, 1])
    for name, more in (("last", []), ("last-saved", ["checkpoint.every_steps=2", "recovery.from_checkpoint=false"])):
        job = bench.start(name, *words, *more)
        job.wait_for(4)
        if more:
            while not list(job.run.glob("checkpoints/step-*/manifest.json")):
                time.sleep(0.02)
        job.signal(1, signal.SIGKILL)
        output = job.finish(75)
        expect("no other node has llm." in output, f"what is lost is not named:\n{output[-1500:]}")
    job = bench.start("last-saved", *words, "checkpoint.every_steps=2")
    job.finish()
    bench.check(job)


# Window: a checkpoint is written
def a_loss_while_it_saves(bench):
    job = bench.start("saving", *LAYOUTS["two pipelines"], "checkpoint.every_steps=1", "checkpoint.keep_last=2")
    for step, node in ((3, 1), (8, 0)):
        job.wait_for(step)
        job.signal(node, signal.SIGKILL)
    job.finish()
    bench.check(job)
    listed = json.loads(bench.run(["checkpoint", "verify", str(job.run), "--json"]))
    expect(f'"step": {STEPS}' in json.dumps(listed), f"the last step is not saved: {listed}")


# Window: the job stops
def a_loss_while_the_job_stops(bench):
    """The others save the step they have finished, and the job goes on from there."""
    words = LAYOUTS["two pipelines"]
    job = bench.start("stopping", *words)
    job.wait_for(4)
    job.signal(3, signal.SIGSTOP)
    job.process.send_signal(signal.SIGTERM)
    job.process.wait(timeout=60)
    with contextlib.suppress(ProcessLookupError):
        job.signal(3, signal.SIGCONT)
    output = job.finish(75)
    expect("the others save what they have" in output, f"the loss is not told: {output[-1500:]}")
    expect(f"step {job.steps()} is saved: " in output, f"steps are lost: {output[-1500:]}")
    again = bench.start("stopping", *words)
    again.finish()
    bench.check(again)
    expect([event["nodes"] for event in again.events()] == [[3]], f"losses: {again.events()}")


def who_joined(job):
    """By the log, which is not there yet where the job has just begun."""
    with contextlib.suppress(FileNotFoundError):
        return set(re.findall(r"\bnode (\d+) \([^)]*\) joined$", (job.run / "train.log").read_text(encoding="utf-8"), re.MULTILINE))
    return set()


# Window: the first layout comes up
def a_loss_while_the_job_starts(bench):
    """From the joining of nodes on at any moment: it trains without the node, or says which one is missing where not all had joined."""
    layouts = [LAYOUTS["two pipelines"], [*pipelines([0, 1, 2, 3]), "cluster.fault_tolerance=1"]]
    for number in range(8):
        job = bench.start(f"start-{number}", *layouts[number % 2])
        deadline = time.monotonic() + 30
        while len(children(job.process.pid)) < 4:
            expect(time.monotonic() < deadline, "nodes are not started")
            time.sleep(0.005)
        job.nodes = children(job.process.pid)
        if number < 2:  # The first layout comes up, and no batch is planned.
            while len(who_joined(job)) < 4:
                expect(time.monotonic() < deadline, "not all nodes join")
                time.sleep(0.002)
        else:
            time.sleep(0.4 * (number - 2) + 0.3 * bench.draw.random())
        if alive(job.nodes[3]):
            job.signal(3, signal.SIGKILL)
        try:
            output = job.process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            job.process.kill()
            raise Failure("it hangs") from None
        if job.process.returncode == 0:
            bench.check(job)
        else:
            expect(len(who_joined(job)) < 4, f"a loss after all had joined ended the job\n{output[-1500:]}")
            expect(job.process.returncode == 1 and ("node 3" in output or "killed by signal 9" in output),
                   f"exit {job.process.returncode}\n{output[-1500:]}")
        print(f"  exit {job.process.returncode}, lost: {[event['step'] for event in job.events()]}", flush=True)


def ctl(bench, job, *words, code=0):
    return bench.run(["ctl", str(job.run), *words], code)


def node_of(bench, run, *flags):
    """A node that comes to the job of a run folder, or None where the job has ended."""
    try:
        door = json.loads((run / "control").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return subprocess.Popen([str(bench.binary), "node", "--join", door["local"], *flags], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1", "TROUPE_KEY": door["key"]})


def join(bench, job):
    """A node that joins a running job, or None where the job has ended."""
    return node_of(bench, job.run, "--timeout", "5")


# Window: nodes join
def another_node_takes_the_place_of_one_lost_before_the_job_begins(bench):
    job = bench.start("places", *LAYOUTS["two pipelines"], "cluster.nodes=4", "cluster.local_nodes=2", f"cluster.listen=127.0.0.1:{free_port()}")
    deadline = time.monotonic() + 30

    def wait_until(is_so, what):
        while not is_so():
            expect(time.monotonic() < deadline and job.process.poll() is None, f"{what} within 30 s")
            time.sleep(0.05)

    wait_until((job.run / "control").exists, "the job asks for nodes")
    came = [node_of(bench, job.run, "--timeout", "30")]
    for state in ("waiting for work", "gone"):
        wait_until(lambda: json.loads(ctl(bench, job, "status", "--json"))["nodes"][2]["state"] == state, f"a node is {state}")
        came[0].kill()
    came += [node_of(bench, job.run, "--timeout", "30") for _ in range(2)]
    output = job.finish()
    expect("before the job began; its place is free" in output, f"nobody says that a place is free: {output[-1500:]}")
    for process in came:
        process.communicate(timeout=10)
    bench.check(job)
    expect(not job.events(), "a node that was never part of a layout is a loss")


def a_node_leaves_and_another_one_comes(bench):
    job = bench.start("members", *LAYOUTS["two pipelines"], "checkpoint.every_steps=1", "checkpoint.keep_last=2", steps=60)
    job.wait_for(3)
    expect("leaves before the next step" in ctl(bench, job, "drain", "1"), "it is not told what happens")
    job.wait_for(8)
    status = json.loads(ctl(bench, job, "status", "--json"))
    expect([node["state"] for node in status["nodes"]] == ["working", "gone", "working", "working"], f"status: {status}")
    expect((job.run / "control").stat().st_mode & 0o77 == 0, "others may read the job's key")
    joiner = join(bench, job)
    deadline = time.monotonic() + 30
    while not job.events("joined"):
        expect(time.monotonic() < deadline and job.process.poll() is None, "the node does not come in")
        time.sleep(0.05)
    job.signal(0, signal.SIGTERM)
    job.finish()
    expect(joiner.wait(timeout=10) == 0, f"the node that joined:\n{joiner.communicate()[0]}")
    bench.check(job, steps=60)
    expect(job.events("joined")[0]["connect_ms"] > 0, f"connecting took no time: {job.events('joined')}")
    log = (job.run / "train.log").read_text(encoding="utf-8")
    said = re.findall(r"\bnode (\d+) \(.*\) has [\d.]+ [MG]B for each of its devices", log)
    expect(said == ["1"], f"who has said what memory it has: {said}")
    kinds = [(event["kind"], event["nodes"]) for event in read_lines(job.run / "events.jsonl") if event["kind"] != "checkpoint"]
    expect(kinds == [("drained", [1]), ("joined", [1]), ("drained", [0])], f"events: {kinds}")
    steps = [line["step"] for line in read_lines(job.run / "metrics.jsonl")]
    expect(steps == list(range(1, 61)), "a step stands twice, or not at all")
    expect(not (job.run / "control").exists(), "the way to a job that has ended is left behind")


def a_signalled_node_has_its_time_to_leave(bench):
    """The steps under way take longer than `cluster.stop_timeout_s`. What `cluster.drain_timeout_s` does not suffice for is a loss."""
    slow = 'debug.slow_shapes=[{module="llm",min_rows=1,max_rows=1000000,factor=100}]'
    for kind, drain_s in (("drained", 120), ("lost", 1.5)):
        job = bench.start(f"slow-leave-{kind}", *LAYOUTS["two pipelines"], "cluster.stop_timeout_s=1",
                          f"cluster.drain_timeout_s={drain_s}", slow, steps=5)
        job.wait_for(1, within=120)
        job.signal(1, signal.SIGTERM)
        begin = time.monotonic()
        while alive(job.nodes[1]):
            expect(time.monotonic() < begin + 100, "the node does not leave")
            time.sleep(0.02)
        took_s = time.monotonic() - begin
        expect(took_s > 1.2, f"it left after {took_s:.1f} s: steps are too short for this case")
        output = job.finish(within=240)
        bench.check(job, steps=5)
        changes = [(event["kind"], event["nodes"]) for event in read_lines(job.run / "events.jsonl")]
        expect(changes == [(kind, [1])], f"events: {changes}\n{output[-2500:]}")
        expect(("still after 1.5 s (cluster.drain_timeout_s)" in output) == (kind == "lost"),
               f"what became of it is not said, or said in vain:\n{output[-2500:]}")
        steps = [line["step"] for line in read_lines(job.run / "metrics.jsonl")]
        expect(steps == list(range(1, 6)), "a step stands twice, or not at all")


def a_node_takes_state_over_while_the_others_train(bench):
    """Layer by layer; parameters of all holders are compared after each step (`debug.parameter_hashes`)."""
    words = [*LAYOUTS["two pipelines"], "debug.warm_up_bytes=20000"]
    job = bench.start("warm", *words, steps=80)
    job.wait_for(3)
    job.signal(1, signal.SIGKILL)
    job.wait_for(8)
    joiner = join(bench, job)
    deadline = time.monotonic() + 30
    while not job.events("joined"):
        expect(time.monotonic() < deadline and job.process.poll() is None, "the node does not come in")
        time.sleep(0.02)
    job.finish()
    joiner.communicate(timeout=10)
    bench.check(job, steps=80)
    event = job.events("joined")[0]
    expect(event["warm_up_steps"] > 3 and event["warm_up_bytes"] > 10 * event["copy_bytes"], f"nothing came before: {event}")
    steps = {line["step"]: line for line in read_lines(job.run / "metrics.jsonl")}
    warm = [steps[step] for step in range(event["step"] - event["warm_up_steps"], event["step"])]
    expect([line["epoch_number"] for line in warm] == list(range(event["generation"] - len(warm), event["generation"])),
           f"a step that brought nothing, or none: {warm}")


def state_that_comes_slowly_is_waited_for_by_its_step(bench):
    """Much state for one short step: who is still sending or receiving it is not PREPARED."""
    big = ["modules.llm.config.vocab_size=40000", 'scheduler.profile=""']
    words = [*pipelines([0], [1], [2]), *big, "debug.warm_up_bytes=1000000000"]
    job = bench.start("slow-state", *words, steps=24)
    job.wait_for(3)
    job.signal(1, signal.SIGKILL)
    job.wait_for(6)
    joiner = join(bench, job)
    job.finish()
    joiner.communicate(timeout=10)
    bench.check(job, model=big, steps=24)
    event = job.events("joined")[0]
    expect(event["warm_up_steps"] == 1 and event["warm_up_bytes"] > 50e6, f"event: {event}")


def who_joins_says_how_fast_it_is(bench):
    """Beside a machine that the profile says to be six times as fast: its samples follow that at first. Accelerators say nothing."""
    if bench.device != "cpu":
        return
    profile = json.loads((bench.folder / "profile-cpu.json").read_text(encoding="utf-8"))
    profile["probe_ms"] /= 6
    file = bench.folder / "profile-of-another.json"
    file.write_text(json.dumps(profile), encoding="utf-8")
    job = loses_node_3_and_gets_another(bench, "how-fast", *LAYOUTS["two pipelines"], f"scheduler.profile={file}")
    log = (job.run / "train.log").read_text(encoding="utf-8")
    told = re.findall(r"\bnode (\d+) \(.*\) takes ([\d.]+) times as long as the machine that the profile is of", log)
    expect([node for node, _ in told] == ["3"] and float(told[0][1]) > 3, f"who has said how fast it is: {told}")


def a_node_that_slows_down_leaves(bench):
    """A process that runs a sixth of the time, as on a machine that others keep busy."""
    job = bench.start("slow", *LAYOUTS["two pipelines"], "recovery.drain_slow=true", steps=SLOW_STEPS)
    job.wait_for(25)
    deadline = time.monotonic() + 90
    while not job.events("drained"):
        expect(job.process.poll() is None and time.monotonic() < deadline, "the slow node does not leave")
        if not alive(job.nodes[3]):
            break
        for which, seconds in ((signal.SIGSTOP, 0.05), (signal.SIGCONT, 0.01)):
            with contextlib.suppress(ProcessLookupError):
                job.signal(3, which)
            time.sleep(seconds)
    output = job.finish()
    bench.check(job, steps=SLOW_STEPS)
    slow, drained = job.events("slow"), job.events("drained")
    expect(slow and slow[0]["nodes"] == [3], f"events: {slow}")
    expect(drained and drained[0]["nodes"] == [3] and drained[0]["why"].endswith(slow[0]["why"]), f"events: {drained}, {slow}")
    expect("has slowed down: it takes" in output, f"the log does not tell:\n{output[-2500:]}")
    steps = [line["step"] for line in read_lines(job.run / "metrics.jsonl")]
    expect(steps == list(range(1, SLOW_STEPS + 1)), "a step stands twice, or not at all")


def a_job_is_asked_and_ordered(bench):
    job = bench.start("asked", *LAYOUTS["three"], steps=60)
    job.wait_for(2)
    expect("training, step " in ctl(bench, job, "status"), "status")
    expect("saved" in ctl(bench, job, "checkpoint"), "checkpoint")
    ctl(bench, job, "drain", "7", code=2)
    expect("saves and ends" in ctl(bench, job, "stop"), "stop")
    job.finish(75)
    ctl(bench, job, "status", code=2)
    job = bench.start("asked", *LAYOUTS["three"], steps=60)
    job.finish()
    bench.check(job, steps=60)


def layout_file(bench, name, words):
    """A layout file of the tables that these words of a command line give to [parallel]."""
    tables = [word for word in words if word.startswith("parallel.") and not word.endswith("=[]")]
    file = bench.folder / f"{name}.toml"
    file.write_text("\n".join(tables) + "\n", encoding="utf-8")
    return str(file)


def the_layout_is_changed_by_hand(bench):
    """Twice while the job trains: other cuts and another number of pipelines, then replicas per module; then a node dies."""
    steps = 160  # Commands take a tenth of a second each, as ten steps do.
    job = bench.start("by-hand", *LAYOUTS["two pipelines"], steps=steps)
    job.wait_for(3)
    for name, words, why in (("no-node", pipelines([0], [7]), "no-node.toml:1: parallel.pipelines[1].stages[0].node: 7, but the job has 4 nodes"),
                             ("no-llm", ['parallel.pipelines=[{stages=[{node=0,vision="all",audio="all"}]}]'], "no stage holds llm")):
        done = subprocess.run([str(bench.binary), "ctl", str(job.run), "layout", layout_file(bench, name, words)],
                              capture_output=True, text=True, timeout=60, check=False)
        expect(done.returncode == 2 and why in done.stderr and "fix: " in done.stderr, f"{name}: {done.returncode} {done.stderr}")
    ctl(bench, job, "layout", str(bench.folder / "nowhere.toml"), code=2)
    for changes, words in enumerate((pipelines([0], [3], [2, 1]), by_replicas((BOTH, ENCODERS, ENCODERS), ('"llm"', LLM, LLM))), 1):
        answer = ctl(bench, job, "layout", layout_file(bench, "other", words))
        expect("layout changes before the next step: " in answer, f"it is not told what happens: {answer}")
        seen = job.steps()
        while len(job.events("layout")) < changes and job.steps() < seen + 8:
            job.wait_for(job.steps() + 1)
        expect(len(job.events("layout")) == changes, f"the layout did not change within 8 steps of step {seen}")
        job.wait_for(job.events("layout")[-1]["step"] + 2)  # It has trained, too.
    job.signal(1, signal.SIGKILL)
    output = job.finish()
    bench.check(job, steps=steps)
    events = read_lines(job.run / "events.jsonl")
    expect([(event["kind"], event["generation"]) for event in events] == [("layout", 2), ("layout", 3), ("lost", 4)],
           f"events: {events}")
    expect(all(event["why"] == "troupe ctl asks for it" and event["copy_bytes"] > 0 for event in events[:2]), f"why: {events}")
    expect(events[2]["copy_bytes"] == 0, "the other encoder had not everything")
    lines = read_lines(job.run / "metrics.jsonl")
    expect([line["step"] for line in lines] == list(range(1, steps + 1)), "a step stands twice, or not at all")
    expect([line["generation"] for line in lines] == sorted(line["generation"] for line in lines) and
           [next(line["step"] for line in lines if line["generation"] == event["generation"]) for event in events] ==
           [event["step"] for event in events], "generations of the steps")
    plans = [json.loads((job.run / name).read_text(encoding="utf-8")) for name in ("plan-1.json", "plan-2.json", "plan-3.json", "plan.json")]
    expect([len(plan["replicas"]) for plan in plans] == [4, 6, 4, 3], f"replicas: {[len(plan['replicas']) for plan in plans]}")
    expect("troupe ctl asks for another layout" in output, f"the log does not tell:\n{output[-2500:]}")
    expect(not list(job.run.glob("checkpoints/*")), "something was saved")
    told = json.loads(bench.run(["report", str(job.run), "--json"]))["layouts"]
    expect([(layout["generation"], layout["first_step"]) for layout in told] == [(1, 1), *((event["generation"], event["step"]) for event in events)],
           f"layouts of the report: {told}")
    works = [{node["node"] for node in layout["nodes"] if node["stages"]} for layout in told]
    expect(works == [{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 2, 3}] and "Lost: nodes 1" in told[3]["why"], f"layouts of the report: {told}")
    marks = [(entry["name"], entry["args"]["step"]) for entry in json.loads((job.run / "trace.json").read_text(encoding="utf-8")) if entry["ph"] == "i"]
    expect(marks == [("layout", events[0]["step"]), ("layout", events[1]["step"]), ("lost: node 1", events[2]["step"])], f"marks: {marks}")
    bench.run(["report", str(job.run)])
    page = (job.run / "report.html").read_text(encoding="utf-8")
    expect(page.count("troupe ctl asks for it") >= 2, "the report does not tell")
    traced = json.loads(bench.run(["trace", str(job.run), "--json"]))["stages"]
    llm_nodes = {stage["node"] for stage in traced if stage["name"].startswith("llm")}
    expect(llm_nodes == {0, 1, 2, 3}, f"the trace has not the stages of all layouts: {traced}")


def a_layout_by_hand_outlives_the_head(bench):
    words = [*LAYOUTS["two pipelines"], "cluster.head_timeout_s=60"]
    job = bench.start("by-hand-head", *words, steps=60)
    job.wait_for(3)
    ctl(bench, job, "layout", layout_file(bench, "three", pipelines([0], [3], [2, 1])))
    job.wait_for(job.steps() + 6)
    kill_head(job)
    job = another_head(bench, job, "by-hand-head", words, 60)
    job.finish()
    bench.check(job, steps=60)
    events = read_lines(job.run / "events.jsonl")
    expect([(event["kind"], event["generation"]) for event in events] == [("layout", 2), ("head-lost", 3)], f"events: {events}")
    expect(events[1]["copy_bytes"] == 0, "state was moved")
    plan = json.loads((job.run / "plan.json").read_text(encoding="utf-8"))
    expect(len(plan["pipelines"]) == 3, "the next head laid the model out anew")


def kill_head(job):
    """The head's process alone; returns its nodes' processes."""
    nodes = children(job.process.pid)
    job.process.kill()
    job.process.wait()  # Its nodes still hold its output.
    return nodes


def another_head(bench, job, name, words, steps):
    """The same command again: the nodes that are left belong to it."""
    follower = bench.start(name, *words, steps=steps)
    follower.nodes = job.nodes
    return follower


def the_head_is_killed_and_another_one_goes_on(bench):
    """Nodes keep their state; nothing is read from files, no step is trained twice but the one under way."""
    for number, layout in enumerate(("two pipelines", "3 encoders, 2 llms", "two on a node")):
        words = [*LAYOUTS[layout], "cluster.head_timeout_s=60"]
        job = bench.start(f"head-{number}", *words, steps=60)
        for step in (3, 12, 20):
            job.wait_for(step)
            time.sleep(0.1 * bench.draw.random())
            before = children(job.process.pid) or before
            kill_head(job)
            expect(all(alive(pid) for pid in before), "nodes went with their head")
            seen = job.steps()
            job = another_head(bench, job, f"head-{number}", words, 60)
            job.nodes = before
        job.finish()
        bench.check(job, steps=60)
        heads = job.events("head-lost")
        expect(len(heads) == 3 and not job.events(), f"events: {heads}, {job.events()}")
        expect(all(event["copy_bytes"] == 0 for event in heads), f"state was moved: {heads}")
        expect(heads[-1]["step"] > seen, f"steps were lost: {heads[-1]} after {seen}")
        steps = [line["step"] for line in read_lines(job.run / "metrics.jsonl")]
        expect(steps == list(range(1, 61)), "a step stands twice, or not at all")
        expect(not list(job.run.glob("checkpoints/*")), "something was saved")


def the_next_head_knows_what_the_one_before_learned(bench):
    """Stages take ten times what the profile says: the next head plans by that from its first step on, without a checkpoint."""
    slow = 'debug.slow_shapes=[{module="llm",min_rows=1,max_rows=1000000,factor=10}]'
    words = [*LAYOUTS["two pipelines"], "cluster.head_timeout_s=60", slow]
    job = bench.start("learned", *words, steps=2000)
    file, deadline = job.run / "learned.json", time.monotonic() + 60
    while not file.exists() or json.loads(file.read_text(encoding="utf-8"))["step"] < 6:
        expect(time.monotonic() < deadline and job.process.poll() is None, "what was learned is not written")
        time.sleep(0.1)
    job.nodes = kill_head(job)
    known = {**json.loads(file.read_text(encoding="utf-8")), "changes": 7}  # None has come in the time of this case.
    file.write_text(json.dumps(known), encoding="utf-8")
    seen = job.steps()
    job = another_head(bench, job, "learned", words, 2000)
    job.wait_for(seen + 3)
    after = json.loads(file.read_text(encoding="utf-8"))
    expect(after["step"] > seen and after["changes"] == 7 and after["elapsed_ms"] > known["elapsed_ms"] > 0,
           f"how often nodes change: {known['elapsed_ms']} ms before, then {after}")
    job.process.send_signal(signal.SIGTERM)
    job.finish(75)
    ratios = {}
    for line in read_lines(job.run / "metrics.jsonl"):
        ratios.setdefault(line["generation"], line["calibrated_step_ms"] / line["profile_step_ms"])
    expect(ratios[1] < 1.5 and ratios[2] > 2, f"predicted over the profile, in each head's first step: {ratios}")


# Window: the head is lost, and a node with it
def a_head_is_lost_with_a_node(bench):
    """What the node kept, others have too; its place is taken by a new process."""
    words = [*LAYOUTS["two pipelines"], "cluster.head_timeout_s=60"]
    job = bench.start("head-and-node", *words, steps=60)
    job.wait_for(5)
    nodes = kill_head(job)
    os.kill(nodes[2], signal.SIGKILL)
    job = another_head(bench, job, "head-and-node", words, 60)
    deadline = time.monotonic() + 60
    while not job.events("joined"):
        expect(time.monotonic() < deadline and job.process.poll() is None, "the new process does not come in")
        time.sleep(0.05)
    job.finish()
    bench.check(job, steps=60)
    expect([event["nodes"] for event in job.events("head-lost")] == [[2]], f"events: {job.events('head-lost')}")


# Window: the head is lost, and a node was to leave
def who_was_to_leave_leaves_under_the_next_head(bench):
    """The head that said so died before it could let them go: one that the job's owner sends away, then one that a signal ends."""
    slow = 'debug.slow_shapes=[{module="llm",min_rows=1,max_rows=1000000,factor=10}]'  # The step under way does not end meanwhile.
    words = [*LAYOUTS["two pipelines"], "cluster.head_timeout_s=60", slow]
    job, nodes = bench.start("leaving", *words, steps=24), []
    for step, node in ((3, 1), (10, 0)):
        job.wait_for(step)
        nodes = nodes or children(job.process.pid)
        if node == 1:
            expect("leaves before the next step" in ctl(bench, job, "drain", "1"), "it is not told what happens")
        else:
            os.kill(nodes[node], signal.SIGTERM)
            time.sleep(0.1)
        kill_head(job)
        job = another_head(bench, job, "leaving", words, 24)
    job.nodes = nodes
    job.finish()
    bench.check(job, steps=24)
    events = [(event["kind"], event["nodes"]) for event in read_lines(job.run / "events.jsonl")]
    own = [event for event in events if event[0] != "joined"]  # The second head starts a node in the place that is free.
    expect([event[0] for event in own] == 2 * ["head-lost", "drained"], f"events: {events}")
    expect([event[1] for event in own[1::2]] == [[1], [0]], f"events: {events}")
    steps = [line["step"] for line in read_lines(job.run / "metrics.jsonl")]
    expect(steps == list(range(1, 25)), "a step stands twice, or not at all")


# Window: the head is lost, and SIGTERM asks a node to end, before that or behind it
def nodes_told_to_end_without_a_head_save_first(bench):
    """All of them, as when a whole cluster is taken away; then one of them. Long before nobody would be waited for any more."""
    for number, told in enumerate(((0, 1, 2, 3), (2,))):
        words = [*LAYOUTS["two pipelines"], "cluster.head_timeout_s=600"]
        job = bench.start(f"told-{number}", *words, steps=40)
        job.wait_for(5)
        nodes = kill_head(job)
        time.sleep(0.5)  # They notice it.
        for node in told:
            os.kill(nodes[node], signal.SIGTERM)
        deadline = time.monotonic() + 60
        while any(alive(pid) for pid in nodes):
            expect(time.monotonic() < deadline, "nodes wait on")
            time.sleep(0.1)
        seen = job.steps()
        saved = sorted(path.name for path in job.run.glob("checkpoints/step-*"))
        expect(saved == [f"step-{seen}"], f"step {seen} was trained, and {saved} saved")
        follower = bench.start(f"told-{number}", *words, steps=40)
        follower.finish()
        bench.check(follower, steps=40)
        steps = [line["step"] for line in read_lines(follower.run / "metrics.jsonl")]
        expect(steps == list(range(1, 41)), "a step stands twice, or not at all")


def nodes_in_another_folder_find_the_next_head(bench):
    """The run folder is named relative to the head's; nodes were started elsewhere, and by hand."""
    words = [*pipelines([0], [1])[:1], "cluster.nodes=2", "cluster.local_nodes=0", "job.run_dir=run-of-the-head"]
    command = [str(bench.binary), "train", str(JOB), *bench.job, FP64, "train.steps=40", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = bench.folder / "run-of-the-head"
    head = subprocess.Popen(command, cwd=bench.folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=environment)
    deadline = time.monotonic() + 60
    while not (run / "control").exists() or not (run / "control").stat().st_size:  # It may be there before its words are.
        expect(time.monotonic() < deadline, "the head does not begin")
        time.sleep(0.05)
    door = json.loads((run / "control").read_text(encoding="utf-8"))
    nodes = [subprocess.Popen([str(bench.binary), "node", "--join", door["local"]], cwd="/", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env={**environment, "TROUPE_KEY": door["key"]})
             for _ in range(2)]
    while len(read_lines_so_far(run / "metrics.jsonl")) < 4:
        expect(time.monotonic() < deadline, "training does not begin")
        time.sleep(0.02)
    head.kill()
    head.wait()
    follower = subprocess.run(command, cwd=bench.folder, capture_output=True, text=True, timeout=120, check=False, env=environment)
    expect(follower.returncode == 0, f"the next head:\n{follower.stdout[-1500:]}{follower.stderr[-1500:]}")
    for node in nodes:
        output = node.communicate(timeout=20)[0]
        expect(node.returncode == 0 and "keep the state of step" in output, f"a node:\n{output}")
    bench.run(["compare", str(bench.reference([], 40)), str(run), "--rtol", "1e-10", "--loss-rtol", "1e-10"])
    events = [line["kind"] for line in read_lines(run / "events.jsonl")]
    expect(events == ["head-lost"], f"events: {events}")


def a_stopped_head_comes_back(bench):
    words = [*LAYOUTS["two pipelines"], "cluster.head_timeout_s=60"]
    job = bench.start("head-stopped", *words, steps=40)
    job.wait_for(4)
    job.process.send_signal(signal.SIGSTOP)
    time.sleep(3)
    expect(all(alive(pid) for pid in job.nodes), "nodes went with a head that is silent")
    job.process.send_signal(signal.SIGCONT)
    job.finish()
    bench.check(job, steps=40)
    expect(not job.events() and not job.events("head-lost"), f"events: {job.events()}")


def content_of(run):
    """Every file below a run folder, as bytes."""
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def stop_whole(process):
    """Stops a process of ours; returns once none of its threads runs any more."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


def leave_to_another_machine(run):
    """The lock of a stopped head as another machine has it: held by nobody there, and not touched for long."""
    lock, copy = run.parent / f".{run.name}.lock", run.parent / "lock-seen-elsewhere"
    copy.write_text(json.dumps({**json.loads(lock.read_text(encoding="utf-8")), "host": "another-host"}), encoding="utf-8")
    os.utime(copy, times=(time.time() - 1000, time.time() - 1000))
    copy.replace(lock)


# Window: a head that was only stopped wakes when another one has taken over
def a_stopped_head_that_was_replaced_ends(bench):
    """It wakes on its machine while another one trains, which stands still meanwhile, so that the folder is its alone to spoil."""
    slow = 'debug.slow_shapes=[{module="llm",min_rows=1,max_rows=1000000,factor=10}]'  # The job does not end meanwhile.
    words = [*LAYOUTS["two pipelines"], "cluster.head_timeout_s=60", "cluster.heartbeat_timeout_s=4", slow]
    older = bench.start("head-replaced", *words, steps=60)
    older.wait_for(4)
    stop_whole(older.process)
    leave_to_another_machine(older.run)
    job = another_head(bench, older, "head-replaced", words, 60)
    deadline = time.monotonic() + 60
    while not job.events("head-lost"):
        expect(time.monotonic() < deadline and job.process.poll() is None, "no other head takes over")
        time.sleep(0.01)
    stop_whole(job.process)
    before = content_of(job.run)
    older.process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + 30
    while older.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    code, after = older.process.poll(), content_of(job.run)
    job.process.send_signal(signal.SIGCONT)
    if code is None:
        older.process.kill()
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    expect(not changed, f"the head that wakes writes to {changed}")
    lock = job.run.parent / f".{job.run.name}.lock"
    expect(json.loads(lock.read_text(encoding="utf-8"))["process"] == job.process.pid, "the lock is not the new head's any more")
    job.finish()
    output = older.process.communicate(timeout=10)[0]  # Its nodes had it open too.
    why = f"this run folder was taken over by process {job.process.pid} on "
    expect(code == 75 and why in output and "fix:" in output, f"exit {code}\n{output[-1500:]}")
    bench.check(job, steps=60)
    steps = [line["step"] for line in read_lines(job.run / "metrics.jsonl")]
    expect(steps == list(range(1, 61)), "a step stands twice, or not at all")
    heads = [(event["kind"], event.get("incarnation")) for event in read_lines(job.run / "events.jsonl")]
    facts = json.loads((job.run / "run.json").read_text(encoding="utf-8"))
    expect(heads == [("head-lost", 2)] and facts["incarnation"] == 2 and facts["exit_code"] == 0, f"events: {heads}; {facts}")


def nodes_save_and_end_where_no_head_comes(bench):
    """One of them starts a head that saves what all of them hold, also where the first one is lost with the head."""
    words = [*LAYOUTS["two pipelines"], "cluster.head_timeout_s=2"]
    for number in range(2):
        job = bench.start(f"headless-{number}", *words, steps=40)
        job.wait_for(3)
        kill_head(job)
        seen = job.steps()
        if number:
            os.kill(job.nodes[0], signal.SIGKILL)
        time.sleep(1)
        expect(all(alive(pid) for pid in job.nodes[number:]), "nodes do not wait")
        deadline = time.monotonic() + 40
        while any(alive(pid) for pid in job.nodes):
            expect(time.monotonic() < deadline, "nodes wait for ever")
            time.sleep(0.05)
        while "exit_code" not in (facts := json.loads((job.run / "run.json").read_text(encoding="utf-8"))):
            expect(time.monotonic() < deadline, "the head that saves does not end")
            time.sleep(0.05)
        expect(facts["exit_code"] == 75, f"the run's end: {facts}")
        listed = json.loads(bench.run(["checkpoint", "verify", str(job.run), "--json"]))
        follower = another_head(bench, job, f"headless-{number}", words, 40)
        follower.finish()
        bench.check(follower, steps=40)
        resumed = follower.events("resumed")
        expect(len(resumed) == 1 and resumed[0]["step"] > seen, f"not from what was saved: {resumed}, {listed}")


# Window: the next head is lost too
def a_changed_job_is_no_head(bench):
    """Its nodes go on waiting; the job as it was is taken."""
    words = [*LAYOUTS["two pipelines"], "cluster.head_timeout_s=60"]
    job = bench.start("changed", *words, steps=40)
    job.wait_for(3)
    nodes = kill_head(job)
    other = bench.start("changed", *words, "optimizer.lr=0.5", steps=40)
    output = other.finish(2)
    expect("optimizer.lr" in output and "run the job as it was" in output, f"it is not said why:\n{output}")
    expect(all(alive(pid) for pid in nodes), "nodes went with a head that was refused")
    job = another_head(bench, job, "changed", words, 40)
    job.finish()
    bench.check(job, steps=40)
    expect(len(job.events("head-lost")) == 1, f"events: {job.events('head-lost')}")


def took_effect(tried, events, joiners_that_worked):
    """How many of the things that were tried with a job happened, by its record. `tried`: (what, node or None), in their order.

    A node that died, fell silent or was to leave counts where the job went on without it; a head, where another one took over
    (a job that had ended has none); a node that came, where one joined and the job's end found it at work."""
    gone = {node for event in events if event["kind"] in GONE for node in event["nodes"]}
    heads, joined = (sum(event["kind"] == kind for event in events) for kind in ("head-lost", "joined"))
    count = sum(node in gone for node in {node for what, node in tried if what in ("kill", "stop", "drain")})
    count += min(sum(what == "head" for what, _ in tried), heads)
    return count + min(joiners_that_worked, joined)


def disturbed_job(bench, number, words):
    """A job of 60 steps that some of two to four things are done to; returns it as it ended, its output, what was tried and
    who was to join."""
    draw = bench.draw
    job, tried, joiners = bench.start(f"random-{number}", *words, steps=60), [], []
    job.wait_for(1)
    for _ in range(draw.randint(2, 4)):
        if job.steps() > 45 or job.process.poll() is not None:
            break
        time.sleep(draw.choice([0.01, 0.1, 0.5]) * (1 + draw.random()))
        what = draw.choice(["kill", "kill", "stop", "drain", "join", "head"])
        if what == "head":
            tried.append((what, None))
            kill_head(job)
            job = another_head(bench, job, f"random-{number}", words, 60)
            time.sleep(draw.choice([0, 4, 8]))
        elif what == "join":
            tried.append((what, None))
            joiners.append(join(bench, job))
        else:
            # Of each group and pipeline somebody is left.
            touched = [node for _, node in tried if node is not None]
            if len(touched) == 2:
                break
            node = draw.choice([node for node in (0, 1, 3) if node not in touched])
            tried.append((what, node))
            if alive(job.nodes[node]):
                job.signal(node, {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "drain": signal.SIGTERM}[what])
    try:
        output = job.process.communicate(timeout=150)[0]
    except subprocess.TimeoutExpired:
        job.process.kill()
        raise Failure(f"seed {bench.seed}: it hangs\n{job.process.communicate()[0][-2500:]}") from None
    for pid in job.nodes:
        if alive(pid):  # It was stopped, and its head has gone.
            os.kill(pid, signal.SIGKILL)
    for node in filter(None, joiners):
        try:
            node.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            node.kill()
            raise Failure(f"seed {bench.seed}: a node that joined does not end\n{node.communicate()[0][-800:]}") from None
    return job, output, tried, joiners


# Window: the next head is lost too
def random_events(bench):
    """Jobs of five nodes, each with several events at random times, until as many events as are wanted have happened."""
    draw, done, number = bench.draw, 0, 0
    while done < bench.events:
        expect(number < JOBS_PER_EVENT * bench.events, f"seed {bench.seed}: in {number} jobs {done} events had an effect")
        words = draw.choice([pipelines([0, 1], [2, 3, 4]), pipelines([0], [1, 2], [3, 4]), pipelines([0, 1, 2], [3, 4]),
                             REPLICAS["3-2"]])
        schedule, policy = draw.choice(SCHEDULES), draw.choice([p for p in POLICIES if p != "auto"])
        words = [*words, f"scheduler.schedule={schedule}", f"balancer.policy={policy}", "cluster.head_timeout_s=60"]
        # Of every third job the devices complete their work late: what is given up is in the middle of something. Of
        # every third their memory is closed to processors.
        devices = ("prompt", "late", "apart")[number % 3]
        if draw.random() < 0.5:
            words += [f"debug.warm_up_bytes={draw.choice([1, 20000, 1000000])}"]
        words += ["debug.delayed_device_ms=0.4"] if devices == "late" else bench.on("apart") if devices == "apart" else []
        job, output, tried, joiners = disturbed_job(bench, number, words)
        events = read_lines_so_far(job.run / "events.jsonl")
        happened = took_effect(tried, events, sum(node is not None and node.returncode == 0 for node in joiners))
        print(f"  {schedule}, {policy}, {devices} devices: {', '.join(what if node is None else f'{what} {node}' for what, node in tried)}; "
              f"{happened} of {len(tried)} had an effect", flush=True)
        if job.process.returncode == 0:
            bench.check(job, steps=60)
        else:
            expect("no other node has" in output, f"seed {bench.seed}: exit {job.process.returncode}\n{output[-2500:]}")
        done += happened
        number += 1
        bench.numbers |= {"seed": bench.seed, "events": done, "jobs": number}


CASES = [a_killed_node_changes_nothing, only_the_encoders_change_where_one_of_them_is_lost, what_is_left_of_a_replica_works_on,
         nodes_that_encode_too_work_for_both, groups_keep_devices_of_their_own, phases_stay_exchanged_where_a_node_is_lost, what_encoders_have_in_host_memory_outlives_a_node, standby_holders_take_over, nodes_are_lost_amid_sums_by_nccl, a_sum_by_nccl_that_hangs_or_fails_costs_a_node,
         nodes_are_lost_amid_rows_by_nccl, rows_by_nccl_that_hang_or_fail_cost_a_node, a_lane_of_rows_that_hangs_as_it_opens_costs_a_node,
         one_after_the_other_down_to_one,
         two_at_once, a_stopped_node_is_done_without_and_ends_when_it_goes_on, the_last_copy, a_loss_while_it_saves, a_loss_while_the_job_stops,
         a_loss_while_the_job_starts, another_node_takes_the_place_of_one_lost_before_the_job_begins, a_node_leaves_and_another_one_comes,
         a_signalled_node_has_its_time_to_leave,
         a_node_takes_state_over_while_the_others_train, state_that_comes_slowly_is_waited_for_by_its_step, who_joins_says_how_fast_it_is, a_node_that_slows_down_leaves,
         a_job_is_asked_and_ordered,
         the_layout_is_changed_by_hand, a_layout_by_hand_outlives_the_head,
         the_head_is_killed_and_another_one_goes_on, the_next_head_knows_what_the_one_before_learned, a_head_is_lost_with_a_node, who_was_to_leave_leaves_under_the_next_head,
         nodes_told_to_end_without_a_head_save_first, nodes_in_another_folder_find_the_next_head, a_stopped_head_comes_back,
         a_stopped_head_that_was_replaced_ends, nodes_save_and_end_where_no_head_comes, a_changed_job_is_no_head]
PRODUCTS = exchange_products.loss_cases()
PRODUCTS_AT_A_TIME = 2


def run_on_bench(all_cases, seed):
    """The main function of a script whose jobs, data and oracle are these; returns its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--seed", type=int, default=seed)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.binary.resolve(), pathlib.Path(folder))
        bench.seed, bench.draw = arguments.seed, random.Random(arguments.seed)
        cases = [case for case in all_cases if not arguments.cases or any(word in case.__name__ for word in arguments.cases)]
        return run_cases(cases, lambda case: case(bench))


def read_arguments(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--chaos", type=int, default=int(os.environ.get("TROUPE_CHAOS_EVENTS", 0)))
    parser.add_argument("--device", default="cpu", help="what the jobs train on: cpu, apart (tests/accelerator) or cuda")
    parser.add_argument("--seed", type=int, default=SEED)
    kept_records.add_argument(parser)
    return parser.parse_args(words)


def main():
    arguments = read_arguments(sys.argv[1:])
    keeper = kept_records.Keeper(arguments.record, sys.argv, arguments.binary.resolve())
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.binary.resolve(), pathlib.Path(folder), arguments.device)
        bench.seed, bench.events, bench.draw = arguments.seed, arguments.chaos or RANDOM_EVENTS, random.Random(arguments.seed)
        print(f"seed {arguments.seed}", flush=True)
        everything = [*CASES, random_events]
        if arguments.cases:
            cases = [case for case in [*everything, *PRODUCTS] if any(word in case.__name__ for word in arguments.cases)]
        else:
            cases = [random_events] if arguments.chaos else [*third_here(everything), *some_here(PRODUCTS, PRODUCTS_AT_A_TIME)]
        return run_cases(cases, lambda case: keeper.keep_case(bench, case))


if __name__ == "__main__":
    sys.exit(main())
