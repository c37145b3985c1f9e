"""The tables of RESULTS.md in Markdown, made from a result file: live_bench.py --table FILE prints them."""

import collections
import statistics

from live_configurations import BASELINE_POLICY, BASELINE_SCHEDULE, CONFIGURATIONS, ONLY_BASELINE, SCHEDULES
from live_results import (DISTURBED, PEER, PEER_GOAL, PREDICTION_GOAL, SHARE_GOAL, bound, disturbed, mark, median_error, mixed_best, names,
                          percent, policies_under, prediction_verdict, rows, schedule_verdict, share, verdict)

ABSENT = "-"


def line(cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def head(cells):
    return [line(cells), "|" + "---|" * len(cells)]


def counts(values):
    """How often each value occurs: `a (3 runs), b (1 run)`."""
    found = collections.Counter(values)
    return ", ".join(f"{value} ({count} run{'s' if count > 1 else ''})" for value, count in found.items())


def over(reference, row):
    """A row's step, and its ratio to another row's."""
    return f"{row.step_ms:.0f} ms, {reference.step_ms / row.step_ms:.2f}x"


def overview(tables):
    """One line per configuration: policies under 1F1B."""
    lines = head(["1F1B", "random order, ms", "bound, ms", "best policy, ms", "over random", f"saved of what could be; goal "
                  f"{percent(SHARE_GOAL)}", "best row of all over random order under 1F1B"])
    for configuration, table in tables.items():
        random = table.get((BASELINE_SCHEDULE, BASELINE_POLICY))
        found = policies_under(table, BASELINE_SCHEDULE)
        if not random or not found:
            lines.append(line([configuration] + [ABSENT] * 6))
            continue
        mixed, _ = mixed_best(table)
        lines.append(line([
            configuration, f"{random.step_ms:.0f}", f"{bound(table).busiest_ms:.0f}",
            f"`{found[0].policy}` {found[0].step_ms:.0f}", f"{random.step_ms / found[0].step_ms:.2f}x{mark(table, random, found[0])}",
            schedule_verdict(configuration, table, BASELINE_SCHEDULE),
            f"{random.step_ms / mixed.step_ms:.2f}x (`{mixed.policy}`, {mixed.schedule}){mark(table, random, mixed)}"]))
    return lines


def policies_table(configuration, table):
    """Policies under the same schedule: step, ratio over random order, share of what could be saved."""
    schedules, policies = names(table)
    lines = head(["policy", *schedules])
    for policy in policies:
        cells = []
        for schedule in schedules:
            row, random = table.get((schedule, policy)), table.get((schedule, BASELINE_POLICY))
            if not row:
                cells.append(ABSENT)
            elif policy == BASELINE_POLICY or not random:
                cells.append(f"{row.step_ms:.0f} ms{mark(table, row)}")
            else:
                cells.append(f"{over(random, row)}, {percent(share(random.step_ms, row.step_ms, bound(table).busiest_ms))}"
                             f"{mark(table, random, row)}")
        lines.append(line([f"`{policy}`", *cells]))
    lines.append(line(["goal", *(schedule_verdict(configuration, table, schedule) or ABSENT for schedule in schedules)]))
    return lines


def schedules_table(table):
    """Schedules under the same policy: ratio over 1F1B, share of what 1F1B leaves above the bound that is saved."""
    schedules, policies = names(table)
    others = [schedule for schedule in schedules if schedule != BASELINE_SCHEDULE]
    policies = [policy for policy in policies if (BASELINE_SCHEDULE, policy) in table
                and any((schedule, policy) in table for schedule in others)]
    if not policies:
        return []
    lines = head(["policy", "1f1b", *others])
    for policy in policies:
        plain = table[BASELINE_SCHEDULE, policy]
        cells = [f"{plain.step_ms:.0f} ms{mark(table, plain)}"]
        for schedule in others:
            row = table.get((schedule, policy))
            cells.append(f"{over(plain, row)}, {percent(share(plain.step_ms, row.step_ms, bound(table).busiest_ms))}"
                         f"{mark(table, plain, row)}" if row else ABSENT)
        lines.append(line([f"`{policy}`", *cells]))
    return lines


def peer_note(configuration, table):
    """The best policy beside the peer, both under 1F1B, or None."""
    peer = table.get((BASELINE_SCHEDULE, PEER))
    ours = [row for (schedule, policy), row in table.items() if schedule == BASELINE_SCHEDULE and policy != PEER]
    if not peer or not ours:
        return None
    best = min(ours, key=lambda row: row.step_ms)
    ratio, goal = peer.step_ms / best.step_ms, PEER_GOAL[CONFIGURATIONS[configuration].data]
    return (f"{PEER} under 1F1B takes {peer.step_ms:.0f} ms, `{best.policy}` {best.step_ms:.0f}: {ratio:.2f}x; goal {goal}x: "
            f"{verdict(ratio >= goal)}.")


def notes(configuration, table):
    """Sentences below a configuration's tables: bound, predictions, waits, memory."""
    ours = [row for (_, policy), row in table.items() if policy != PEER]
    least = bound(table)
    result = [f"Bound: {least.busiest_ms:.0f} ms, the busiest device's work of `{least.policy}` under {least.schedule}."]
    for which, words in (("profile", "By the profile"), ("calibrated", "With speeds of the steps before")):
        told = prediction_verdict([getattr(row, which) for row in ours])
        if told:
            result.append(f"{words}, predicted / measured {told}.")
    waits = [row.wait_ms for row in ours if row.wait_ms is not None]
    memory = [row.memory for row in ours if row.memory is not None]
    if waits and memory:
        result.append(f"Longest wait for a plan {max(waits):.0f} ms; peak of activations over the promise {min(memory):.2f} to "
                      f"{max(memory):.2f}.")
    if found := disturbed(table):
        result.append(f"†: rests on a row that was disturbed ({len(found)} of {len(ours)}): measured over predicted by the profile, "
                      f"it lies {percent(DISTURBED - 1)} or more above the median of this configuration.")
    runs = [row.runs for row in ours]
    if min(runs) != max(runs):
        result.append(f"Rows have {min(runs)} to {max(runs)} runs.")
    if told := peer_note(configuration, table):
        result.append(told)
    return result


def predictions_table(records):
    """Layouts of prediction_bench.py, medians over its runs."""
    found = collections.defaultdict(list)
    for record in records:
        if "prediction" in record:
            found[record["prediction"]].append(record)
    if not found:
        return []
    goal = percent(PREDICTION_GOAL)
    lines = head(["layout", "runs", "measured, ms", f"error by the profile; goal {goal}", f"error with speeds of the steps "
                  f"before; goal {goal}"])
    for layout, runs in found.items():
        cells = []
        for which in ("profile", "calibrated"):
            error = median_error(runs, which)
            cells.append(f"{100 * error:.1f} %: {verdict(error <= PREDICTION_GOAL)}")
        lines.append(line([layout, len(runs), f"{statistics.median(run['step_ms'] for run in runs):.0f}", *cells]))
    return lines


def markdown(records):
    """All tables of a result file."""
    tables = {configuration: rows(records, configuration) for configuration in CONFIGURATIONS}
    tables = {configuration: table for configuration, table in tables.items() if bound(table)}
    trained = [record for record in records if "steps_ms" in record]
    lines = []
    if tables:
        lines += [f"{len(trained)} runs; steps of a run: "
                  f"{', '.join(sorted({str(record['steps']) for record in trained}))}; "
                  f"commit {counts(record['commit'] for record in trained)}; machine "
                  f"{counts(record['machine'] for record in trained)}.", ""]
        lines += [*overview(tables), ""]
    for configuration, table in tables.items():
        lines += [f"### {configuration}", CONFIGURATIONS[configuration].form.origin, "",
                  *policies_table(configuration, table), ""]
        if schedules := schedules_table(table):
            lines += ["The same runs, schedules under the same policy:", "", *schedules, ""]
        lines += [*notes(configuration, table), ""]
    if failed := [record for record in records if "error" in record]:
        lines += ["Without a result:", *(f"- {record['configuration']}, `{record['policy']}` under {record['schedule']}: "
                                         f"{record['error']}" for record in failed), ""]
    if predictions := predictions_table(records):
        lines += ["### Predicted steps of three layouts", "", *predictions, ""]
    if tables:
        lines += ["Schedules on these layouts:", *(f"- `{name}`: {words}." for name, words in SCHEDULES.items()),
                  f"- `{'`, `'.join(ONLY_BASELINE)}`: under 1F1B alone, where it tells balancing the encoder from deferral.", ""]
    return "\n".join(lines)
