// The profile of a job's model on a device of documented speed: what predictions stand on until the
// device at hand has been measured.
//
// Pure. Ratios between samples and layers are close to the truth, absolute times are not; every
// number is labelled `computed`.

#pragma once

#include "engine/job_setup.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/device_catalog.hpp"
#include "scheduler/profile.hpp"

namespace troupe::engine {

/// A CPU core of these years: enough to weigh samples against each other.
scheduler::DeviceSpec nominal_cpu();

/// Roofline times of every layer of the job on `device`, at tp 1 and cp 1.
///
/// Errors:
/// - internal: a module with another number of layers than its configuration says.
Result<scheduler::Profile> nominal_profile(const JobSetup& setup,
                                           const scheduler::DeviceSpec& device);

}  // namespace troupe::engine
