#include "scheduler/simulate/sum_choice.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "runtime/vocabulary/gradient_sum.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::scheduler {

namespace {

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string ms_text(double ms) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g ms", ms);
  return text.data();
}

ParallelPlan with_sums(ParallelPlan plan, SumOrder sums) {
  plan.model.sums = sums;
  complete(plan);
  return plan;
}

/// A link of messages that begin and end in host memory.
LinkSpeed by_host(const LinkSpeed& link, const LinkSpeed& host) {
  const auto per_byte = [](const LinkSpeed& speed) {
    return speed.gigabytes_per_s > 0 ? 1 / speed.gigabytes_per_s : 0;
  };
  const double slowness = per_byte(link) + 2 * per_byte(host);
  return {link.latency_ms + 2 * host.latency_ms, slowness > 0 ? 1 / slowness : 0};
}

bool is_of_sum(ActionKind kind) {
  return std::ranges::find(kSumActions, kind) != kSumActions.end();
}

/// When the last sum of a step has ended that does nothing else.
Result<double> sums_ms(const ParallelPlan& plan, const SimulationCosts& costs) {
  IterationInput input;
  input.microbatches = assign_by_count(plan, 0, 1);
  const auto iteration = plan_iteration(plan, std::move(input));
  if (!iteration.ok()) return iteration.error();
  SimulationOptions timed;
  timed.record_timeline = true;
  const auto step = simulate(plan, iteration.value(), costs, timed);
  if (!step.ok()) return step.error();
  double last_ms = 0;
  for (const SimulatedEvent& event : step.value().events) {
    const auto& list = iteration.value().actions[event.device.index()];
    if (is_of_sum(list[static_cast<std::size_t>(event.index)].kind))
      last_ms = std::max(last_ms, event.end_ms);
  }
  return last_ms;
}

}  // namespace

std::string why_no_calls(const CallFacts& facts, const std::string& key) {
  if (!facts.has_streams)
    return "NCCL adds up in the memory of GPUs, and the devices are " + facts.device;
  if (!facts.why_no_library.empty()) return facts.why_no_library;
  if (facts.nodes_elsewhere > 0)
    return "whether all nodes have NCCL is not known before they join (" +
           counted(facts.nodes_elsewhere, "node") + " of other machines; where they have: " + key +
           " = \"nccl\")";
  if (facts.devices > 0 && facts.devices_there == 0) return "this machine has no " + facts.device;
  if (facts.devices > facts.devices_there)
    return counted(facts.devices, "device") + " of the job would share " +
           std::to_string(facts.devices_there) +
           " of this machine, and NCCL takes no two of them " + "on one GPU";
  return "";
}

Result<SumChoice> choose_sums(const CallFacts& facts, const ParallelPlan& plan, SumOrder calls,
                              const PredictionOptions& prediction) {
  if (auto why = why_no_calls(facts); !why.empty()) return SumChoice{false, std::move(why)};
  const ParallelPlan by_calls = with_sums(plan, calls);
  const bool some_call =
      std::any_of(by_calls.groups.begin(), by_calls.groups.end(),
                  [](const ParameterGroup& group) { return is_by_nccl(group.order); });
  if (!some_call) return SumChoice{false, "no layer is on several devices, whole on each of them"};
  SimulationCosts costs = link_and_sum_costs(prediction);
  const auto called = sums_ms(by_calls, costs);
  if (!called.ok()) return called.error();
  if (facts.over_host)
    for (LinkSpeed* link : {&costs.node, &costs.network})
      *link = by_host(*link, prediction.speeds.host);
  const auto sent = sums_ms(with_sums(plan, SumOrder::chain), costs);
  if (!sent.ok()) return sent.error();
  return SumChoice{called.value() <= sent.value(),
                   "the sums of a step take " + ms_text(called.value()) + " by NCCL and " +
                       ms_text(sent.value()) + " by messages, as predicted"};
}

}  // namespace troupe::scheduler
