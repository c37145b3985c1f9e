#include "balancer/volume_table.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe::balancer {

VolumeTable::VolumeTable(const NodeWiseProblem& problem) {
  const auto ranks = static_cast<std::size_t>(problem.rank_count);
  by_rank_.start.assign(ranks + 1, 0);
  by_rank_.entries.resize(problem.volumes.size());
  bool in_order = true;  // Batch by batch, as the volumes of a rearrangement come.
  std::int32_t batch = 0;
  for (const auto& volume : problem.volumes) {
    ++by_rank_.start[static_cast<std::size_t>(volume.origin_rank) + 1];
    in_order = in_order && volume.batch >= batch;
    batch = volume.batch;
  }
  std::partial_sum(by_rank_.start.begin(), by_rank_.start.end(), by_rank_.start.begin());
  auto next = by_rank_.start;
  for (const auto& volume : problem.volumes) {
    const auto rounded = static_cast<float>(volume.volume);
    exact_ = exact_ && rounded == volume.volume;
    auto& position = next[static_cast<std::size_t>(volume.origin_rank)];
    by_rank_.entries[static_cast<std::size_t>(position++)] = {volume.batch, rounded};
  }
  by_batch_ = transposed(by_rank_, ranks);
  if (merge_equal(by_batch_) || !in_order) by_rank_ = transposed(by_batch_, ranks);
}

// Rows become columns, each ascending by the row it came from.
VolumeTable::Rows VolumeTable::transposed(const Rows& rows, std::size_t column_count) {
  Rows result;
  result.start.assign(column_count + 1, 0);
  result.entries.resize(rows.entries.size());
  for (const auto& entry : rows.entries) ++result.start[static_cast<std::size_t>(entry.other) + 1];
  std::partial_sum(result.start.begin(), result.start.end(), result.start.begin());
  auto next = result.start;
  for (std::size_t row = 0; row + 1 < rows.start.size(); ++row)
    for (const auto& entry : rows.row(row)) {
      auto& position = next[static_cast<std::size_t>(entry.other)];
      result.entries[static_cast<std::size_t>(position++)] = {static_cast<std::int32_t>(row),
                                                              entry.volume};
    }
  return result;
}

// Adds up entries of one pair, which stand side by side; true if there were any.
bool VolumeTable::merge_equal(Rows& rows) {
  std::size_t kept = 0;
  const std::size_t before = rows.entries.size();
  for (std::size_t row = 0; row + 1 < rows.start.size(); ++row) {
    const auto begin = static_cast<std::size_t>(rows.start[row]);
    const auto end = static_cast<std::size_t>(rows.start[row + 1]);
    const std::size_t row_start = kept;
    for (std::size_t i = begin; i < end; ++i) {
      if (kept > row_start && rows.entries[kept - 1].other == rows.entries[i].other) {
        auto& sum = rows.entries[kept - 1].volume;
        const double exact = static_cast<double>(sum) + static_cast<double>(rows.entries[i].volume);
        sum = static_cast<float>(exact);
        exact_ = exact_ && sum == exact;
      } else {
        rows.entries[kept++] = rows.entries[i];
      }
    }
    rows.start[row] = static_cast<std::int32_t>(row_start);
  }
  rows.start.back() = static_cast<std::int32_t>(kept);
  rows.entries.resize(kept);
  return kept < before;
}

}  // namespace troupe::balancer
