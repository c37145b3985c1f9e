// Items of all ranks by length: the common first step of every post-balancing algorithm.
//
// Pure. Hundreds of thousands of items per step make this the largest single cost, hence radix.

#pragma once

#include <cstdint>
#include <vector>

#include "balancer/rearrangement.hpp"

namespace troupe::balancer {

struct LengthItem {
  std::int64_t length = 0;
  ItemRef place;
};

/// Descending by length; equal lengths by rank, then by index. Lengths in [0, 2^32).
/// Cost: O(items) per 11 bits of the largest length.
std::vector<LengthItem> sorted_by_length(const std::vector<std::vector<std::int64_t>>& lengths);

}  // namespace troupe::balancer
