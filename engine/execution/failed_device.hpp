// What a device says of itself outside the work of a step: that its process has lost it, or that
// its own NCCL opens no group. The job does without it then, by no fault of a step
// (`FailedWork::step` is 0).

#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <optional>

#include "engine/iteration/reports.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// Of an exception that left what the device did beside a step, as state that it sends. None: it is
/// of another kind (`is_device_lost`).
std::optional<FailedWork> failed_device(const std::exception_ptr& thrown, EpochNumber generation);

/// Of groups that did not open (`NcclSums::open`, `NcclRows::open`), where the device is lost, or
/// its own NCCL to blame, or nobody knows whose and its is as good as any: as of a call that hangs.
/// Asks the device at `place`, and does not wait for it. None: it is another rank's, or another
/// error.
std::optional<FailedWork> failed_opening(const Error& error, c10::Device place,
                                         EpochNumber generation);

}  // namespace troupe::engine
