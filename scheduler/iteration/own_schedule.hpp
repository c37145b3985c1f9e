// Runs a schedule of a user's own, and holds what it returns against the rules.
//
// Pure, as far as the user's function is. Helper of schedules.cpp.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/iteration/schedules.hpp"

namespace troupe::scheduler {

/// As `make_schedule`. Cost: that of the schedule and O(tasks log tasks).
Result<Timeline> run_own(const TaskGraph& graph, const OwnSchedule& schedule,
                         const std::vector<std::int32_t>& max_in_flight, const RefuseBound& refuse);

}  // namespace troupe::scheduler
