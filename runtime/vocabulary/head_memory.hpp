// What the head of a run has learned of its nodes and their work, and another one would begin
// without: nodes keep their state, and know nothing of this.
//
// Values only.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/vocabulary/learned_costs.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe {

/// A node that has long been under half its usual speed.
struct SlowNodeNote {
  NodeId node;
  double times = 1;         ///< As long for the same work as usual.
  double own_usual = 1;     ///< Measured over profiled time while it was as fast as ever; > 0.
  double beside_usual = 1;  ///< That, over what the middle one of all nodes has; > 0.

  friend bool operator==(const SlowNodeNote&, const SlowNodeNote&) = default;
};

/// How often nodes of a job were lost, joined or left while it trained.
struct NodeChanges {
  std::int64_t count = 0;
  double elapsed_ms = 0;  ///< Of training, in which they did; >= 0.

  friend bool operator==(const NodeChanges&, const NodeChanges&) = default;
};

struct HeadMemory {
  std::int64_t step = 0;  ///< The last one that it comes from.
  LearnedCosts costs;
  std::vector<SlowNodeNote> slow = {};  ///< Ascending by node.
  NodeChanges changes = {};

  friend bool operator==(const HeadMemory&, const HeadMemory&) = default;
};

}  // namespace troupe
