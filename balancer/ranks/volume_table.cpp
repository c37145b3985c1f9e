#include "balancer/ranks/volume_table.hpp"

#include <numeric>

namespace troupe::balancer {

VolumeTable::VolumeTable(const NodeWiseProblem& problem) {
  const auto ranks = static_cast<std::size_t>(problem.rank_count);
  std::vector<std::uint32_t> row_sizes(ranks, 0);
  batch_start_.assign(ranks + 1, 0);
  for (const auto& volume : problem.volumes) {
    ++row_sizes[static_cast<std::size_t>(volume.origin_rank)];
    ++batch_start_[static_cast<std::size_t>(volume.batch) + 1];
  }
  std::partial_sum(batch_start_.begin(), batch_start_.end(), batch_start_.begin());
  by_batch_.resize(problem.volumes.size());
  auto next = batch_start_;
  for (const auto& volume : problem.volumes)
    by_batch_[next[static_cast<std::size_t>(volume.batch)]++] = {volume.origin_rank,
                                                                 rounded(volume.volume)};
  add_rows_by_rank(row_sizes);
}

VolumeTable::VolumeTable(const PostBalanced& balanced) {
  const auto& from = balanced.rearrangement;
  by_batch_.resize(from.item_count());
  batch_start_.push_back(0);
  std::size_t next = 0;
  for (std::size_t batch = 0; batch < from.batch_count(); ++batch) {
    for (const auto& item : from.batch(batch)) {
      by_batch_[next] = {item.rank, rounded(balanced.lengths[next])};
      ++next;
    }
    batch_start_.push_back(static_cast<std::uint32_t>(next));
  }
  std::vector<std::uint32_t> row_sizes(from.batch_count(), 0);
  const auto sizes = from.source_sizes();
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    row_sizes[rank] = static_cast<std::uint32_t>(sizes[rank]);
  add_rows_by_rank(row_sizes);
}

float VolumeTable::rounded(double volume) {
  const auto result = static_cast<float>(volume);
  exact_ = exact_ && result == volume;
  return result;
}

// Batch by batch, so that volumes of one pair meet in the row's last entry.
void VolumeTable::add_rows_by_rank(const std::vector<std::uint32_t>& row_sizes) {
  rank_start_.resize(row_sizes.size());
  std::exclusive_scan(row_sizes.begin(), row_sizes.end(), rank_start_.begin(), std::uint32_t{0});
  rank_end_ = rank_start_;
  by_rank_.resize(by_batch_.size());
  for (std::size_t batch = 0; batch + 1 < batch_start_.size(); ++batch)
    for (const auto& entry : of_batch(batch)) {
      const auto rank = static_cast<std::size_t>(entry.other);
      const auto end = rank_end_[rank];
      if (end > rank_start_[rank] && by_rank_[end - 1].other == static_cast<std::int32_t>(batch)) {
        auto& sum = by_rank_[end - 1].volume;
        sum = rounded(static_cast<double>(sum) + static_cast<double>(entry.volume));
      } else {
        by_rank_[rank_end_[rank]++] = {static_cast<std::int32_t>(batch), entry.volume};
      }
    }
}

}  // namespace troupe::balancer
