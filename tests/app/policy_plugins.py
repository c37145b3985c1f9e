#!/usr/bin/python3
"""Microbatch policies of the user's own: the example built against installed headers and trained, what a policy decides is
what runs, and what faulty ones do.

    policy_plugins.py BINARY [CASE...]      BINARY lies in the build folder that is installed from
"""

import json
import os
import sys

from plugins import ROOT, STEPS, WITHIN_S, Bench, Running, main, ran
from parity_plans import deferred  # In a folder that `plugins` adds.
from tests.support.recorded_runs import read_iterations, read_lines
from tests.support.run_cases import expect

EXAMPLE = ROOT / "examples" / "snake"

# In-order microbatches, the last one first; and policies that break a rule each.
OWN = r"""
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include "runtime/plugins/entry_point.hpp"
#include "runtime/policies/registry.hpp"
using namespace troupe;
using namespace troupe::policies;

MicrobatchPlan backwards(std::size_t samples, const PolicyOptions& options) {
  MicrobatchPlan made;
  const auto count = std::size_t(options.microbatches);
  for (std::size_t m = count; m-- > 0;) {
    auto& group = made.llm.emplace_back();
    for (std::size_t s = samples * m / count; s < samples * (m + 1) / count; ++s) group.push_back(int(s));
  }
  made.encoder = made.llm;
  return made;
}

Status add(const char* name, void (*spoil)(MicrobatchPlan&)) {
  return register_policy({name, [spoil](std::span<const Workload> samples, const PolicyOptions& options) -> Result<MicrobatchPlan> {
    auto plan = backwards(samples.size(), options);
    spoil(plan);
    return plan;
  }});
}

Status register_all() {
  for (const auto& [name, spoil] : std::initializer_list<std::pair<const char*, void (*)(MicrobatchPlan&)>>{
           {"backwards", [](auto&) {}},
           {"loses", [](auto& plan) { plan.llm[1].pop_back(); }},
           {"doubles", [](auto& plan) { plan.encoder[0].push_back(plan.encoder[1][0]); }},
           {"invents", [](auto& plan) { plan.llm[0][0] = 99; }},
           {"splits-more", [](auto& plan) { plan.llm.push_back({}), plan.encoder.push_back({}); }},
           {"crossed", [](auto& plan) { std::swap(plan.llm[0], plan.llm[1]); }},
           {"endless", [](auto&) { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); }},
           {"endless-later", [](auto&) {
              while (std::filesystem::exists(std::getenv("OWN_SIGN"))) std::this_thread::sleep_for(std::chrono::milliseconds(10));
            }},
           {"asks-snake", [](auto&) {  // The example, loaded beside this, where the llm has room for 10 ms.
              const std::vector<Workload> samples{{10, 0}, {0, 9}, {0, 8}, {7, 0}};
              PolicyOptions options;
              options.microbatches = 2;
              options.llm_cap_ms = 10;
              const auto plan = run_policy("snake", samples, options);
              if (!plan.ok()) throw std::runtime_error(plan.error().message);
              std::string found = "snake deals";
              for (const auto& group : plan.value().llm) {
                found += " |";
                for (const auto sample : group) found += " " + std::to_string(sample);
              }
              throw std::runtime_error(found);
            }},
           {"throws", [](auto&) { throw std::runtime_error("of its own accord"); }}})
    if (auto added = add(name, spoil); !added.ok()) return added;
  return Done{};
}

TROUPE_PLUGIN(register_all)
"""
FAULTS = {"loses": "sample 3 in no llm microbatch", "doubles": "in encoder microbatch 1 and in microbatch 0",
          "invents": "has sample 99 in llm microbatch 0", "splits-more": "has 3 microbatches, where 1 to 2 are asked for",
          "throws": "throws: of its own accord"}


class PolicyBench(Bench):
    example, library_name = EXAMPLE, "snake.so"
    deferral = ["train.microbatches=2"]  # The example defers by itself, where a microbatch has samples to choose from.

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.own = self.built_beside(OWN)

    def by(self, policy, name, *words):
        return [*self.job(name), f'plugins.libraries=["{self.own}"]', f"balancer.policy={policy}", *words]


def the_example_defers_over_two_stages_and_equals_its_reference(bench):
    ran(bench.job("stages"))
    moved = [deferred(step["pipelines"][0]) for step in read_iterations(bench.folder / "stages")]
    expect(len(moved) == STEPS and any(moved), f"nothing is deferred: {moved}")
    bench.equal(bench.reference(), "stages")


def the_example_survives_a_killed_node_and_a_restart_on_replicas_with_deferral(bench):
    bench.survives("snake", *bench.deferral)


def the_example_heeds_the_memory_of_the_llm(bench):
    """By hand: 0 and 1 are dealt first, 2 has no room beside 1 (9 + 8 > 10) and goes to 0, 3 has its turn there."""
    libraries = f'plugins.libraries=["{bench.library}","{bench.own}"]'
    said = bench.said(*map(str, bench.by("asks-snake", "asks-snake", "train.microbatches=2", libraries)[1:]))
    expect("policy 'asks-snake' throws: snake deals | 0 2 3 | 1" in said, said[-600:])


def what_a_policy_decides_is_what_runs(bench):
    ran(bench.job("in-order", "balancer.policy=in-order", "train.steps=4"))
    ran(bench.by("backwards", "backwards", "train.steps=4"))
    orders = [[step["pipelines"][0]["llm"] for step in read_iterations(bench.folder / name)] for name in ("in-order", "backwards")]
    expect(len(orders[0]) == 4 and orders[1] == [step[::-1] for step in orders[0]], f"{orders[0][:1]}, backwards {orders[1][:1]}")
    expect(all(len(step) > 1 for step in orders[0]), "steps of one microbatch show nothing")
    bench.equal("in-order", "backwards")
    # An llm microbatch whose encoders come later waits for them.
    ran(bench.by("crossed", "crossed", "train.steps=4"))
    bench.equal("in-order", "crossed")


def balance_shows_it_beside_others(bench):
    answer = json.loads(ran([bench.binary, "balance", *bench.words(), "--policy", "snake", "--steps", "1", "--cluster", "H100", "--json"]))
    names = [row["policy"] for row in answer["policies"]]
    expect("snake" in names and "random" in names, f"{names}")
    expect("did you mean `snake`" in bench.said("balance", *bench.words(), "--policy", "snak", "--cluster", "H100"), "the nearest name")


def a_faulty_policy_ends_the_job_by_its_name(bench):
    for policy, fault in FAULTS.items():
        name = f"run-{policy}"
        said = bench.said(*map(str, bench.by(policy, name, "train.microbatches=2")[1:]))
        expect(f"policy '{policy}'" in said and fault in said and "fix:" in said, f"{policy}: {said[-600:]}")
        metrics = bench.folder / name / "metrics.jsonl"
        expect(not metrics.exists() or not read_lines(metrics), f"{policy}: a step was trained")


def a_policy_that_never_returns_ends_the_job_by_its_name(bench):
    """From the first step on; and later, where the job does not begin again from its checkpoint: it would come to the same."""
    said = bench.said(*map(str, bench.by("endless", "endless", "train.stall_timeout_s=6")[1:]), code=1)
    expect("train.stall_timeout_s: `plan` of policy 'endless' has not returned for 6 s" in said and "fix: look for a loop" in said, said[-600:])
    sign, run = bench.folder / "sign", bench.folder / "later"
    os.environ["OWN_SIGN"] = str(sign)
    command = bench.by("endless-later", "later", "train.steps=100000", "train.stall_timeout_s=6", "checkpoint.every_steps=1")
    with Running(command, run) as job:
        job.wait_for(3)
        sign.touch()
        expect(job.process.wait(WITHIN_S) == 1, f"exit {job.process.returncode} instead of 1")
    log = (run / "train.log").read_text()
    expect("`plan` of policy 'endless-later' has not returned for 6 s" in log, log[-600:])


def a_job_without_its_plugin_names_the_policies_there_are(bench):
    bench.names_what_there_is("auto")


def a_new_policy_passes_its_own_test_under_its_own_name(bench):
    bench.new_one_passes("policy", "random")


CASES = [the_example_defers_over_two_stages_and_equals_its_reference,
         the_example_survives_a_killed_node_and_a_restart_on_replicas_with_deferral, the_example_heeds_the_memory_of_the_llm, what_a_policy_decides_is_what_runs,
         balance_shows_it_beside_others, a_faulty_policy_ends_the_job_by_its_name,
         a_policy_that_never_returns_ends_the_job_by_its_name,
         a_job_without_its_plugin_names_the_policies_there_are, a_new_policy_passes_its_own_test_under_its_own_name]


if __name__ == "__main__":
    sys.exit(main(PolicyBench, CASES, *sys.argv[1:]))
