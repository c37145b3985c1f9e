// A model of one encoder layer and one llm layer whose times are followed by hand.

#pragma once

#include <string>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/cost/cost_model.hpp"

namespace troupe::scheduler::testing {

inline ModelGraph two_layers() {
  ModelGraph model;
  model.modules = {{"vision", ModuleKind::encoder, false, {ModuleId{1}}, {{"vision.0", 1}}, 1, 1},
                   {"llm", ModuleKind::llm, false, {}, {{"llm.0", 1}}, 1, 1}};
  return model;
}

/// A sample of `two_layers`; one trained token.
inline SampleShape two_layer_sample(std::int32_t encoder_rows, TokenCount llm_tokens) {
  SampleShape shape;
  if (encoder_rows > 0) shape.media = {{ModuleId{0}, {{encoder_rows, encoder_rows, 1, 0, 0, 0}}}};
  shape.llm_tokens = llm_tokens;
  shape.trained_tokens = 1;
  return shape;
}

/// Forward, input gradients and weight gradients of either layer take a millisecond per row each,
/// and `launch_ms` more; a row keeps `row_bytes`.
inline CostModel two_layer_costs(double launch_ms, double row_bytes) {
  Profile profile{"test", {{"vision.0", "vision"}, {"llm.0", "llm"}}, {}, {}};
  for (const std::string kind : {"vision", "llm"}) {
    LayerProfile layer{kind, {}, CostOrigin::measured, {}, {}};
    for (const TokenCount rows : {1, 1000}) {
      const double ms = static_cast<double>(rows) + launch_ms;
      layer.points.push_back({rows, {ms, ms, ms, row_bytes * static_cast<double>(rows)}, {}});
    }
    profile.profiles.push_back(layer);
  }
  return CostModel::create(two_layers(), profile).value();
}

}  // namespace troupe::scheduler::testing
