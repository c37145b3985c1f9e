// The relaxation behind `plan_copies`: can the bytes of all copies be sent within a limit per
// sender, if copies may be split among senders? Internal to scheduler/.

#pragma once

#include <cstdint>
#include <vector>

namespace troupe::scheduler {

/// Copies of one item with the senders that may make them, as indices 0 .. sender_count - 1.
struct CopyJob {
  std::int64_t bytes = 0;             ///< > 0.
  std::int64_t count = 0;             ///< Copies wanted; >= 1.
  std::vector<std::int32_t> senders;  ///< Ascending, not empty.
};

/// Bytes per job and sender (parallel to `CopyJob::senders`) of a flow that keeps every sender
/// within `limit` rounded down to the greatest common divisor of all sizes, and each job's share of
/// a sender to whole copies within `limit`. Empty if there is none, which proves that no plan keeps
/// the limit. With equal sizes the flow consists of whole copies.
/// Cost: Dinic's algorithm on a graph of jobs x senders edges.
std::vector<std::vector<std::int64_t>> split_flow(const std::vector<CopyJob>& jobs,
                                                  std::int32_t sender_count, std::int64_t limit);

}  // namespace troupe::scheduler
