// Layouts and work of phases, for tests of how they are shared out.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/iteration/phase_exchange.hpp"
#include "engine/layout/choose_layout.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {

/// Vision encoders and llms, so many of each, as replicas of one pipeline.
inline ParallelPlan replicas(int encoders, int llms) {
  auto job = tiny_job();
  job.cluster.nodes = job.cluster.local_nodes = encoders + llms;
  job.parallel.layout = {};
  for (int node = 0; node < encoders + llms; ++node) {
    const std::string module = node < encoders ? "vision" : "llm";
    job.parallel.layout.replicas.push_back({{module}, {{node, 0, {{module, {}}}}}});
  }
  return make_parallel_plan(prepare(job).value()).value();
}

/// Two nodes, each with an encoder and an llm.
inline ParallelPlan colocated() {
  auto job = tiny_job();
  job.cluster.nodes = job.cluster.local_nodes = 2;
  job.parallel.layout = {};
  for (const std::string module : {"vision", "llm"})
    for (int node = 0; node < 2; ++node)
      job.parallel.layout.replicas.push_back({{module}, {{node, 0, {{module, {}}}}}});
  return make_parallel_plan(prepare(job).value()).value();
}

inline Microbatch one_part(std::vector<std::int32_t> samples) { return {{{std::move(samples)}}}; }

inline PhaseWork work_of(std::vector<double> samples, std::size_t replicas) {
  const auto rows = samples;
  return {std::move(samples), rows, std::vector<double>(replicas, 1)};
}

/// A phase whose memory nobody bounds: there always is a deal.
inline std::vector<MicrobatchList> spread_phase(const ParallelPlan& plan, ModuleGroupId group,
                                                std::span<const LlmCut> cuts, const PhaseWork& work,
                                                SpreadRules rules) {
  return spread_within_rooms(plan, group, cuts, work, rules).value();
}

}  // namespace troupe::engine
