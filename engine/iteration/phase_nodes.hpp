// Where rows of a phase begin, end and are wanted, and by whom. Helper of phase_exchange and
// phase_figures.

#pragma once

#include <algorithm>

#include "runtime/vocabulary/index.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// The node that a replica's first stage is on, which reads content; the one of its last, which
/// hands rows on.
inline NodeId begun_on(const ParallelPlan& plan, ReplicaId replica) {
  return plan.node_of(plan.at(replica).stages.front());
}
inline NodeId made_on(const ParallelPlan& plan, ReplicaId replica) {
  return plan.node_of(plan.at(replica).stages.back());
}

/// The llm's stage that takes them, and its node.
inline StageId wanted_by(const ParallelPlan& plan, ModuleGroupId group, ReplicaId llm) {
  const auto& modules = plan.module_groups[group.index()].modules;
  const bool is_teacher = std::ranges::all_of(
      modules, [&](ModuleId module) { return plan.model.at(module).kind == ModuleKind::teacher; });
  const auto& stages = plan.at(llm).stages;
  return is_teacher ? stages.back() : stages.front();
}
inline NodeId wanted_on(const ParallelPlan& plan, ModuleGroupId group, ReplicaId llm) {
  return plan.node_of(wanted_by(plan, group, llm));
}

}  // namespace troupe::engine
