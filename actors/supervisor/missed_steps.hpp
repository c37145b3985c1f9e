// Records of steps that a head finished and did not come to write, from what nodes kept. Pure.

#pragma once

#include <cstdint>
#include <vector>

#include "actors/head/recorder_actor.hpp"
#include "actors/supervisor/gathered.hpp"

namespace troupe::actors {

/// Of the steps behind `recorded_step` up to the newest one that is finished: ascending, without
/// times. Steps of which nodes do not know ran on no device, for want of good samples.
std::vector<StepRecord> missed_steps(const Gathered& gathered, std::int64_t recorded_step);

}  // namespace troupe::actors
