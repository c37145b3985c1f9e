// Whether lists of actions that wait for each other can run to their end.
//
// Pure. Knows nothing of what the actions are.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::scheduler {

/// Lists that each run in order, and waits between their nodes. Nodes count from 0; a node in no
/// list runs as soon as what it needs is done.
struct WaitGraph {
  std::int32_t nodes = 0;
  std::vector<std::vector<std::int32_t>> lists;
  std::vector<std::pair<std::int32_t, std::int32_t>> needs;  ///< (node, what it needs).
};

/// What hinders it.
struct WaitFaults {
  /// (node, what it needs): both in one list, the wrong way round. Sorted.
  std::vector<std::pair<std::int32_t, std::int32_t>> misplaced;
  /// (head of a list that never runs, something it needs that never runs), by list, once the
  /// misplaced waits are left out.
  std::vector<std::pair<std::int32_t, std::int32_t>> stuck;
};

/// Runs the lists. REQUIRES: each node stands in at most one list, once.
/// Cost: O(nodes + needs).
WaitFaults find_wait_faults(const WaitGraph& graph);

}  // namespace troupe::scheduler
