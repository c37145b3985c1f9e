// What of a model's state is in host memory: masters and moments, but for their update; parameters
// of encoders, while the llm computes on their device.
//
// Modules say so (`ModuleSpec::moments_in_host`, `parameters_in_host`); what several of them use,
// and what stages of several compute with, is there where all do.

#pragma once

#include <algorithm>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe {

/// Whether those of a tied parameter are.
inline bool moments_in_host(const ModelGraph& model, const TiedParameter& tied) {
  return std::all_of(tied.layers.begin(), tied.layers.end(),
                     [&](const LayerId& layer) { return model.at(layer.module).moments_in_host; });
}

/// Whether those of a group are. REQUIRES: the plan has it.
inline bool moments_in_host(const ParallelPlan& plan, GroupId group) {
  const auto& uses = plan.groups[group.index()].uses;
  return std::all_of(uses.begin(), uses.end(), [&](const ParameterUse& use) {
    return plan.model.at(use.layer.module).moments_in_host;
  });
}

/// Whether the parameters of a stage are. REQUIRES: the plan has it.
inline bool parameters_in_host(const ParallelPlan& plan, StageId stage) {
  const auto& runs = plan.at(stage).runs;
  return std::all_of(runs.begin(), runs.end(), [&](const LayerRun& run) {
    return plan.model.at(run.module).parameters_in_host;
  });
}

}  // namespace troupe
