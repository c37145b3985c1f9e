#!/usr/bin/python3
"""Schedules of the user's own: the example built against installed headers and trained, the order that one returns is what
runs, and what faulty ones do.

    schedule_plugins.py BINARY [CASE...]      BINARY lies in the build folder that is installed from
"""

import json
import sys

from plugins import ROOT, Bench, main, ran
from tests.support.recorded_runs import read_lines
from tests.support.run_cases import expect

EXAMPLE = ROOT / "examples" / "windows"

# As GPipe, but backwards from the last microbatch to the first; and schedules that break a rule each.
OWN = r"""
#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <tuple>
#include "runtime/plugins/entry_point.hpp"
#include "runtime/schedules/registry.hpp"
using namespace troupe;
using namespace troupe::schedules;

DeviceOrders last_first(const TaskGraph& graph) {
  std::vector<std::int32_t> tasks(graph.tasks.size());
  std::iota(tasks.begin(), tasks.end(), 0);
  std::ranges::sort(tasks, {}, [&](std::int32_t t) {
    const Task& task = graph.tasks[std::size_t(t)];
    const bool is_backward = task.kind != TaskKind::forward;
    const auto depth = graph.stage_of(t).depth;
    return std::tuple(is_backward, is_backward ? -task.microbatch : task.microbatch, is_backward ? depth : -depth, task.part);
  });
  DeviceOrders orders(std::size_t(graph.device_count()));
  for (const auto task : tasks) orders[std::size_t(graph.device_of(task))].push_back(task);
  return orders;
}

Status add(const char* name, void (*spoil)(DeviceOrders&)) {
  return register_schedule({.name = name, .order = [spoil](const TaskGraph& graph, const auto&) -> Result<DeviceOrders> {
    auto orders = last_first(graph);
    spoil(orders);
    return orders;
  }});
}

Status register_all() {
  for (const auto& [name, spoil] : std::initializer_list<std::pair<const char*, void (*)(DeviceOrders&)>>{
           {"last-first", [](auto&) {}},
           {"loses", [](auto& orders) { orders[1].pop_back(); }},
           {"doubles", [](auto& orders) { orders[1].push_back(orders[1].front()); }},
           {"invents", [](auto& orders) { orders[0][0] = 100'000; }},
           {"elsewhere", [](auto& orders) { orders[0].push_back(orders[1].front()); }},
           {"forgets-a-device", [](auto& orders) { orders.pop_back(); }},
           {"waits", [](auto& orders) { std::ranges::reverse(orders[1]); }},
           {"endless", [](auto&) { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); }},
           {"throws", [](auto&) { throw std::runtime_error("of its own accord"); }}})
    if (auto added = add(name, spoil); !added.ok()) return added;
  return Done{};
}

TROUPE_PLUGIN(register_all)
"""
FAULTS = {"loses": "leaves out", "doubles": "twice on device 1", "invents": "has task 100000 on device 0",
          "elsewhere": "on device 0, not its own", "forgets-a-device": "orders 1 devices, where there are 2",
          "waits": "waits for ever: ", "throws": "throws: of its own accord"}


class ScheduleBench(Bench):
    example, library_name = EXAMPLE, "windows.so"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.own = self.built_beside(OWN)

    def by(self, schedule, name, *words):
        return [*self.job(name, *words), f'plugins.libraries=["{self.own}"]', f"scheduler.schedule={schedule}"]


def order_of(run, step, stage):
    """(kind, microbatch) of what a stage computed, as its trace has it."""
    events = [event for event in json.loads((run / "trace.json").read_text(encoding="utf-8"))
              if event.get("ph") == "X" and event["args"].get("step") == step and event["args"].get("stage_id") == stage
              and event["args"].get("kind") in ("forward", "backward")]
    return [(event["args"]["kind"], event["args"]["microbatch"]) for event in sorted(events, key=lambda event: event["ts"])]


def the_example_survives_a_killed_node_and_a_restart_and_equals_its_reference(bench):
    bench.survives("windows", "scheduler.schedule=windows")


def what_a_schedule_orders_is_what_runs(bench):
    ran(bench.by("gpipe", "gpipe", "train.steps=4"))
    ran(bench.by("last-first", "last-first", "train.steps=4"))
    orders = {name: order_of(bench.folder / name, 4, 1) for name in ("gpipe", "last-first")}
    count = len(orders["gpipe"]) // 2
    expect(count > 1, f"one microbatch shows nothing: {orders}")
    forwards, backwards = ([(kind, m) for m in range(count)] for kind in ("forward", "backward"))
    expect(orders["gpipe"] == forwards + backwards, f"gpipe ran {orders['gpipe']}")
    expect(orders["last-first"] == forwards + backwards[::-1], f"last-first ran {orders['last-first']}")
    bench.equal("gpipe", "last-first")


def the_windows_of_the_example_run_one_after_the_other(bench):
    for most, window in ((0, 3), (2, 2)):
        ran(bench.job(f"windows-{most}", "train.steps=3", f"scheduler.max_in_flight={most}", "balancer.policy=dflop"))
        order = order_of(bench.folder / f"windows-{most}", 3, 0)
        count = len(order) // 2
        wanted = [(kind, m) for first in range(0, count, window) for kind in ("forward", "backward")
                  for m in range(first, min(first + window, count))]
        expect(count > window and order == wanted, f"max_in_flight {most}: {order}")


def windows_wait_for_what_is_deferred_or_encoded_beyond_them(bench):
    """Samples go to later windows of the llm; three encoders have other numbers of microbatches than the two llms they feed."""
    for policy, layout in (("deferral", []), ("random", bench.replicas)):
        words = [f"balancer.policy={policy}", "train.steps=2", "train.microbatches=8", "train.global_batch_size=24"]
        for name in ("reference", "windows"):
            ran(bench.job(f"{policy}-{name}", *words, *(["--reference"] if name == "reference" else layout)))
        bench.equal(f"{policy}-reference", f"{policy}-windows")


def a_faulty_schedule_ends_the_job_by_its_name(bench):
    for schedule, fault in FAULTS.items():
        name = f"run-{schedule}"
        said = bench.said(*map(str, bench.by(schedule, name, "train.microbatches=3")[1:]))
        expect(f"schedule '{schedule}'" in said and fault in said and "fix:" in said, f"{schedule}: {said[-600:]}")
        metrics = bench.folder / name / "metrics.jsonl"
        expect(not metrics.exists() or not read_lines(metrics), f"{schedule}: a step was trained")
    said = bench.said(*map(str, bench.by("last-first", "run-full", "scheduler.max_in_flight=1", "train.microbatches=3")[1:]))
    expect("schedule 'last-first' has " in said and "microbatches in flight on stage 0, where at most 1 have room" in said, said[-600:])


def a_schedule_that_never_returns_ends_what_plans_by_its_name(bench):
    words = [f'plugins.libraries=["{bench.own}"]', "scheduler.schedule=endless", "train.stall_timeout_s=6"]
    for command in (bench.job("endless", *words)[1:], ["simulate", *bench.words(), *words]):
        said = bench.said(*command, code=1)
        expect("train.stall_timeout_s: `order` of schedule 'endless' has not returned for 6 s" in said and "fix: look for a loop" in said, said[-600:])


def a_job_without_its_plugin_names_the_schedules_there_are(bench):
    bench.names_what_there_is("zero-bubble")


def a_new_schedule_passes_its_own_test_under_its_own_name(bench):
    bench.new_one_passes("schedule", "gpipe")


CASES = [the_example_survives_a_killed_node_and_a_restart_and_equals_its_reference, what_a_schedule_orders_is_what_runs,
         the_windows_of_the_example_run_one_after_the_other, windows_wait_for_what_is_deferred_or_encoded_beyond_them,
         a_faulty_schedule_ends_the_job_by_its_name, a_schedule_that_never_returns_ends_what_plans_by_its_name,
         a_job_without_its_plugin_names_the_schedules_there_are, a_new_schedule_passes_its_own_test_under_its_own_name]


if __name__ == "__main__":
    sys.exit(main(ScheduleBench, CASES, *sys.argv[1:]))
