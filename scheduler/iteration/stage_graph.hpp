// Who feeds whom: modules, stages of a pipeline, and who shares parameters.
//
// Pure. Derived facts about a `ModelGraph` and its stages that several planners need.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
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

/// Edges between these stages, sorted. An edge that joins two modules is listed with the module
/// that makes the rows. REQUIRES: each layer is in one run at most; rows into and out of layers
/// that are in none are left out.
std::vector<StageEdge> stage_edges(const ModelGraph& model, std::span<const Stage> stages);

/// Stages whose rows go from one to the other: inside a replica, or from one to a replica of the
/// next module's group in the same pipeline, if a sample is in both.
struct PlanEdge {
  StageId from;
  StageId to;

  friend auto operator<=>(const PlanEdge&, const PlanEdge&) = default;
};

/// All of a pipeline, sorted, each once.
std::vector<PlanEdge> pipeline_edges(const ParallelPlan& plan, PipelineId pipeline);

/// The stage of a replica that has a layer of it. Errors: none; invalid where the layer is not the
/// replica's.
StageId stage_with(const ParallelPlan& plan, ReplicaId replica, LayerId layer);

/// What a module group is called: its encoders, `vision+audio`, or its only module.
std::string group_name(const ModelGraph& model, const std::vector<ModuleId>& modules);

/// The groups of a layout in which every pipeline has a complete model: all encoders with their
/// projectors, if there are any, and the llm.
std::vector<ModuleGroup> encoders_and_llm(const ModelGraph& model);

/// Modules before the llm that are joined with each other, as an encoder with its projector: the
/// smallest groups that can have replicas of their own. In model order.
std::vector<std::vector<ModuleId>> joined_encoders(const ModelGraph& model);

/// Indices of the stages of one pipeline in topological order, independent ones in the order given.
/// Stages on or behind a circle are left out. REQUIRES: as `stage_edges`.
std::vector<std::size_t> topological_order(const ModelGraph& model, std::span<const Stage> stages);

/// Who holds which trainable parameters: `ParallelPlan::groups` for its stages and standbys. In
/// model order, a tied parameter right after its first layer's own group.
std::vector<ParameterGroup> parameter_groups(const ParallelPlan& plan);

/// Who runs whose list: `ParallelPlan::leads` for its stages and standbys. Devices are led by the
/// first one that has the same stages; a standby holder has steps of its own, hence its own list.
std::vector<DeviceId> list_leads(const ParallelPlan& plan);

/// Per module the degrees of its first stage: where replicas differ, those that samples are weighed
/// by. REQUIRES: every module has a stage.
std::vector<Parallelism> module_degrees(const ParallelPlan& plan);

/// Fills in what follows from stages and standbys: groups and leads.
void complete(ParallelPlan& plan);

/// A device that is in two rows of grids (`Stage::row`) which use the same parameters and are not
/// the same row, so that it is no holder of theirs that counts once; none where all is well.
std::optional<DeviceId> crossed_rows(const ParallelPlan& plan);

}  // namespace troupe::scheduler
