#include "scheduler/iteration/rank_grid.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace troupe::scheduler {

namespace {

Error invalid(std::string message, std::string where, std::string fix = {}) {
  return {Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

/// True if the shares of place `a` of `a_size` and place `b` of `b_size` have rows in common.
bool overlap(std::int64_t a, std::int64_t a_size, std::int64_t b, std::int64_t b_size) {
  return a * b_size < (b + 1) * a_size && b * a_size < (a + 1) * b_size;
}

bool meet(const RankGrid& from, std::int32_t sender, const RankGrid& to, std::int32_t receiver) {
  for (const char* axis : {"tp", "cp", "dp"})
    if (!overlap(from.coordinate(sender, axis), from.size(axis), to.coordinate(receiver, axis),
                 to.size(axis)))
      return false;
  return true;
}

/// Ranks of stage `pp`, all replicas.
Ranks all_of_stage(const RankGrid& grid, std::int32_t pp) {
  Ranks ranks;
  for (std::int32_t dp = 0; dp < grid.size("dp"); ++dp)
    for (const auto rank : grid.stage(pp, dp)) ranks.push_back(rank);
  return ranks;
}

}  // namespace

Result<RankGrid> RankGrid::create(std::vector<GridAxis> axes, std::int32_t first_rank) {
  if (first_rank < 0)
    return invalid("expected at least 0, found " + std::to_string(first_rank), "first_rank");
  RankGrid grid;
  grid.first_rank_ = first_rank;
  std::set<std::string> names;
  for (auto& axis : axes) {
    if (axis.size < 1)
      return invalid("expected a size of at least 1, found " + std::to_string(axis.size),
                     axis.name);
    if (!names.insert(axis.name).second) return invalid("the axis is named twice", axis.name);
    if (axis.size > kGridRanksMax / grid.rank_count_)
      return invalid("the grid has more than " + std::to_string(kGridRanksMax) + " ranks",
                     axis.name, "use smaller axes");
    grid.axes_.push_back({std::move(axis.name), axis.size, grid.rank_count_});
    grid.rank_count_ *= axis.size;
  }
  return grid;
}

const RankGrid::Axis* RankGrid::find(std::string_view name) const {
  const auto found =
      std::find_if(axes_.begin(), axes_.end(), [&](const Axis& axis) { return axis.name == name; });
  return found == axes_.end() ? nullptr : &*found;
}

std::int32_t RankGrid::size(std::string_view axis) const {
  const Axis* found = find(axis);
  return found ? found->size : 1;
}

std::int32_t RankGrid::coordinate(std::int32_t rank, std::string_view axis) const {
  const Axis* found = find(axis);
  return found ? (rank - first_rank_) / found->stride % found->size : 0;
}

std::int32_t RankGrid::moved(std::int32_t rank, std::string_view axis, std::int32_t place) const {
  const Axis* found = find(axis);
  return found ? rank + (place - coordinate(rank, axis)) * found->stride : rank;
}

std::vector<Ranks> RankGrid::groups(std::string_view axis) const {
  std::vector<Ranks> groups;
  for (std::int32_t rank = first_rank_; rank < first_rank_ + rank_count_; ++rank) {
    if (coordinate(rank, axis) != 0) continue;
    auto& group = groups.emplace_back();
    for (std::int32_t place = 0; place < size(axis); ++place)
      group.push_back(moved(rank, axis, place));
  }
  return groups;
}

Ranks RankGrid::stage(std::int32_t pp, std::int32_t dp) const {
  Ranks ranks;
  for (std::int32_t rank = first_rank_; rank < first_rank_ + rank_count_; ++rank)
    if (coordinate(rank, "pp") == pp && coordinate(rank, "dp") == dp) ranks.push_back(rank);
  return ranks;
}

Neighbours neighbours(const std::vector<ModuleGrid>& modules, std::int32_t rank) {
  std::set<std::int32_t> previous, next;
  for (std::size_t m = 0; m < modules.size(); ++m) {
    const auto& grid = modules[m].grid;
    const std::int32_t last = grid.size("pp") - 1;
    if (grid.contains(rank)) {
      const auto pp = grid.coordinate(rank, "pp");
      if (pp > 0) previous.insert(grid.moved(rank, "pp", pp - 1));
      if (pp < last) next.insert(grid.moved(rank, "pp", pp + 1));
    }
    for (const auto index : modules[m].next) {
      const auto& to = modules[static_cast<std::size_t>(index)].grid;
      if (grid.contains(rank) && grid.coordinate(rank, "pp") == last)
        for (const auto receiver : all_of_stage(to, 0))
          if (meet(grid, rank, to, receiver)) next.insert(receiver);
      if (to.contains(rank) && to.coordinate(rank, "pp") == 0)
        for (const auto sender : all_of_stage(grid, last))
          if (meet(grid, sender, to, rank)) previous.insert(sender);
    }
  }
  previous.erase(rank);
  next.erase(rank);
  return {{previous.begin(), previous.end()}, {next.begin(), next.end()}};
}

}  // namespace troupe::scheduler
