// Sums the contributions of several ranks, element by element, in rank order.
//
// Pure. The order is ((x0 + x1) + x2) + ..., so the bits depend on nothing but the values. bf16 is
// widened to fp32, summed there and rounded once, to nearest even; NaN stays NaN.

#pragma once

#include <cstddef>
#include <span>

#include "transport/collectives/collectives.hpp"

namespace troupe::transport {

/// `output[i]` = sum over ranks of `inputs[rank][i]`. `output` may be one of the inputs.
/// REQUIRES: at least one input; all pointers aligned for the element.
/// Cost: O(count * ranks), one pass over each input; no allocation.
void sum_in_rank_order(std::span<const void* const> inputs, std::size_t count, Scalar scalar,
                       void* output);

}  // namespace troupe::transport
