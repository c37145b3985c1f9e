#include "balancer/volume_table.hpp"

#include <numeric>

namespace troupe::balancer {

VolumeTable::VolumeTable(const NodeWiseProblem& problem) {
  const auto ranks = static_cast<std::size_t>(problem.rank_count);
  Rows by_rank;
  by_rank.start.assign(ranks + 1, 0);
  by_rank.entries.resize(problem.volumes.size());
  for (const auto& volume : problem.volumes)
    ++by_rank.start[static_cast<std::size_t>(volume.origin_rank) + 1];
  std::partial_sum(by_rank.start.begin(), by_rank.start.end(), by_rank.start.begin());
  auto next = by_rank.start;
  for (const auto& volume : problem.volumes)
    by_rank
        .entries[static_cast<std::size_t>(next[static_cast<std::size_t>(volume.origin_rank)]++)] = {
        volume.batch, volume.volume};
  by_batch_ = transposed(by_rank, ranks);
  by_rank_ = transposed(by_batch_, ranks);
}

// Rows become columns; entries of one pair, which then stand side by side, are merged.
VolumeTable::Rows VolumeTable::transposed(const Rows& rows, std::size_t column_count) {
  std::vector<std::int32_t> next(column_count + 1, 0);
  for (const auto& entry : rows.entries) ++next[static_cast<std::size_t>(entry.other) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  const auto starts = next;
  std::vector<Entry> sparse(rows.entries.size());
  for (std::size_t row = 0; row + 1 < rows.start.size(); ++row)
    for (const auto& entry : rows.row(row)) {
      const auto column = static_cast<std::size_t>(entry.other);
      const auto number = static_cast<std::int32_t>(row);
      if (next[column] > starts[column] &&
          sparse[static_cast<std::size_t>(next[column] - 1)].other == number) {
        sparse[static_cast<std::size_t>(next[column] - 1)].volume += entry.volume;
      } else {
        sparse[static_cast<std::size_t>(next[column]++)] = {number, entry.volume};
      }
    }
  Rows result;
  result.start.push_back(0);
  for (std::size_t column = 0; column < column_count; ++column) {
    result.entries.insert(result.entries.end(), sparse.begin() + starts[column],
                          sparse.begin() + next[column]);
    result.start.push_back(static_cast<std::int32_t>(result.entries.size()));
  }
  return result;
}

}  // namespace troupe::balancer
