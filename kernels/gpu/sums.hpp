// Sums over tensors on a GPU, in a fixed order.

#pragma once

#include <cstdint>

#include "kernels/gpu/attention.hpp"

namespace troupe::kernels::gpu {

/// Partial sums, each of a thread block.
inline constexpr std::int64_t kSquareParts = 512;
/// fp64 numbers that `add_squares` needs room for: those, and how many are done.
inline constexpr std::int64_t kSquareRoom = kSquareParts + 1;

/// Adds the sum of the squares of `count` elements, fp32 or (`wide`) fp64, to `*total`, in fp64 and
/// in one launch. The order depends on `count` alone: thread blocks count who is done, and the last
/// one, whichever it is, adds up all parts in theirs.
///
/// `room`: `kSquareRoom` numbers, zero in the last, which is zero again behind it: launches of one
/// stream may share it.
void add_squares(const void* values, std::int64_t count, bool wide, double* room, double* total,
                 Stream stream);

}  // namespace troupe::kernels::gpu
