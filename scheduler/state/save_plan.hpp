// Who writes what of a checkpoint.
//
// Pure; thread-safe; the same answer on every node.

#pragma once

#include <map>
#include <vector>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/model_state.hpp"

namespace troupe::scheduler {

/// Per device the shards that it writes, ascending: each shard once, by one of its holders, the
/// largest first to the holder with least to write so far; ties go to the lower device. Devices
/// that write nothing are left out, and so are shards that nobody holds. Cost: shards x (log shards
/// + holders).
std::map<DeviceSlot, std::vector<ShardKey>> plan_save(const StatePlacement& placement, Dtype dtype);

}  // namespace troupe::scheduler
