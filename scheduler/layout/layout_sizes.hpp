// How many devices one pipeline may have, given the devices of its stages. Helper of
// auto_layout.cpp.
//
// Pure. A stage never leaves a node, so a node of six devices has room for one stage of four.

#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/layout_shapes.hpp"

namespace troupe::scheduler {

class PipelineSizes {
 public:
  /// `widths`: devices of a stage on either side; equal ones without encoders.
  /// REQUIRES: no stage wider than a node.
  PipelineSizes(const AutoLayoutRequest& request, StageWidths widths);

  /// Numbers of pipelines worth a look, ascending: all of a few, else those that divide the devices
  /// or nodes. Empty where pins ask for more than there is room for.
  std::vector<std::int32_t> pipeline_counts() const;

  /// Devices of each pipeline, larger ones first: equal shares. Of a cluster that is only planned
  /// for what no stage can use is left out. Empty if a share holds no pipeline.
  std::vector<std::int32_t> shares(std::int32_t pipelines) const;

  /// Sizes below `share` that leave devices idle: a few stages, then powers of two. None where no
  /// device may be idle.
  std::vector<std::int32_t> smaller(std::int32_t share) const;

  /// The most devices of a pipeline that has a layer for each of them.
  std::int64_t most() const;

  /// The fewest devices of a pipeline.
  std::int32_t least() const { return equal_ ? widths_.llm : widths_.encoder + widths_.llm; }

 private:
  /// The most of `devices` that stages can use, `llm_stages` of them at most the llm's.
  std::int32_t usable(std::int32_t devices, std::int64_t llm_stages) const;

  const AutoLayoutRequest& request_;
  StageWidths widths_;
  bool equal_ = false;
  std::int32_t encoder_layers_ = 0, llm_layers_ = 0;
};

/// Pipelines that `dp` pins of equal number ask for; 0: none does.
std::int32_t pinned_pipelines(const AutoLayoutRequest& request);

}  // namespace troupe::scheduler
