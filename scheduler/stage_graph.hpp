// Who feeds whom: modules, stages of a pipeline, and who shares parameters.
//
// Pure. Derived facts about a `ModelGraph` and its stages that several planners need.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::scheduler {

/// Modules whose output `module` takes, in module order.
std::vector<ModuleId> predecessors(const ModelGraph& model, ModuleId module);

/// Rows of `module` go from one stage to another.
struct StageEdge {
  std::size_t from = 0;     ///< Index into the stages given.
  std::size_t to = 0;       ///< Differs from `from`.
  ModuleId module;          ///< Whose rows.
  bool boundary = false;    ///< Output rows for the next module; else hidden rows.
  std::int32_t layers = 0;  ///< Rows leave after this many layers of the module.

  friend auto operator<=>(const StageEdge&, const StageEdge&) = default;
};

/// Edges between the stages of one pipeline, sorted. An edge that joins two modules is listed with
/// the module that makes the rows. REQUIRES: each layer of each module is in exactly one run.
std::vector<StageEdge> stage_edges(const ModelGraph& model, std::span<const Stage> stages);

/// Indices of the stages of one pipeline in topological order, independent ones in the order given.
/// Stages on or behind a circle are left out. REQUIRES: as `stage_edges`.
std::vector<std::size_t> topological_order(const ModelGraph& model, std::span<const Stage> stages);

/// Who holds which trainable parameters: `ParallelPlan::groups` for its stages. In model order, a
/// tied parameter right after its first layer's own group; holders by (pipeline, stage, layer).
std::vector<ParameterGroup> parameter_groups(const ParallelPlan& plan);

/// Stages that hold a group, each once, in holder order; the first one reduces.
std::vector<StageId> holding_stages(const ParameterGroup& group);

}  // namespace troupe::scheduler
