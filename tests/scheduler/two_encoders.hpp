// A model of two encoders of a layer each and an llm of one, whose times are followed by hand.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "scheduler/cost/cost_model.hpp"
#include "scheduler/layout/place_by_hand.hpp"

namespace troupe::scheduler::testing {

inline ModelGraph two_encoders() {
  ModelGraph model;
  model.modules = {{"vision", ModuleKind::encoder, false, {ModuleId{2}}, {{"vision.0", 1}}, 1, 1},
                   {"audio", ModuleKind::encoder, false, {ModuleId{2}}, {{"audio.0", 1}}, 1, 1},
                   {"llm", ModuleKind::llm, false, {}, {{"llm.0", 1}}, 1, 1}};
  return model;
}

/// Replicas of these modules of `two_encoders`, each on a node of its own.
inline ParallelPlan two_encoder_plan(const std::vector<std::string>& replicas) {
  HandLayout layout;
  std::int32_t node = 0;
  for (const std::string& name : replicas)
    layout.replicas.push_back({{name}, {{node++, 0, {{name, {}}}}}});
  return place_by_hand(two_encoders(), layout, {node, 1}).value();
}

/// Forward, input gradients and weight gradients of each layer take a millisecond per row each, and
/// a row keeps `row_bytes`.
inline CostModel two_encoder_costs(double row_bytes) {
  Profile profile{"test", {{"vision.0", "row"}, {"audio.0", "row"}, {"llm.0", "row"}}, {}, {}};
  LayerProfile row{"row", {}, CostOrigin::measured, {}, {}};
  for (const TokenCount rows : {1, 1000}) {
    const auto ms = static_cast<double>(rows);
    row.points.push_back({rows, {ms, ms, ms, row_bytes * ms}, {}});
  }
  profile.profiles.push_back(row);
  return CostModel::create(two_encoders(), profile).value();
}

}  // namespace troupe::scheduler::testing
