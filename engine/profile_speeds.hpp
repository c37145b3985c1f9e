// Measures how fast the machine does what is not a layer: moving rows, summing gradients, updating.

#pragma once

#include "engine/job_setup.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/profile.hpp"

namespace troupe::engine {

/// Links: half of a round trip of small messages, and the rate of large ones, between two nodes of
/// this process over the transport `backend`. Between devices and stages of one process rows are
/// handed over, so that only the hand-over counts. Other machines of a cluster are not here: their
/// network is taken to be as fast as this machine's own sockets or shared memory.
///
/// Errors: as `transport::create_transport`; timed_out.
Result<scheduler::DeviceSpeeds> measure_speeds(const JobSetup& setup,
                                               const char* backend = "inproc");

}  // namespace troupe::engine
