// Items of all ranks by length: the common first step of every post-balancing algorithm.
//
// Pure. Hundreds of thousands of items per step make this the largest single cost, hence radix.

#pragma once

#include <cstdint>
#include <vector>

#include "balancer/rearrangement.hpp"

namespace troupe::balancer {

/// Eight bytes, because sorting and scattering them is bound by memory.
struct LengthItem {
  std::uint32_t length = 0;
  std::uint32_t number = 0;  ///< Of the item when all ranks are laid end to end.
};

struct SortedItems {
  std::vector<LengthItem> items;  ///< Descending by length; equal lengths by rank, then by index.
  std::vector<ItemRef> places;    ///< By number.
};

/// REQUIRES: lengths in [0, 2^32) and fewer than 2^32 items.
/// Cost: O(items) per 11 bits of the largest length.
SortedItems sorted_by_length(const std::vector<std::vector<std::int64_t>>& lengths);

}  // namespace troupe::balancer
