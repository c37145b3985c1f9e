// Pairs overloaded with underloaded microbatches so that the largest load after the exchange is
// as small as possible (Entrain section 4.5.2, "bottleneck matching optimization").
//
// Pure and deterministic.

#pragma once

#include <cstdint>
#include <vector>

namespace troupe::balancer {

/// A complete matching of rows into columns.
struct BottleneckMatching {
  double threshold = 0;               ///< T*: no row exceeds it.
  std::vector<std::int32_t> partner;  ///< Column of each row; all different.
  /// Rows that need their partner to stay within the threshold; the others get what was left.
  std::vector<bool> critical;
};

/// Finds the smallest T among all costs such that every row either costs at most T alone or has a
/// partner of its own with pair cost at most T, by binary search over the sorted candidates with
/// augmenting paths. Only rows whose lone cost exceeds T are critical.
///
/// `pair_cost[row][column]`, `lone_cost[row]`: finite. Ties: augmenting paths try columns in
/// ascending order; rows that are not critical take the lowest free columns in row order.
/// REQUIRES: every row of pair_cost has the same length, at least the number of rows.
/// Cost: O(log(rows * columns) * rows * edges) worst case, near O(edges) per step in practice.
BottleneckMatching bottleneck_match(const std::vector<std::vector<double>>& pair_cost,
                                    const std::vector<double>& lone_cost);

}  // namespace troupe::balancer
