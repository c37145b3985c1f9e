// Who is connected with whom, directly or by others: numbers in sets that become one.
//
// Pure value, single owner.

#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

namespace troupe::scheduler {

class DisjointSets {
 public:
  /// Numbers below `count`, each in a set of its own.
  explicit DisjointSets(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }

  /// The member that stands for its set, until that becomes one with another. REQUIRES: below
  /// count.
  std::size_t root(std::size_t number) {
    while (parent_[number] != number) number = parent_[number] = parent_[parent_[number]];
    return number;
  }

  /// Makes one of the sets of both. REQUIRES: as `root`.
  void join(std::size_t one, std::size_t other) { parent_[root(one)] = root(other); }

 private:
  std::vector<std::size_t> parent_;
};

}  // namespace troupe::scheduler
