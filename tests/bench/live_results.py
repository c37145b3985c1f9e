"""Results of live_bench.py, live_peer.py and prediction_bench.py: a file of JSON lines, and what follows from it.

A line is one run (or what refused it: `error`). Of a row (configuration, schedule, policy) the median over its runs
counts. The bound of a configuration is the busiest device's work under the best layout of its samples: of all rows
measured, the least median of `busiest_ms` (of each step the device with the most work: its forwards, backwards and
update in the trace; their mean over steps). No order of that work takes less, whatever the schedule. What a policy
could save is random order's step under the same schedule minus this bound; its share of that is
(random - step) / (random - bound). The goals stand here and in no product.
"""

import collections
import json
import os
import pathlib
import statistics
import typing

from live_configurations import BASELINE_POLICY, BASELINE_SCHEDULE, CONFIGURATIONS, POLICIES, SCHEDULES

SHARE_GOAL = 0.8  # Of what could be saved, by the best policy under each schedule; uneven data.
EVEN_GOAL = 0.98  # Random order's step over the worst policy's, where there is little to save.
PREDICTION_GOAL = 0.1  # Error of a predicted step.
DISTURBED = 1.15  # Measured over predicted by the profile, beside the median of that over a configuration's rows.
PEER_GOAL = {"uneven": 1.2, "even": 1}  # The peer's step over the best policy's under the same schedule.
PEER = "torch.distributed.pipelining"  # A policy of the table; its schedule is 1F1B.


class Row(typing.NamedTuple):
    """Medians over the runs of one row."""
    schedule: str
    policy: str
    runs: int
    step_ms: float
    busiest_ms: float
    profile: float  # Predicted by the profile / measured.
    calibrated: float  # Predicted with the speeds of the steps before / measured.
    wait_ms: float  # The longest wait for a plan.
    memory: float  # Peak of activations over the promise, furthest from 1.


def read(path):
    """Records of a result file; none where there is no file yet. What a killed bench left of its last line is cut
    off the file. ValueError: another line is no JSON object."""
    path = pathlib.Path(path)
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[:text.rfind("\n") + 1]
    if whole != text:
        os.truncate(path, len(whole.encode()))
    records = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            records.append(json.loads(line))
        except ValueError:
            raise ValueError(f"{path}:{number}: not valid JSON") from None
    return records


def append(path, record):
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def key(record):
    return record["configuration"], record["schedule"], record["policy"], record["run"]


def busiest_ms(wall_ms, cpu_ms, cores):
    """Work of the busiest device in a step, from wall-clock and processor time of each device. Where devices share
    cores, wall-clock holds their waits for one: there it is processor time, and at least an even share of the cores."""
    if len(wall_ms) <= cores:
        return max(wall_ms, default=0)
    return max(max(cpu_ms), sum(cpu_ms) / cores)


def rows(records, configuration):
    """Row by (schedule, policy) of a configuration; runs that ended with an error are left out."""
    runs = collections.defaultdict(list)
    for record in records:
        if record.get("configuration") == configuration and "steps_ms" in record:
            runs[record["schedule"], record["policy"]].append(record)
    result = {}
    for (schedule, policy), found in runs.items():
        def median(name):
            values = [run[name] for run in found if name in run]
            return statistics.median(values) if values else None

        memory = [run["memory"] for run in found if "memory" in run]
        result[schedule, policy] = Row(
            schedule, policy, len(found), statistics.median(statistics.mean(run["steps_ms"]) for run in found),
            median("busiest_ms"), median("profile"), median("calibrated"),
            max((run["plan_wait_ms"] for run in found if "plan_wait_ms" in run), default=None),
            max(memory, key=lambda share: abs(share - 1), default=None))
    return result


def bound(table):
    """Row whose busiest device has the least work, or None."""
    return min((row for row in table.values() if row.busiest_ms is not None), key=lambda row: row.busiest_ms,
               default=None)


def share(reference_ms, step_ms, bound_ms):
    """How much of reference - bound is saved; None where there is nothing to save."""
    if reference_ms <= bound_ms:
        return None
    return (reference_ms - step_ms) / (reference_ms - bound_ms)


def policies_under(table, schedule):
    """Our rows under a schedule that are not random order, the fastest first."""
    return sorted((row for (name, policy), row in table.items()
                   if name == schedule and policy not in (BASELINE_POLICY, PEER)), key=lambda row: row.step_ms)


def disturbed(table):
    """Keys of rows that took so much longer than their profile says, compared with the others of their configuration, that
    something else ran beside them."""
    ratios = {key: 1 / row.profile for key, row in table.items() if row.profile}
    usual = statistics.median(ratios.values()) if ratios else 0
    return {key for key, ratio in ratios.items() if ratio >= DISTURBED * usual}


def mark(table, *rows):
    """` †` where one of these rows was disturbed: what was figured from it says little."""
    found = disturbed(table)
    return " †" if any((row.schedule, row.policy) in found for row in rows) else ""


def verdict(reached):
    return "reached" if reached else "missed"


def percent(value):
    return "nothing to save" if value is None else f"{100 * value:.0f} %"


def schedule_verdict(configuration, table, schedule):
    """How the policies under a schedule stand to their goal, in words; None where random order or they are missing."""
    random, found = table.get((schedule, BASELINE_POLICY)), policies_under(table, schedule)
    if not random or not found:
        return None
    if CONFIGURATIONS[configuration].data == "even":
        ratio = random.step_ms / found[-1].step_ms
        return (f"slowest: {found[-1].policy}, {ratio:.2f}x; goal {EVEN_GOAL}x: {verdict(ratio >= EVEN_GOAL)}"
                f"{mark(table, random, found[-1])}")
    saved = share(random.step_ms, found[0].step_ms, bound(table).busiest_ms)
    if saved is None:
        return "nothing to save"
    return (f"{found[0].policy}, {percent(saved)}; goal {percent(SHARE_GOAL)}: {verdict(saved >= SHARE_GOAL)}"
            f"{mark(table, random, found[0])}")


def prediction_verdict(ratios):
    """How predicted / measured steps stand to their goal, in words; None where there are none."""
    ratios = [ratio for ratio in ratios if ratio is not None]
    if not ratios:
        return None
    missed = sum(abs(ratio - 1) > PREDICTION_GOAL for ratio in ratios)
    where = f"missed by {missed} of {len(ratios)}" if missed else "reached"
    return f"{min(ratios):.2f} to {max(ratios):.2f}; goal within {percent(PREDICTION_GOAL)}: {where}"


def median_error(records, which):
    """Of a kind of prediction / measured over runs, the median distance from 1."""
    return statistics.median(abs(record[which] - 1) for record in records)


def names(table):
    """(schedules, policies) that a table has, in the usual order."""
    return ([schedule for schedule in SCHEDULES if any(name == schedule for name, policy in table if policy != PEER)],
            [policy for policy in POLICIES if any(name == policy for _, name in table)])


def mixed_best(table):
    """(best row of all, random order under 1F1B) as the page compared them before: policy and schedule at once."""
    random = table.get((BASELINE_SCHEDULE, BASELINE_POLICY))
    ours = [row for (_, policy), row in table.items() if policy not in (BASELINE_POLICY, PEER)]
    return (min(ours, key=lambda row: row.step_ms), random) if ours and random else None
