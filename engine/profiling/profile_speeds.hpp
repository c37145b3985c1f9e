// Measures how fast the machine does what is not a layer: moving rows, summing gradients, updating.

#pragma once

#include "engine/profiling/profile_quiet.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/profile.hpp"

namespace troupe::engine {

/// Links: half of a round trip of small messages, and the rate of large ones, between two ends in
/// this process. Devices of a node hand rows over in memory; nodes of one machine use UCX, as in
/// training. Other machines are not here: the network is UCX over this machine's TCP loopback,
/// which has every cost but the wire's.
///
/// Updates and sums are repeated where something disturbed them, as layers are. A link's two ends
/// wait for each other, so its wall times are what counts: medians, of many small messages.
///
/// Errors: as `transport::create_transport`; timed_out.
Result<scheduler::DeviceSpeeds> measure_speeds(const JobSetup& setup, QuietWatch& watch);

}  // namespace troupe::engine
