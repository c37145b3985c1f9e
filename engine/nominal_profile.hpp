// What layers cost before anything is measured: computed from peak numbers, and labelled so.
//
// Reads a stored profile where asked; measures nothing. Thread-safe.

#pragma once

#include "engine/job_setup.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/device_catalog.hpp"
#include "scheduler/profile.hpp"

namespace troupe::engine {

/// A core of the machine at hand as its peak numbers would have it: 256-bit vectors at 3 GHz.
scheduler::DeviceSpec nominal_cpu(const job::Cluster& cluster);

/// Memory of one device of the job on this machine: `cluster.device_memory_gib`, or its share.
Bytes memory_at_hand(const job::Cluster& cluster);

/// Every layer's kind and its computed costs on a device. `several`: also split over up to 8
/// devices, and the network of a cluster.
///
/// Errors: none today.
Result<scheduler::Profile> nominal_profile(const JobSetup& setup,
                                           const scheduler::DeviceSpec& device, bool several);

/// The stored profile of this job on this machine; where none fits, the nominal one.
///
/// Errors: bad_data, invalid_argument: `scheduler.profile` names a file that is no profile, or one
/// of another model or machine.
Result<scheduler::Profile> profile_at_hand(const JobSetup& setup);

}  // namespace troupe::engine
