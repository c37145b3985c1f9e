// How a head's logits are cut where the vocabulary is large, so that those of a whole part never
// stand in memory: the one rule for kernels, which follow it, and for computed profiles.
//
// Pure: sizes alone decide, so that the same part has the same bits whatever memory is at hand.

#pragma once

#include <algorithm>
#include <cstdint>

namespace troupe {

/// Chunks of a matrix of logits, by rows or by columns.
struct LogitChunks {
  /// What the logits of a chunk may take.
  std::int64_t bytes = std::int64_t{64} << 20;
  /// Rows or columns of a chunk, even where they take more. Each chunk reads all weights once: on a
  /// GPU whose peaks are 300 operations for every byte that it reads, as an H100's in bf16, fewer
  /// rows would wait for memory.
  std::int64_t least = 256;

  /// Rows of `width` elements, or columns of as many, that a chunk has. A multiple of 64 where that
  /// many fit, as matrix products like it. >= 1. REQUIRES: all >= 1.
  std::int64_t at_once(std::int64_t width, std::int64_t element_bytes) const {
    constexpr std::int64_t kMultiple = 64;
    const auto fit = bytes / (width * element_bytes);
    return std::max(least, fit < kMultiple ? fit : fit - fit % kMultiple);
  }
};

}  // namespace troupe
