// How a shard lies in a tensor: its shape, and the parts of it.
//
// Pure; views share memory.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/vocabulary/model_state.hpp"

namespace troupe::state {

/// That of the box; moments are two tensors in one: [2, shape of the box].
std::vector<std::int64_t> shape_of(const ShardKey& key);

/// The part of a shard, or of a whole parameter, that a box of the same parameter is: a view.
/// Moments: of both. REQUIRES: the shard's box contains it.
at::Tensor view_of(const at::Tensor& shard, const ShardKey& key, const Box& box);

}  // namespace troupe::state
