// What is in lists of microbatches, in whatever order.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"

namespace troupe::engine {

/// The samples (units) of all parts, in ascending order.
inline std::vector<std::int32_t> all_of(const MicrobatchList& microbatches) {
  std::vector<std::int32_t> all;
  for (const auto& microbatch : microbatches)
    for (const auto& part : microbatch.parts)
      all.insert(all.end(), part.samples.begin(), part.samples.end());
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace troupe::engine
