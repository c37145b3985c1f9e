// A job of many nodes with a device each, for the planners' bench: its model and layout, and a
// batch whose room on layouts is looked at as behind a loss.
//
// What needs the engine stays in the source.

#pragma once

#include <cstdint>
#include <memory>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::bench {

inline constexpr std::int32_t kParametersOfLayer = 9;  ///< Of the llm.
inline constexpr std::int64_t kElementsOfParameter = 1 << 20;

/// An llm of so many layers; where asked for, behind a vision encoder of 32 and its projector.
ModelGraph model_of(std::int32_t layers, bool has_encoder);

/// Pipelines of ten nodes each, over which the llm is cut evenly; an encoder is whole on the first.
/// REQUIRES: a multiple of ten.
ParallelPlan plan_of(const ModelGraph& model, std::int32_t nodes);

/// So many uneven samples, and what the layers of a model cost for them.
class BatchOnLayouts {
 public:
  BatchOnLayouts(const ModelGraph& model, std::int32_t samples);
  ~BatchOnLayouts();

  /// As `engine::check_batch_memory`, with a copy of the samples as the supervisor makes it. 4,096
  /// of them have room on layouts of 100 nodes or more.
  Status check(const ParallelPlan& plan) const;

 private:
  struct Batch;

  std::unique_ptr<const Batch> batch_;
};

}  // namespace troupe::bench
