// What layers cost before anything is measured: computed from peak numbers, and labelled so.
//
// Reads a stored profile where asked; measures nothing. Thread-safe.

#pragma once

#include <vector>

#include "engine/setup/job_setup.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/device_catalog.hpp"
#include "scheduler/cost/profile.hpp"

namespace troupe::engine {

/// A core of the machine at hand as its peak numbers would have it: 256-bit vectors at 3 GHz.
scheduler::DeviceSpec nominal_cpu(const job::Cluster& cluster);

/// Memory of one device of the job on this machine: `cluster.device_memory_gib`, or its share.
Bytes memory_at_hand(const job::Cluster& cluster);

/// The same of a node that has this machine to itself.
Bytes memory_of_lone_node(job::Cluster cluster);

/// Degrees that computed profiles have where stages may span devices: tp x cp up to 8.
std::vector<scheduler::Parallelism> planned_degrees();

/// Network of a cluster that is only planned for: 200 Gbit/s at a collective's share of the rate.
scheduler::LinkSpeed planned_network();

/// Every layer's kind and its costs on a device with each of `degrees`, from the device's peak
/// numbers (scheduler/cost/roofline.hpp). Every number is `computed`, its layers' times corrected
/// by `measured` ones of such a device.
scheduler::Profile computed_profile(const JobSetup& setup, const scheduler::DeviceSpec& device,
                                    const std::vector<scheduler::Parallelism>& degrees = {{}},
                                    scheduler::LinkSpeed network = planned_network(),
                                    const std::vector<scheduler::LayerProfile>& measured = {});

/// The profile of a core of this machine as its peak numbers would have it, also at the degrees of
/// a layout by hand.
scheduler::Profile nominal_profile(const JobSetup& setup);

/// The stored profile of this job on this machine; where none fits, the nominal one.
///
/// Errors: bad_data, invalid_argument: `scheduler.profile` names a file that is no profile, or one
/// of another model or machine.
Result<scheduler::Profile> profile_at_hand(const JobSetup& setup);

}  // namespace troupe::engine
