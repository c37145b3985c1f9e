// Whether all who hold the same parameters have the same after a step, and whom to believe where
// they have not.
//
// A sum that came to all, or an update, went wrong at somebody: more than half of the nodes that
// hold a group and agree to the bit have what the step gives. Of two that differ nobody knows who
// is right. Pure; thread-safe.

#pragma once

#include <optional>
#include <set>
#include <vector>

#include "engine/iteration/reports.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::actors {

/// Holders that differ after a step.
struct Disagreement {
  Error error;  ///< internal: names the first group that differs, the step, and who has what.
  std::set<NodeId> mistrusted;  ///< They differ in some group from more than half of its nodes.
  bool is_open = false;         ///< Of some group no more than half of the nodes agree.
};

/// What the hashes of a step's devices say; none: all holders of each group have the same. Several
/// devices of a node count once; a node whose own devices differ agrees with nobody.
std::optional<Disagreement> find_disagreement(const ParallelPlan& plan,
                                              const std::vector<engine::DeviceReport>& reports);

}  // namespace troupe::actors
