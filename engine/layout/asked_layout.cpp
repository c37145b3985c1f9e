#include "engine/layout/asked_layout.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "balancer/microbatches/policies.hpp"
#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
#include "engine/iteration/plan_guard.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/setup/source_nodes.hpp"
#include "scheduler/iteration/deliveries.hpp"

namespace troupe::engine {

namespace {

/// Nodes, and of those without a stage in this layout the last `count`, which are not among them.
std::pair<std::set<NodeId>, std::set<NodeId>> without_spares(const HandLayout& layout,
                                                             std::set<NodeId> nodes,
                                                             std::int32_t count) {
  std::set<NodeId> spares = nodes;
  for (const HandStage* stage : layout.all_stages()) spares.erase(NodeId{stage->node});
  while (std::ssize(spares) > count) spares.erase(spares.begin());
  for (const NodeId node : spares) nodes.erase(node);
  return {std::move(nodes), std::move(spares)};
}

}  // namespace

Result<scheduler::Relayout> plan_asked_layout(const JobSetup& setup, const HandLayout& layout,
                                              const ParallelPlan& present,
                                              const std::set<NodeId>& nodes,
                                              const DeviceRooms& rooms) {
  const job::Job& job = setup.job;
  const scheduler::TemplateSet none;
  const auto [workers, spares] = without_spares(layout, nodes, job.cluster.spares);
  auto made = scheduler::relayout_by_hand({present,
                                           {job.cluster.nodes, job.cluster.devices_per_node},
                                           none,
                                           job.train.global_batch_size,
                                           tolerance_of(job, rooms),
                                           workers,
                                           spares},
                                          layout);
  if (!made.ok()) return made;
  const std::set<NodeId> used = made.value().plan.nodes();
  std::set_difference(spares.begin(), spares.end(), used.begin(), used.end(),
                      std::inserter(made.value().idle, made.value().idle.end()));
  if (auto runs = check_executable(made.value().plan); !runs.ok()) return runs.error();
  if (auto seen = check_sources(job, made.value().plan.nodes()); !seen.ok()) return seen.error();
  auto fits = check_state_memory(job, made.value().plan, rooms);
  if (!fits.ok()) return std::move(fits).error();
  return made;
}

namespace {

Status rehearse_by(const std::string& policy, const JobSetup& setup, const ParallelPlan& plan,
                   std::vector<SampleShape> samples) {
  auto options = microbatching_options(setup);
  options.policy = policy;
  const Microbatching microbatching(plan, std::move(options), setup.costs);
  auto dealt = microbatching.deal({1, 0, scheduler::of_no_layout(std::move(samples))},
                                  PipelineSpeeds(plan.pipelines.size()));
  if (!dealt.ok()) return std::move(dealt).error();
  auto planned = microbatching.plan(std::move(dealt).value());
  if (!planned.ok()) return std::move(planned).error();
  return PlanGuard(plan).pass(planned.value().iteration, 0);
}

/// How samples are cut is no matter of the layout, and searches take time.
constexpr const char* kPlainPolicy = "in-order";

}  // namespace

Status rehearse(const JobSetup& setup, const ParallelPlan& plan, std::vector<SampleShape> samples) {
  return rehearse_by(kPlainPolicy, setup, plan, std::move(samples));
}

Status rehearse_as_trained(const JobSetup& setup, const ParallelPlan& plan,
                           const std::vector<SampleShape>& samples) {
  Status plain = rehearse(setup, plan, samples);
  if (plain.ok() || plain.error().code != Errc::infeasible) return plain;
  const std::vector<std::string> known = balancer::policy_names();
  const std::string& own = setup.job.balancer.policy;
  if (own == kPlainPolicy || std::ranges::find(known, own) == known.end()) return plain;
  return rehearse_by(own, setup, plan, samples);
}

}  // namespace troupe::engine
