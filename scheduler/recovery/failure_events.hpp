// Makes the events of a replay: failures at a fixed interval or at random, or whatever changes a
// count of nodes.
//
// Pure; which node fails comes from a seed and is the same on every machine.

#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/recovery/replay_failures.hpp"

namespace troupe::scheduler {

/// Nodes 0 .. node_count - 1 at first; one of those left fails every `period_ms`, `count` times,
/// and none comes back (Oobleck, dissertation 2.7.2).
/// REQUIRES: 0 <= count <= node_count; period_ms > 0.
std::vector<NodeEvent> periodic_failures(std::int64_t node_count, std::int64_t count,
                                         double period_ms, std::uint64_t seed);

/// The same with random times: the spans between failures are exponential with mean `mean_ms`, as
/// of nodes that fail independently of each other and of the past.
std::vector<NodeEvent> random_failures(std::int64_t node_count, std::int64_t count, double mean_ms,
                                       std::uint64_t seed);

/// How many nodes there were from a time on.
struct NodeCount {
  double time_ms = 0;
  std::int64_t nodes = 0;
};

/// Events that lead from each count to the next; all nodes of the first count are there at time 0
/// under the ids 0, 1, ... Nodes that come have new ids; which ones leave is drawn from the seed.
/// REQUIRES: ascending times; counts >= 0.
std::vector<NodeEvent> events_of_counts(const std::vector<NodeCount>& counts, std::uint64_t seed);

/// The same where a node that comes takes `start_ms` (>= 0) before it can join: its process, its
/// data, its connections. One that goes before that never joined. The last events may be later than
/// they were.
std::vector<NodeEvent> after_start(const std::vector<NodeEvent>& events, double start_ms);

/// A node's way into a job: it is welcomed, opens its data, and then is ready, unless it goes
/// first.
struct NodeArrival {
  double welcomed_ms = 0;
  double until_ms = 0;   ///< It is ready, or gone; >= `welcomed_ms`.
  bool is_ready = true;  ///< Then; else it is gone.

  friend bool operator==(const NodeArrival&, const NodeArrival&) = default;
};

/// The ways of nodes that come by these events, as `after_start` has them join: on their way as
/// soon as they start. And of `nodes`, which are ready at time 0 and have taken as long. Sorted by
/// `until_ms`.
std::vector<NodeArrival> arrivals_of(const RankList& nodes, const std::vector<NodeEvent>& events,
                                     double start_ms);

}  // namespace troupe::scheduler
