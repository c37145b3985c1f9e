// Volumes between ranks and batches, sparse, by either side. Internal to node-wise rearrangement.
//
// Immutable value; safe to read from several threads.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balancer/node_wise.hpp"

namespace troupe::balancer {

/// Rows by rank hold one entry per batch, ascending; rows by batch are the problem's own volumes
/// where those come batch by batch, as a rearrangement's do, and a sorted copy elsewhere.
class VolumeTable {
 public:
  struct Entry {
    std::int32_t batch = 0;
    float volume = 0;  ///< Eight bytes in all: building the rows is bound by memory.
  };

  /// Keeps `problem`. REQUIRES: all indices below rank_count.
  /// Cost: O(volumes + ranks) for volumes in order of their batch, else a sort.
  explicit VolumeTable(const NodeWiseProblem& problem);
  VolumeTable(const VolumeTable&) = delete;
  VolumeTable& operator=(const VolumeTable&) = delete;

  /// True if no entry was rounded, as is so for token counts below 2^24.
  bool exact() const { return exact_; }
  std::span<const Entry> of_rank(std::size_t rank) const {
    return std::span(entries_).subspan(rank_start_[rank],
                                       rank_start_[rank + 1] - rank_start_[rank]);
  }
  /// Its volumes by origin rank, in no order, a rank maybe several times.
  std::span<const BatchVolume> of_batch(std::size_t batch) const {
    return volumes_.subspan(batch_start_[batch], batch_start_[batch + 1] - batch_start_[batch]);
  }

 private:
  void build(std::size_t ranks);
  void merge_doubles();

  std::vector<BatchVolume> sorted_;         // Empty where the problem's own serve.
  std::span<const BatchVolume> volumes_;    // Batch by batch.
  std::vector<std::uint32_t> batch_start_;  // Of each batch in volumes_, and the end.
  std::vector<Entry> entries_;              // Rank by rank.
  std::vector<std::uint32_t> rank_start_;   // Of each rank in entries_, and the end.
  bool exact_ = true;
};

}  // namespace troupe::balancer
