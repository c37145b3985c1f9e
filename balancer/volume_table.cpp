#include "balancer/volume_table.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::balancer {

namespace {

bool by_batch(const BatchVolume& a, const BatchVolume& b) { return a.batch < b.batch; }

}  // namespace

VolumeTable::VolumeTable(const NodeWiseProblem& problem) : volumes_(problem.volumes) {
  if (!std::is_sorted(volumes_.begin(), volumes_.end(), by_batch)) {
    sorted_ = problem.volumes;
    std::stable_sort(sorted_.begin(), sorted_.end(), by_batch);
    volumes_ = sorted_;
  }
  build(static_cast<std::size_t>(problem.rank_count));
  merge_doubles();
}

void VolumeTable::build(std::size_t ranks) {
  rank_start_.assign(ranks + 1, 0);
  batch_start_.assign(ranks + 1, 0);
  entries_.resize(volumes_.size());
  for (const auto& volume : volumes_) {
    ++rank_start_[static_cast<std::size_t>(volume.origin_rank) + 1];
    ++batch_start_[static_cast<std::size_t>(volume.batch) + 1];
  }
  std::partial_sum(rank_start_.begin(), rank_start_.end(), rank_start_.begin());
  std::partial_sum(batch_start_.begin(), batch_start_.end(), batch_start_.begin());
  auto next = rank_start_;
  for (const auto& volume : volumes_) {
    const auto rounded = static_cast<float>(volume.volume);
    exact_ = exact_ && rounded == volume.volume;
    entries_[next[static_cast<std::size_t>(volume.origin_rank)]++] = {volume.batch, rounded};
  }
}

// Rows ascend by batch, so volumes of one pair stand side by side: adds them up in place.
void VolumeTable::merge_doubles() {
  std::uint32_t kept = 0;
  for (std::size_t rank = 0; rank + 1 < rank_start_.size(); ++rank) {
    const std::uint32_t row_start = kept;
    // The next row's start is overwritten only in the next round.
    for (std::uint32_t i = rank_start_[rank]; i < rank_start_[rank + 1]; ++i) {
      if (kept == row_start || entries_[kept - 1].batch != entries_[i].batch) {
        entries_[kept++] = entries_[i];
        continue;
      }
      auto& sum = entries_[kept - 1].volume;
      const double exact = static_cast<double>(sum) + static_cast<double>(entries_[i].volume);
      sum = static_cast<float>(exact);
      exact_ = exact_ && sum == exact;
    }
    rank_start_[rank] = row_start;
  }
  rank_start_.back() = kept;
  entries_.resize(kept);
}

}  // namespace troupe::balancer
