// How fast nodes are beside what plans take them for. Values.

#pragma once

#include <map>

#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// How many times as long as the profile's machine a node takes for the same work, each > 0; those
/// that are not in it take once as long.
using NodeTimes = std::map<NodeId, double>;

inline double times_of(const NodeTimes& times, NodeId node) {
  const auto found = times.find(node);
  return found == times.end() ? 1 : found->second;
}

}  // namespace troupe::engine
