// Sums that all holders of a group call NCCL for together: their lists, what the checker proves of
// them, and their time on paper.

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/vocabulary/gradient_sum.hpp"
#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::random_case;
using testing::text_llm;
using testing::text_of;
using enum ActionKind;

/// Copies of a model, each on a node of its own, whose job wants sums by NCCL.
ParallelPlan copies(ModelGraph model, int count, SumOrder sums) {
  model.sums = sums;
  HandLayout layout;
  for (int node = 0; node < count; ++node) layout.pipelines.push_back({{node, 0, {{"llm", {}}}}});
  return place_by_hand(model, layout, {count, 1}).value();
}

IterationPlan without_samples(const ParallelPlan& plan) {
  IterationInput input;
  input.microbatches = assign_by_count(plan, 0, 1);
  return plan_iteration(plan, input).value();
}

/// The groups that a device enters calls for, in its order.
std::vector<GroupId> calls_of(const ParallelPlan& plan, const std::vector<Action>& list) {
  std::vector<GroupId> groups;
  for (const Action& action : list)
    if (action.kind == reduce_send && is_by_nccl(plan.groups[action.group.index()].order))
      groups.push_back(action.group);
  return groups;
}

/// Whether a device computes, or moves rows, when it has entered a call with holders on standby.
bool enters_amid_compute(const ParallelPlan& plan, const std::vector<Action>& list) {
  bool has_entered = false;
  for (const Action& action : list) {
    if (has_entered && (action.microbatch.valid() || action.message.valid())) return true;
    if (action.kind != reduce_send) continue;
    const ParameterGroup& group = plan.groups[action.group.index()];
    has_entered = has_entered || (is_by_nccl(group.order) && group.standbys > 0);
  }
  return false;
}

TEST_CASE("every holder enters a call to NCCL and waits for its end", "[scheduler]") {
  for (const SumOrder sums : {SumOrder::nccl_chain, SumOrder::nccl}) {
    const auto plan = copies(text_llm(1), 3, sums);
    REQUIRE(plan.groups.at(0).order == sums);
    const auto iteration = without_samples(plan);
    INFO(text_of(check(plan, iteration)));
    CHECK(check(plan, iteration).empty());
    for (const auto& list : iteration.actions) {
      std::vector<ActionKind> kinds;
      for (const Action& action : list) kinds.push_back(action.kind);
      CHECK(kinds == std::vector{reduce_send, reduce_receive, commit, optimizer_step});
    }
  }
}

TEST_CASE("who is on standby enters calls behind its own compute", "[scheduler]") {
  // One pipeline of two layers, each of which the other node keeps too.
  auto model = text_llm(2);
  model.sums = SumOrder::nccl;
  const HandLayout layout{
      {{{0, 0, {{"llm", LayerRange{0, 1}}}}, {1, 0, {{"llm", LayerRange{1, 2}}}}}}};
  const auto plan = place_by_hand(model, layout, {2, 1}, IdleDevices::left_out, {1, Dtype::fp32});
  REQUIRE(plan.ok());
  IterationInput input;
  for (int s = 0; s < 4; ++s) input.samples.push_back(testing::sample(0, 0));
  input.microbatches = assign_by_count(plan.value(), 4, 4);
  const auto iteration = plan_iteration(plan.value(), input);
  REQUIRE(iteration.ok());
  CHECK(check(plan.value(), iteration.value()).empty());
  for (const auto& list : iteration.value().actions) {
    CHECK(calls_of(plan.value(), list) == std::vector<GroupId>{GroupId{0}, GroupId{1}});
    CHECK_FALSE(enters_amid_compute(plan.value(), list));
  }
}

TEST_CASE("a group that one device holds needs no call", "[scheduler]") {
  CHECK(copies(text_llm(1), 1, SumOrder::nccl).groups.at(0).order == SumOrder::chain);
}

TEST_CASE("a call's time is that of its bytes and of adding a share", "[scheduler]") {
  // Two copies on two nodes, one layer of 10 elements. Each gives the other half of its gradients
  // and half of the sum: what one holder's part takes, 3 ms. Half of them are added once: 1 of 2.
  const auto plan = copies(text_llm(1), 2, SumOrder::nccl_chain);
  SimulationCosts costs;
  costs.network = {0, 4e-5 / 3};
  costs.reduce_gigabytes_per_s = 2e-5;
  costs.bytes_per_element = 2;  // Of rows, not of gradients.
  CHECK(simulate(plan, without_samples(plan), costs).value().step_ms == Approx(4));
}

TEST_CASE("a call in NCCL's own order takes as long as its ring, or its tree", "[scheduler]") {
  // Four copies on four nodes, one layer of 10 elements of 4 bytes, a byte a millisecond. Ring: 15
  // elements in six steps; tree: 20 in four. Commit waits for two latencies more.
  const auto plan = copies(text_llm(1), 4, SumOrder::nccl);
  SimulationCosts costs;
  costs.network = {1, 1e-6};
  costs.bytes_per_element = 2;  // Of rows, not of gradients.
  CHECK(simulate(plan, without_samples(plan), costs).value().step_ms == Approx(60 + 6 + 2));
  costs.network.latency_ms = 20;
  CHECK(simulate(plan, without_samples(plan), costs).value().step_ms == Approx(80 + 80 + 40));
  // In rank order each gives three others a part, and its sum: 15 elements in two steps.
  const auto chain = copies(text_llm(1), 4, SumOrder::nccl_chain);
  CHECK(simulate(chain, without_samples(chain), costs).value().step_ms == Approx(60 + 40 + 40));
}

TEST_CASE("calls to NCCL are sound over random layouts, and entered in one order",
          "[scheduler][property]") {
  int several = 0, standbys = 0;
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    auto made = random_case(seed);
    made.plan.model.sums = SumOrder::nccl;
    complete(made.plan);
    const auto planned = plan_iteration(made.plan, made.input);
    REQUIRE(planned.ok());
    const auto faults = check(made.plan, planned.value());
    INFO(text_of(faults));
    CHECK(faults.empty());
    CHECK(simulate(made.plan, planned.value(), {}).ok());
    for (const ParameterGroup& group : made.plan.groups)
      if (is_by_nccl(group.order) && group.standbys > 0) ++standbys;
    for (const auto& list : planned.value().actions) {
      if (calls_of(made.plan, list).size() > 1) ++several;
      CHECK_FALSE(enters_amid_compute(made.plan, list));
    }
  }
  CHECK(several > 200);
  CHECK(standbys > 50);
}

TEST_CASE("calls that two devices enter in different orders are a deadlock", "[scheduler]") {
  const auto plan = copies(text_llm(2), 3, SumOrder::nccl);
  const auto sound = without_samples(plan);
  REQUIRE(check(plan, sound).empty());
  for (std::size_t d = 0; d < sound.actions.size(); ++d) {
    auto crossed = sound;
    auto& list = crossed.actions[d];
    REQUIRE(calls_of(plan, list).size() == 2);
    std::swap(list[0], list[1]);  // They stand first, and need nothing.
    REQUIRE(calls_of(plan, list) != calls_of(plan, sound.actions[d]));
    const auto faults = check(plan, crossed);
    INFO(text_of(faults));
    REQUIRE_FALSE(faults.empty());
    for (const Fault& fault : faults) {
      CHECK(fault.kind == FaultKind::deadlock);
      CHECK(fault.why.find("in another order") != std::string::npos);
    }
  }
}

TEST_CASE("a holder that leaves its call, or its end, out is found", "[scheduler]") {
  const auto plan = copies(text_llm(1), 2, SumOrder::nccl_chain);
  const auto sound = without_samples(plan);
  for (const ActionKind kind : {reduce_send, reduce_receive}) {
    auto without = sound;
    std::erase_if(without.actions[1], [&](const Action& action) { return action.kind == kind; });
    const auto faults = check(plan, without);
    CHECK(std::any_of(faults.begin(), faults.end(), [](const Fault& fault) {
      return fault.kind == FaultKind::missing && fault.device == DeviceId{1};
    }));
  }
  auto behind = sound;
  std::swap(behind.actions[1][0], behind.actions[1][1]);
  const auto faults = check(plan, behind);
  CHECK(std::any_of(faults.begin(), faults.end(), [](const Fault& fault) {
    return fault.kind == FaultKind::dependency && fault.device == DeviceId{1};
  }));
}

}  // namespace
}  // namespace troupe::scheduler
