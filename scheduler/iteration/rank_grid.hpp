// Ranks of a module as a grid of parallel axes: its groups, its ends, and whom a rank exchanges
// rows with when the next module has axes of other sizes.
//
// Pure values; thread-safe. Ranks are those of one epoch number's world. Axes that count here are
// called `tp`, `cp`, `dp` and `pp`; others are allowed. An axis that is not there has size 1.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::scheduler {

using Ranks = std::vector<std::int32_t>;

struct GridAxis {
  std::string name;
  std::int32_t size = 1;
};

/// Consecutive ranks, numbered along the first axis fastest.
class RankGrid {
 public:
  /// Errors: invalid_argument: a size below 1, an axis named twice, a first rank below 0, more
  /// ranks than `kGridRanksMax`.
  static Result<RankGrid> create(std::vector<GridAxis> axes, std::int32_t first_rank = 0);

  std::int32_t rank_count() const { return rank_count_; }
  bool contains(std::int32_t rank) const {
    return rank >= first_rank_ && rank - first_rank_ < rank_count_;
  }
  std::int32_t size(std::string_view axis) const;
  /// Place of a rank along an axis, 0 for one that is not there. REQUIRES: contains(rank).
  std::int32_t coordinate(std::int32_t rank, std::string_view axis) const;
  /// The rank that differs from `rank` along this axis alone. REQUIRES: contains(rank), the place
  /// exists.
  std::int32_t moved(std::int32_t rank, std::string_view axis, std::int32_t place) const;
  /// Ranks that differ along this axis alone, one list for each combination of the others, ordered
  /// by first rank; lists of one rank for an axis that is not there.
  std::vector<Ranks> groups(std::string_view axis) const;
  /// Ranks of one pipeline stage of one replica, in rank order.
  Ranks stage(std::int32_t pp, std::int32_t dp) const;

 private:
  struct Axis {
    std::string name;
    std::int32_t size = 1;
    std::int32_t stride = 1;
  };
  const Axis* find(std::string_view name) const;

  std::vector<Axis> axes_;
  std::int32_t first_rank_ = 0;
  std::int32_t rank_count_ = 1;
};

inline constexpr std::int32_t kGridRanksMax = 1 << 24;

/// A module's grid and the modules that take its rows.
struct ModuleGrid {
  RankGrid grid;
  std::vector<std::int32_t> next;  ///< Indices into the list of modules.
};

/// Whom a rank takes rows from and hands rows to, each sorted.
struct Neighbours {
  Ranks previous;
  Ranks next;

  friend bool operator==(const Neighbours&, const Neighbours&) = default;
};

/// Inside a module: the same place of the stage before and after. Between modules: ranks of the
/// last and the first stage whose shares overlap when each of tp, cp and dp divides the same rows
/// evenly; so sizes that do not divide one another work too. A rank is no neighbour of itself,
/// where modules share it.
///
/// REQUIRES: indices in `next` exist. Cost: O(ranks of the neighbouring stages).
Neighbours neighbours(const std::vector<ModuleGrid>& modules, std::int32_t rank);

}  // namespace troupe::scheduler
