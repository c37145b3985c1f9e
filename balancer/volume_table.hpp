// Volumes between ranks and batches, sparse, by either side. Internal to node-wise rearrangement.
//
// Immutable value; safe to read from several threads.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balancer/node_wise.hpp"

namespace troupe::balancer {

/// Entries of one pair are added up; rows ascend by the other side's number.
class VolumeTable {
 public:
  struct Entry {
    std::int32_t other = 0;  ///< The batch in a rank's row, the rank in a batch's row.
    float volume = 0;        ///< Eight bytes in all: building the rows is bound by memory.
  };

  /// REQUIRES: all indices below rank_count. Cost: O(volumes + ranks), no comparison sort.
  explicit VolumeTable(const NodeWiseProblem& problem);

  /// True if no volume was rounded, as is so for token counts below 2^24.
  bool exact() const { return exact_; }
  std::span<const Entry> of_rank(std::size_t rank) const { return by_rank_.row(rank); }
  std::span<const Entry> of_batch(std::size_t batch) const { return by_batch_.row(batch); }

 private:
  struct Rows {
    std::vector<Entry> entries;
    std::vector<std::int32_t> start;  // Of each row, and the end.

    std::span<const Entry> row(std::size_t index) const {
      return std::span(entries).subspan(static_cast<std::size_t>(start[index]),
                                        static_cast<std::size_t>(start[index + 1] - start[index]));
    }
  };
  static Rows transposed(const Rows& rows, std::size_t column_count);
  bool merge_equal(Rows& rows);

  bool exact_ = true;
  Rows by_rank_;
  Rows by_batch_;
};

}  // namespace troupe::balancer
