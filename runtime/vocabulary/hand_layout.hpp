// A layout as a user writes it in the job file: which layers of which module run on which device.
//
// Values only, unchecked: `scheduler/place_by_hand.hpp` turns one into a `ParallelPlan` or says
// what is wrong with it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"

namespace troupe {

/// `vision = [0, 4]` or `audio = "all"`.
struct HandRun {
  std::string module;
  std::optional<LayerRange> layers;  ///< None: all layers of the module.

  friend bool operator==(const HandRun&, const HandRun&) = default;
};

/// One entry of `stages`: `{node = 0, device = 1, vision = [0, 4], audio = "all"}`.
struct HandStage {
  std::int32_t node = 0;
  std::int32_t device = 0;  ///< Which of the node's devices.
  std::vector<HandRun> runs;

  friend bool operator==(const HandStage&, const HandStage&) = default;
};

/// `[[parallel.pipelines]]`: per pipeline the list of its stages. Empty: not given.
struct HandLayout {
  std::vector<std::vector<HandStage>> pipelines;

  friend bool operator==(const HandLayout&, const HandLayout&) = default;
};

}  // namespace troupe
