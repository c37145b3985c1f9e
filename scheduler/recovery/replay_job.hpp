// A replay of failures of a job as its supervisor would see it through: the layouts, copies and
// warm-ups are those of the functions that a running job asks (`next_layout`, `next_warm_up`).
//
// Pure, where the functions of the request are; thread-safe.
//
// What happens, and where the supervisor does the same (actors/supervisor):
// - Nodes are lost: the unfinished step is lost; then the phases of `RecoveryCosts::loss`, copies
//   as long as the busiest device sends or receives, and the first step of the new layout.
// - Nodes are lost while another is on its way: where that is predicted to lose fewer samples,
// nobody
//   trains until it is there (`wait_choice`). Such a wait is over as a running job's is: somebody
//   came, the node is gone or takes longer than others did, or `wait_for_nodes_ms` have passed
//   since the loss. Then waiting for the next one is weighed, or the job goes on.
// - A node joins: the step under way ends, and the one that is planned already; no further one is
//   planned. Then its state comes during the next steps, where that pays, each with a turnover
//   before it; else it is copied while all wait. Then the phases of `RecoveryCosts::join`.
// - Something has no holder left, or no layout works: the job begins again from its checkpoint
//   after `restart_ms`, once `nodes_min` nodes are there. It does not wait for more of them.
// - Fewer nodes than `nodes_min`: it trains on, for `wait_for_nodes_ms`; then it saves and stops,
//   until they are there.
// - A change of nodes during a recovery begins it anew.
// It does not know: nodes that leave in order or become slow, loss of the head, layouts that were
// asked for, saves beside training, a step whose COMMIT was known before a loss.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/recovery/failure_events.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"
#include "scheduler/recovery/replay_failures.hpp"
#include "scheduler/state/standby_holders.hpp"

namespace troupe::scheduler {

/// A job on its own nodes.
struct ReplayedJob {
  ParallelPlan plan;     ///< On all its places, as training would begin.
  ClusterShape cluster;  ///< All places for nodes.
  TemplateSet templates;
  std::vector<ParameterInfo> parameters;
  std::int64_t global_batch = 1;
  Tolerance tolerance = {};
  std::int32_t spares = 0;
  std::int64_t nodes_min = 1;       ///< With fewer it waits for others; >= 1.
  double wait_for_nodes_ms = 0;     ///< So long; at most as long for a node on its way.
  double network_bytes_per_ms = 0;  ///< Between nodes; 0: not known, and copies take no time.
  /// What a step takes on a layout, its nodes numbered from 0; asked once for each. Never empty.
  std::function<Result<double>(const ParallelPlan&)> step_ms = {};
  /// Whether a layout can be run, and fits into memory with what comes `beside` it. Never empty.
  std::function<Status(const ParallelPlan&, const std::map<DeviceSlot, Bytes>& beside)> fits = {};
};

struct JobReplayRequest {
  ReplayedJob job;
  RecoveryCosts costs;            ///< `link_bytes_per_ms` is not read.
  RankList nodes;                 ///< At time 0.
  std::vector<NodeEvent> events;  ///< Ascending times.
  double duration_ms = 0;         ///< > 0; events from here on do not happen.
  /// Ways of those that join, which join when they are ready, and of those that go before
  /// (`arrivals_of`); ascending `until_ms`. None: nobody is waited for.
  std::vector<NodeArrival> arrivals = {};
};

/// Plays the events. A node takes the lowest free place. Pipelines of an event's record are those
/// of the layout; where module groups have replicas of their own, all their nodes are one. Idle are
/// nodes without a stage, standby holders too.
///
/// Errors:
/// - invalid_argument: as `check_costs`; a node lost that is not there, joined that is there;
///   events out of order; more nodes at a time than places; more than `kReplayIterationsMax`
///   iterations.
/// - as `step_ms`; as `next_layout`, those that are not infeasible.
Result<ReplayResult> replay_job(const JobReplayRequest& request);

}  // namespace troupe::scheduler
