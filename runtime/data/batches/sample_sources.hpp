// Which nodes see a sample of an epoch's order, where some sources of data are only on some nodes.
//
// Pure, apart from what it keeps; not thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/data/batches/epochs.hpp"
#include "runtime/data/reading/options.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::data {

class SampleSources {
 public:
  /// Every node sees everything.
  SampleSources() = default;
  /// `seen_by`: per source the nodes that see it, ascending; none: all. REQUIRES: the newest
  /// epochs take records of as many sources, unless all nodes see all of them.
  SampleSources(const DataOptions& options, Epochs epochs,
                std::vector<std::vector<NodeId>> seen_by);

  /// Whether every node sees every source.
  bool all_seen() const { return seen_by_.empty(); }

  /// Nodes that see the sample at a place of an epoch's order; none: all. Cost: constant, but for
  /// the first question about an epoch, which is linear in its records. REQUIRES: the place is.
  const std::vector<NodeId>& seen_by(std::int64_t epoch, std::int64_t position) const;

  /// Whether a node sees that sample. Cost and REQUIRES: as `seen_by`.
  bool is_seen_by(NodeId node, std::int64_t epoch, std::int64_t position) const;

 private:
  DataOptions options_;
  Epochs epochs_;
  std::vector<std::vector<NodeId>> seen_by_;  ///< Empty: all nodes see all sources.
  mutable std::map<std::int64_t, std::vector<std::int64_t>> orders_;  ///< Of the last epochs asked.
};

}  // namespace troupe::data
