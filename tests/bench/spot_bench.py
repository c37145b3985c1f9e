#!/usr/bin/python3
"""A job whose nodes come and go as a recorded spot trace says, live and in `troupe replay`: do both train as many samples?

    spot_bench.py [--seconds N] [--case NAME] [--folder DIR] [--record FILE]

Live: a head that starts no nodes, and `troupe node --join` for each node of the trace, begun when it comes and killed
(SIGKILL) when it goes. Up to 12 nodes share this machine's cores, so stages sleep `FACTOR` times what they compute
(`debug.slow_shapes`); the planner has a profile with these times and chooses the layout. A node that waits for a core is no
silent one: the job waits 15 s for signs of life, while a killed node is noticed by its connections. Samples count from a step's end
to the end of the window.

Replay: the same events and job file, by the job's own profile, layout and data (`troupe replay` without --cluster). A
rehearsal before says what a loss and a join cost, phase by phase, and how much slower steps are than the profile says
(`--costs-from`), and how long a node takes to start (`--start-ms`). The replay is told nothing of the run that it is held
against. Two more stand beside it: at the pace that the live run turned out to have, which leaves what events do (a stage that
waits for a core counts the wait `FACTOR` times, so a pace lasts as long as the host's load: on a busy one run this under
`chrt -r 1`); and with the costs that a replay has by default, at the rehearsed pace.

The goal is samples within 10 %. Time lost live is what the first step after an event took beyond a usual one.
"""

import argparse
import collections
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench")]

import kept_results  # noqa: E402
from checkpoint_bench import report  # noqa: E402
from replicas_bench import troupe, write_paced_profile  # noqa: E402
from spot_live import BINARY, KINDS, Ended, Live  # noqa: E402

TRACES = ROOT.parent / "shared" / "data" / "spot-traces"
EXIT_SKIPPED = 77
PLACES, FACTOR, BATCH, GOAL = 12, 30, 60, 0.1
REHEARSED = 8  # Steps of the rehearsal between two events.
Case = collections.namedtuple("Case", "trace first_minute speed")
CASES = {"100 minutes, 10 times as fast": Case("g4dn-trace.csv", 138, 10),
         "10 minutes as recorded": Case("g4dn-trace.csv", 195.5, 1)}
Event = collections.namedtuple("Event", "at_s joins node")  # Seconds from the window's begin.
Played = collections.namedtuple("Played", "samples lost_s join_waits_s step_s phases")
PHASES = ("detect_ms", "waited_ms", "decide_ms", "connect_ms", "copy_ms", "rebuild_ms", "decode_ms", "replay_ms", "warm_up_ms")
JOB = f"""
[job]
name = "spot-bench"
[modules.llm]
kind = "llm"
config = {{ num_hidden_layers = 2, hidden_size = 96, intermediate_size = 192, num_attention_heads = 4, \
num_key_value_heads = 4, vocab_size = 512 }}
[[data.sources]]
json = "samples.json"
[data]
max_seq_len = 4096
[train]
steps = 1000000
global_batch_size = {BATCH}
microbatches = 2
[parallel]
mode = "auto"
[scheduler]
profile = "paced.json"
[cluster]
nodes = {PLACES}
local_nodes = 0
min_nodes = 2
fault_tolerance = 1
join_timeout_s = 30
heartbeat_timeout_s = 15
[checkpoint]
every_minutes = 2
[recovery]
from_checkpoint = true
wait_for_nodes_s = 60
[[debug.slow_shapes]]
module = "llm"
min_rows = 1
max_rows = 1000000
factor = {FACTOR}
"""


# ---- the trace -------------------------------------------------------------------------------------

def read_window(case, seconds):
    """Names of the nodes that are there when the window begins, and its events."""
    there, events = [], []
    begin_ms = case.first_minute * 60e3
    for line in (TRACES / case.trace).read_text(encoding="utf-8").split():
        at_ms, kind, node = line.split(",")
        at_s = (float(at_ms) - begin_ms) / 1e3 / case.speed
        if at_s >= seconds:
            break
        if at_s > 0:
            events.append(Event(at_s, kind == "add", node))
        elif kind == "add":
            there.append(node)
        else:
            there.remove(node)
    counts = [len(there)]
    for event in events:
        counts.append(counts[-1] + (1 if event.joins else -1))
    if not 2 <= min(counts) <= max(counts) <= PLACES:
        sys.exit(f"{case.trace} has {min(counts)} to {max(counts)} nodes there: choose another window")
    return there, events, counts


def phases_of(events):
    """Medians of each phase by the kind of event, in milliseconds."""
    return {kind: {phase: statistics.median(event.get(phase, 0) for event in own) for phase in PHASES}
            for kind, own in events.items() if own}


# ---- live ------------------------------------------------------------------------------------------

def play(folder, name, there, events, seconds):
    with Live(folder, name) as live:
        first = live.begin(there)
        begin = live.steps[first][0]
        for event in events:
            live.until(lambda at=begin + event.at_s: time.monotonic() >= at, seconds + 60, "the next event")
            if event.joins:
                live.join(event.node)
            else:
                live.kill(event.node)
        live.until(lambda: time.monotonic() >= begin + seconds, seconds + 60, "the end of the window")
        samples, costs = BATCH * (live.last - first), live.costs(first, BATCH)
        told = {kind: [event for event in live.events() if event["kind"] == kind and event["step"] > first and "decide_ms" in event]
                for kind in KINDS}  # Where kinds meet in one change, the first one's line has its phases.
        live.end()
        return Played(samples, *costs, phases_of(told))


def rehearse(folder, there):
    """Before: a run with two losses and two joins. Returns what a node takes to start, in milliseconds."""
    starts = []
    with Live(folder, "rehearsal") as live:
        live.begin(there)

        def train_on(steps):
            last = live.last + steps
            live.until(lambda: live.last >= last, 120, f"{steps} steps")

        train_on(2 * REHEARSED)
        for turn in range(2):
            live.kill(there[turn])
            train_on(REHEARSED)
            begin, joined = time.monotonic(), live.joined()
            live.join(f"rehearsal-{turn}")
            live.until(lambda count=joined: live.joined() > count, 60, "a node is ready")
            starts.append(1e3 * (time.monotonic() - begin))
            live.until(lambda turn=turn: len(live.events()) >= 2 * turn + 2, 60, "a node joins")
            train_on(REHEARSED)
    return statistics.median(starts)


# ---- replay ----------------------------------------------------------------------------------------

def replay(folder, lines, *words):
    (folder / "window.csv").write_text("".join(f"{at_ms:.3f},{kind},{node}\n" for at_ms, kind, node in lines),
                                       encoding="utf-8")
    command = ["replay", "job.toml", "--failures", "window.csv", "--recovery", "live", *words, "--json"]
    return json.loads(troupe(folder, *command)), command


def play_on_paper(folder, there, events, seconds, *words):
    """The same window in the replay. Its last line ends it and does not happen."""
    left = there + [event.node for event in events if event.joins]
    gone = {event.node for event in events if not event.joins}
    lines = [(0, "add", node) for node in there]
    lines += [(1e3 * event.at_s, "add" if event.joins else "remove", event.node) for event in events]
    lines += [(1e3 * seconds, "remove", next(node for node in left if node not in gone))]
    answer, command = replay(folder, lines, *words)
    result = answer["recovery"]["live"]
    lost_s, waits_s, step_s, all_phases = {kind: [] for kind in KINDS}, [], {}, {kind: [] for kind in KINDS}
    for event in result["events"]:
        if event["outcome"] != "reconfigured":
            print(f"replay at {event['time_ms'] / 1e3:.1f} s: {event['outcome']}, {event['nodes']} nodes", flush=True)
            continue
        kind = event["kind"]
        step_s[event["nodes"]] = event["iteration_ms"] / 1e3
        lost_s[kind].append((event["recovery_ms"] + event["lost_work_ms"]) / 1e3)
        all_phases[kind].append(event)
        if kind == "joined":
            at_s = event["time_ms"] / 1e3
            waits_s.append(at_s - max(other.at_s for other in events if other.joins and other.at_s <= at_s + 1e-3))
    return Played(result["samples"], lost_s, waits_s, step_s, phases_of(all_phases)), answer, command


# ---- what it says ----------------------------------------------------------------------------------

def lost_text(played):
    return "; ".join(f"{len(all_s)} x {KINDS[kind]}: {sum(all_s):.1f} s, median {statistics.median(all_s):.2f} s"
                     for kind, all_s in played.lost_s.items() if all_s)


def verdict(ratio):
    return "met" if abs(ratio - 1) <= GOAL else "**MISSED**"


def tell(window, live, by_kind, load):
    print(f"\n{window}; load of the machine {load[0]:.1f} before, {load[1]:.1f} after\n\n"
          "| | Samples | Live / replay | Goal: within 10 % | Time lost | A join waits (median) |\n|---|---|---|---|---|---|")
    for name, played in {"live": live, **by_kind}.items():
        ratio = live.samples / played.samples if played is not live and played.samples else None
        told = f"{ratio:.3f} | {verdict(ratio)}" if ratio else " | "
        wait = f"{statistics.median(played.join_waits_s):.2f} s" if played.join_waits_s else "-"
        print(f"| {name} | {played.samples:,} | {told} | {lost_text(played)} | {wait} |")
    print("\n| Nodes | " + " | ".join(map(str, sorted(live.step_s))) + " |\n|---" + "|---" * len(live.step_s) + "|")
    for name, played in {"live": live, **by_kind}.items():
        print(f"| a step, {name} | " + " | ".join(f"{played.step_s[nodes]:.2f} s" if nodes in played.step_s else "-"
                                                  for nodes in sorted(live.step_s)) + " |")
    print("\n| Medians, ms | " + " | ".join(phase[:-3].replace("_", " ") for phase in PHASES) + " |\n|---" + "|---" * len(PHASES) + "|")
    for name, played in {"live": live, **by_kind}.items():
        for kind, phases in played.phases.items():
            print(f"| {KINDS[kind]}, {name} | " + " | ".join(f"{phases[phase]:.0f}" for phase in PHASES) + " |")
    print(flush=True)


def write_job(folder):
    """Data, a profile whose stages sleep, and the job with it."""
    (folder / "job.toml").write_text(JOB.replace('profile = "paced.json"\n', ""), encoding="utf-8")
    (folder / "samples.json").write_text(json.dumps(
        [{"id": str(i), "conversations": [{"from": "human", "value": "what is it? " * 10},
                                          {"from": "gpt", "value": f"number {i:04d} " * 10}]} for i in range(600)]),
        encoding="utf-8")
    write_paced_profile(folder, "spot-bench", FACTOR)
    (folder / "job.toml").write_text(JOB, encoding="utf-8")


def measure(folder, name, seconds):
    case = CASES[name]
    there, events, counts = read_window(case, seconds)
    load = [os.getloadavg()[0]]
    try:
        start_ms = rehearse(folder, there)
    except Ended as ended:
        print(f"{name}: not measured, the rehearsal did not last: {ended}")
        return False
    rehearsed = ["--costs-from", "rehearsal", "--start-ms", f"{start_ms:.0f}"]
    measured, answer, command = play_on_paper(folder, there, events, seconds, *rehearsed)
    by_default, _, _ = play_on_paper(folder, there, events, seconds, "--pace", f"{answer['pace']:.6f}")
    print(f"rehearsed: a node starts in {start_ms:.0f} ms, steps take {answer['pace']:.2f} times what the profile says\n"
          f"troupe {' '.join(command)}", flush=True)
    joins = sum(event.joins for event in events)
    window = (f"{case.trace} from minute {case.first_minute:g}, {seconds:g} s at {case.speed:g} times its pace, {counts[0]} "
              f"nodes at first, {min(counts)} to {max(counts)}, {len(events) - joins} nodes lost, {joins} join")
    try:
        live = play(folder, f"live-{case.speed}", there, events, seconds)
    except Ended as ended:
        print(f"{window}: goal **MISSED**, the job did not last: {ended}")
        return False
    pace = replay(folder, [(0, "add", "n0"), (0, "add", "n1"), (1, "remove", "n1")], "--costs-from", f"live-{case.speed}")[0]["pace"]
    at_its_pace, _, _ = play_on_paper(folder, there, events, seconds, *rehearsed, "--pace", f"{pace:.6f}")
    tell(window, live, {"replay, costs as rehearsed": measured, "replay, at the live run's pace": at_its_pace,
                        "replay, its default costs": by_default}, [*load, os.getloadavg()[0]])
    size = f"{case.trace}, {name}, {len(events)} events"
    report("samples trained live, beside a replay of the same events", live.samples, "samples", size, "higher",
           measured.samples)
    apart = abs(live.samples / measured.samples - 1)
    kept_results.emit({"measure": "live and replayed samples apart", "value": 100 * apart, "unit": "%", "size": size,
                       "better": "lower", "bound": 100 * GOAL, "goal": "met" if apart <= GOAL else "MISSED"})
    report("the same, at the pace that the live run turned out to have", 100 * abs(live.samples / at_its_pace.samples - 1),
           "%", size, bound=100 * GOAL)
    report("the same, with the replay's default costs", 100 * abs(live.samples / by_default.samples - 1), "%", size,
           bound=100 * GOAL)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="length of the window, live")
    parser.add_argument("--case", choices=CASES, action="append", help="default: the first; two take more than half an hour")
    parser.add_argument("--folder", type=pathlib.Path, help="where to write; default: the system's")
    kept_results.add_option(parser)
    arguments = parser.parse_args()
    if not TRACES.is_dir():
        print(f"no traces at {TRACES}")
        return EXIT_SKIPPED
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with kept_results.recorded(arguments.record, kept_results.commit_of(BINARY)) as run:
        for name in arguments.case or list(CASES)[:1]:
            with tempfile.TemporaryDirectory(prefix="troupe-spot-bench-", dir=arguments.folder) as made:
                folder = pathlib.Path(made)
                write_job(folder)
                run["passed"] = measure(folder, name, arguments.seconds) and run["passed"]
    return 0 if run["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
