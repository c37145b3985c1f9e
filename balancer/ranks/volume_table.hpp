// Volumes between ranks and batches, sparse, by either side. Internal to node-wise rearrangement.
//
// Immutable value; safe to read from several threads.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balancer/ranks/node_wise.hpp"

namespace troupe::balancer {

class VolumeTable {
 public:
  struct Entry {
    std::int32_t other = 0;  ///< The batch in a rank's row, the origin rank in a batch's row.
    float volume = 0;        ///< Eight bytes in all: building the rows is bound by memory.
  };

  /// REQUIRES: all indices below rank_count. Cost of both: O(volumes + ranks).
  explicit VolumeTable(const NodeWiseProblem& problem);
  explicit VolumeTable(const PostBalanced& balanced);

  std::size_t rank_count() const { return rank_end_.size(); }
  /// True if no entry was rounded, as is so for token counts below 2^24.
  bool exact() const { return exact_; }
  /// One entry per batch, ascending.
  std::span<const Entry> of_rank(std::size_t rank) const {
    return std::span(by_rank_).subspan(rank_start_[rank], rank_end_[rank] - rank_start_[rank]);
  }
  /// In no order, a rank maybe several times.
  std::span<const Entry> of_batch(std::size_t batch) const {
    return std::span(by_batch_).subspan(batch_start_[batch],
                                        batch_start_[batch + 1] - batch_start_[batch]);
  }

 private:
  void add_rows_by_rank(const std::vector<std::uint32_t>& row_sizes);
  float rounded(double volume);

  std::vector<Entry> by_batch_;
  std::vector<std::uint32_t> batch_start_;  // Of each batch in by_batch_, and the end.
  std::vector<Entry> by_rank_;
  std::vector<std::uint32_t> rank_start_;
  std::vector<std::uint32_t> rank_end_;  // Rows may leave gaps: several volumes of a pair are one.
  bool exact_ = true;
};

}  // namespace troupe::balancer
