// In which order samples are trained: one permutation per epoch, and its division into batches.
//
// Pure and platform-independent: the order depends on (seed, epoch, count) alone, so that every
// node computes the same one and a job can be resumed on any number of nodes.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/reading/options.hpp"

namespace troupe::data {

/// The record index at each position of this epoch: a uniform permutation of 0..count-1.
///
/// Fisher and Yates' shuffle driven by SplitMix64, bounded without bias by Lemire's method; the
/// standard library's shuffle differs between implementations. Cost: O(count).
std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t count);

/// What a job with these options trains in this epoch: `epoch_order` of its seed, or file order
/// where shuffling is off.
std::vector<std::int64_t> record_order(const DataOptions& options, std::int64_t epoch,
                                       std::int64_t count);

/// A global batch: positions [begin, end) of the order of `epoch`.
struct BatchSpan {
  std::int64_t epoch = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  friend bool operator==(const BatchSpan&, const BatchSpan&) = default;
};

/// Batches of one epoch: count / batch_size rounded up; the last may be smaller.
/// REQUIRES: count >= 1, batch_size >= 1.
std::int64_t batches_per_epoch(std::int64_t count, std::int64_t batch_size);

/// Batch `batch` (from 0, running on across epochs): batch t of an epoch is its positions
/// [t * batch_size, (t + 1) * batch_size), cut at `count`.
/// REQUIRES: batch >= 0, count >= 1, batch_size >= 1.
BatchSpan batch_span(std::int64_t batch, std::int64_t batch_size, std::int64_t count);

}  // namespace troupe::data
