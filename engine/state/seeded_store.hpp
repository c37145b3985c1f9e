// A device's store as a training finds it at its first step: with what a layout gives to the
// device, from the seed.
//
// For who needs the state of one device alone: no other device is asked for anything.

#pragma once

#include "engine/setup/job_setup.hpp"
#include "engine/state/state_store.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// `setup` outlives the store. Cost: draws the layers of the device.
/// Errors: as `StateStore::stage`, `scheduler::plan_state_moves` and `StateTransfer::advance`.
Result<StateStore> seeded_store(const JobSetup& setup, const ParallelPlan& plan, DeviceId device);

}  // namespace troupe::engine
