// Sums over tensors on a GPU, in a fixed order.

#pragma once

#include <cstdint>

#include "kernels/gpu/attention.hpp"

namespace troupe::kernels::gpu {

/// fp64 numbers that `sum_of_squares` needs room for; the sum is left in the first.
inline constexpr std::int64_t kSquareParts = 512;

/// Sum of the squares of `count` elements, fp32 or (`wide`) fp64, added up in fp64; in
/// parts[0]. The order depends on `count` alone.
void sum_of_squares(const void* values, std::int64_t count, bool wide, double* parts,
                    Stream stream);

}  // namespace troupe::kernels::gpu
