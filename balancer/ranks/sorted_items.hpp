// Items of all ranks by length: the common first step of every post-balancing algorithm.
//
// Pure. Hundreds of thousands of items per step make this the largest single cost, hence radix.

#pragma once

#include <cstdint>
#include <vector>

#include "balancer/ranks/rearrangement.hpp"

namespace troupe::balancer {

/// Eight bytes, because sorting and scattering them is bound by memory.
struct LengthItem {
  std::uint32_t length = 0;
  std::uint32_t number = 0;  ///< Stands for the item's place; ascends by rank, then by index.
};

struct SortedItems {
  std::vector<LengthItem> items;  ///< Descending by length; equal lengths by rank, then by index.
  std::uint32_t index_bits = 0;   ///< A number is rank and index in these many low bits, ...
  std::vector<ItemRef> places;    ///< ... or, where 32 bits are too few, an entry of this table.

  ItemRef place_of(std::uint32_t number) const {
    if (!places.empty()) return places[number];
    const std::uint64_t wide = number;
    return {static_cast<std::int32_t>(wide >> index_bits),
            static_cast<std::int32_t>(wide & ((std::uint64_t{1} << index_bits) - 1))};
  }
};

/// REQUIRES: lengths in [0, 2^32) and fewer than 2^32 items.
/// Cost: O(items) per 11 bits of the largest length.
SortedItems sorted_by_length(const std::vector<std::vector<std::int64_t>>& lengths);

}  // namespace troupe::balancer
