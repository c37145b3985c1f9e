// One table of a layout by hand, a pipeline or a replica, turned into stages. Private to
// place_by_hand.cpp.
//
// Pure.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/hand_layout.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/layout/place_by_hand.hpp"

namespace troupe::scheduler {

/// One table of the layout: a pipeline, or a replica of a group.
struct Table {
  std::string key;   ///< `parallel.pipelines[0]`.
  std::string name;  ///< `pipeline 0`.
  const std::vector<HandStage>& entries;
  std::vector<ModuleId> modules;  ///< That it must hold, and no others; ascending.

  std::string stage(std::size_t index) const {
    return key + ".stages[" + std::to_string(index) + "]";
  }
  bool holds(ModuleId module) const {
    return std::binary_search(modules.begin(), modules.end(), module);
  }
};

/// Resolves one table into stages in topological order, whose replicas are still to be named.
/// Errors: as `place_by_hand`, of this table.
Result<std::vector<Stage>> place_table(const ModelGraph& model, const ClusterShape& cluster,
                                       const Table& table);

/// What is wrong with a layout: invalid_argument.
Error wrong_layout(std::string where, std::string message, std::string fix);

/// `1 node`, `2 nodes`.
std::string counted(std::int64_t count, const std::string& noun);

}  // namespace troupe::scheduler
