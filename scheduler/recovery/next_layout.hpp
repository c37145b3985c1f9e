// What a running job does when the nodes that are there change: the layout that it goes on with,
// and how its state gets there.
//
// Pure; thread-safe; the same answer on every node. The supervisor of a job asks it, and so does a
// replay of failures.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"
#include "scheduler/state/standby_holders.hpp"
#include "scheduler/state/state_moves.hpp"

namespace troupe::scheduler {

/// A job whose nodes change, and where its state lies. What it refers to outlives the calls.
struct ChangingJob {
  const ParallelPlan& plan;  ///< That trains, or trained; without what warms up.
  ClusterShape cluster;      ///< All places for nodes.
  const TemplateSet& templates;
  const std::vector<ParameterInfo>& parameters;
  std::int64_t global_batch = 1;
  Tolerance tolerance = {};
  std::int32_t spares = 0;        ///< Nodes that are kept without stages, and stand by.
  std::set<NodeId> working = {};  ///< Of those there are, who has work or stands by.
  const StatePlacement& left;  ///< Where state lies without lost nodes; empty: comes from the seed.
  double network_bytes_per_ms = 0;  ///< Between nodes; 0: not known.
  double step_ms = 0;               ///< What the last step took; 0: there was none.
  double quiet_ms = 0;              ///< Until nodes change again (`expected_quiet_ms`).
  /// Whether a layout fits into memory and can be run. Never empty.
  std::function<Status(const ParallelPlan&)> fits = {};
  /// Whether what comes fits beside the state of the present layout, which is there until the new
  /// one is up, also where nodes were lost. Never empty.
  std::function<Status(const std::map<DeviceSlot, Bytes>& arriving)> fits_beside = {};
  /// Wants a layout whatever stays as it is (`RelayoutRequest::looks_further`).
  bool looks_further = false;
};

struct NextLayout {
  ParallelPlan plan;
  std::set<NodeId> idle;  ///< Nodes that are there, have no stage and stand by for nothing.
  StateMoves moves;
  StatePlacement want;  ///< Where state lies once it has moved.
  /// Why this one, where there were several, and why others cannot be; clauses.
  std::string why;
  /// Whether there is room for what comes beside the present layout, or what is in its way.
  Status room = Done{};
  /// Spare nodes that stand by for less than everything, because nobody waited for their copies.
  std::set<NodeId> unfilled = {};
};

/// Of `relayouts` on these nodes, without stages on those that are kept spare, the one that fits,
/// also beside the present one if any does, and that is predicted to lose the fewest samples until
/// nodes change again; the first of equals, or where nothing is known of the network. What does not
/// fit with all its copies goes on with fewer.
///
/// Spare nodes stand by for what they have room for, and where that does not fit for nothing.
/// Nobody waits for that: where nodes leave they keep what they keep.
///
/// Layouts are weighed by what their moves come to; moves of the chosen one alone are planned.
///
/// Errors: infeasible: no layout works on these nodes or none fits; as `plan_state_moves`.
Result<NextLayout> next_layout(const ChangingJob& job, const std::set<NodeId>& nodes);

/// Samples a millisecond of a layout, by what the last step took and what the templates say of this
/// layout's layers beside the one that trained; 0: one of these is not known.
double samples_per_ms(const ChangingJob& job, const ParallelPlan& plan);

/// `40 s`, `52 min`: until nodes change again.
std::string quiet_text(double ms);

/// Nothing lies on this node any more.
void drop_holders(StatePlacement& placement, NodeId lost);

/// For how long all would wait for state to move: what the busiest device sends or receives between
/// nodes. REQUIRES: network_bytes_per_ms > 0.
double copy_ms(const StateMoves& moves, Dtype dtype, double network_bytes_per_ms);

}  // namespace troupe::scheduler
