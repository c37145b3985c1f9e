// Between which devices of a layout rows, and their gradients, may go by calls to NCCL.
//
// Pure. Both ends of a message read it off the same plan.

#pragma once

#include <compare>
#include <vector>

#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::scheduler {

/// A device's way to another one. Each direction has a communicator of its own, so that who is late
/// in one holds nobody up in another.
struct RowLane {
  DeviceId from;
  DeviceId to;  ///< Differs from `from`.

  friend auto operator<=>(const RowLane&, const RowLane&) = default;
};

/// Both ways between devices whose stages feed each other inside a pipeline (`pipeline_edges`):
/// gradients go back. Sorted, each once: a lane's place is the same number at all devices. Rows
/// that another pipeline encodes (`balancer.exchange`) have none: there would be one for each pair.
std::vector<RowLane> row_lanes(const ParallelPlan& plan);

}  // namespace troupe::scheduler
