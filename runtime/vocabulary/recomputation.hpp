// Which layers run forward again in a backward, where a job has activations recomputed
// (`train.recompute`): the one rule for models/, which does it, and for costs, which count it.
//
// Pure.

#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe {

/// A module's layers between its first and its last. The first reads media or text, of which
/// nothing is saved; the last, a merger or the head with its loss, has its backward right behind.
constexpr bool is_recomputed(std::int32_t layer, std::size_t layers) {
  return layer > 0 && static_cast<std::size_t>(layer) + 1 < layers;
}

}  // namespace troupe
