// Subset sums of real sizes on a grid: which samples to defer so that their work comes closest to
// a wanted amount.
//
// Pure and deterministic. One table answers any number of targets.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::balancer {

/// A discretised dynamic program over the subsets of some sizes (Entrain section 4.5.2), beside a
/// greedy filling that takes over where there are too many items for a grid.
///
/// The grid has max(16384, 8 * count) cells over the total, at least four times finer than the
/// published w / 4096. Answers are compared by their true sums, so a choice is never worse than
/// choosing nothing or than the greedy one (largest first while it fits).
///
/// Cost of building: O(count * cells / 64 + cells) time, O(cells) memory; above 4096 items no
/// table is built and the greedy choice stands alone, off by less than the smallest item it left.
class SubsetSums {
 public:
  /// `sizes`: finite and >= 0; kept by copy. Items of size 0 are never chosen.
  explicit SubsetSums(std::span<const double> sizes);

  struct Choice {
    double sum = 0;          ///< True sum of the subset.
    double target = 0;       ///< What was asked for.
    std::int64_t cell = -1;  ///< Where the table has it; -1 for the greedy choice.
  };

  /// The subset found whose true sum is closest to `target`; ties go to the smaller sum.
  /// Off from the best subset by at most about count / 2 cells, usually by far less than one.
  /// Cost: O(count) plus a few look-ups.
  Choice closest(double target) const;

  /// Positions in `sizes` of a choice's items, ascending. Cost: O(count).
  std::vector<std::int32_t> items(const Choice& choice) const;

  double total() const { return total_; }

 private:
  void build();
  void add(std::int32_t item);
  void consider(std::int64_t cell, Choice& best) const;
  template <class Take>
  void fill(double target, Take take) const;

  std::vector<double> sizes_;
  std::vector<std::int32_t> order_;  // Descending size, then ascending position.
  double total_ = 0;
  double cell_size_ = 1;
  std::int64_t cell_count_ = 0;          // 0: no table.
  std::vector<std::uint64_t> reached_;   // One bit per cell.
  std::vector<std::int32_t> last_item_;  // The item whose addition reached the cell first.
  std::vector<std::int32_t> before_;     // The cell it was added to.
  std::vector<double> true_sum_;
};

}  // namespace troupe::balancer
