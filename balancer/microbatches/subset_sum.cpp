#include "balancer/microbatches/subset_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace troupe::balancer {

namespace {

constexpr std::int64_t kCellsMin = 16384;
constexpr std::size_t kTableItemsMax = 4096;
constexpr int kNeighbours = 6;  // Reached cells looked at on either side of a target.

bool closer(const SubsetSums::Choice& a, const SubsetSums::Choice& b) {
  const double gap_a = std::abs(a.sum - a.target);
  const double gap_b = std::abs(b.sum - b.target);
  return gap_a < gap_b || (gap_a == gap_b && a.sum < b.sum);
}

}  // namespace

SubsetSums::SubsetSums(std::span<const double> sizes)
    : sizes_(sizes.begin(), sizes.end()), order_(sizes.size()) {
  total_ = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) {
    return sizes_[static_cast<std::size_t>(a)] > sizes_[static_cast<std::size_t>(b)];
  });
  if (total_ > 0 && sizes_.size() <= kTableItemsMax) build();
}

void SubsetSums::build() {
  const auto count = static_cast<std::int64_t>(sizes_.size());
  const std::int64_t cells = std::max(kCellsMin, 8 * count);
  cell_size_ = total_ / static_cast<double>(cells);
  cell_count_ = cells + count / 2 + 2;  // Room for what rounding adds.
  const auto size = static_cast<std::size_t>(cell_count_);
  reached_.assign(size / 64 + 1, 0);
  last_item_.assign(size, -1);
  before_.assign(size, -1);
  true_sum_.assign(size, 0);
  reached_[0] = 1;
  // Largest first: early sums use few items, and the small ones then fill the gaps.
  for (const auto item : order_) add(item);
}

void SubsetSums::add(std::int32_t item) {
  const double size = sizes_[static_cast<std::size_t>(item)];
  const auto shift = std::llround(size / cell_size_);
  if (shift == 0) return;  // Below half a cell; the greedy choice may still use it.
  const std::int64_t word_shift = shift / 64;
  const std::int64_t bit_shift = shift % 64;
  // From the top word down, so that the words below are still those without this item.
  for (auto word = static_cast<std::int64_t>(reached_.size()) - 1; word >= word_shift; --word) {
    const auto from = static_cast<std::size_t>(word - word_shift);
    std::uint64_t moved = reached_[from] << bit_shift;
    if (bit_shift > 0 && from > 0) moved |= reached_[from - 1] >> (64 - bit_shift);
    std::uint64_t fresh = moved & ~reached_[static_cast<std::size_t>(word)];
    for (; fresh != 0; fresh &= fresh - 1) {
      const std::int64_t cell = word * 64 + std::countr_zero(fresh);
      if (cell >= cell_count_) break;
      const auto at = static_cast<std::size_t>(cell);
      reached_[at / 64] |= std::uint64_t{1} << (cell % 64);
      last_item_[at] = item;
      before_[at] = static_cast<std::int32_t>(cell - shift);
      true_sum_[at] = true_sum_[static_cast<std::size_t>(cell - shift)] + size;
    }
  }
}

template <class Take>
void SubsetSums::fill(double target, Take take) const {
  double sum = 0;
  for (const auto item : order_) {
    const double size = sizes_[static_cast<std::size_t>(item)];
    if (size <= 0) return;
    if (sum + size > target) continue;
    sum += size;
    take(item, size);
  }
}

void SubsetSums::consider(std::int64_t cell, Choice& best) const {
  const Choice choice{true_sum_[static_cast<std::size_t>(cell)], best.target, cell};
  if (closer(choice, best)) best = choice;
}

SubsetSums::Choice SubsetSums::closest(double target) const {
  Choice best{0, target, -1};
  fill(target, [&](std::int32_t, double size) { best.sum += size; });
  if (cell_count_ == 0) return best;
  const double cells = std::clamp(target / cell_size_, 0.0, static_cast<double>(cell_count_ - 1));
  const auto reached = [&](std::int64_t cell) {
    return (reached_[static_cast<std::size_t>(cell) / 64] >> (cell % 64)) & 1;
  };
  int found = 0;
  for (auto cell = std::llround(cells); cell >= 0 && found < kNeighbours; --cell)
    if (reached(cell)) consider(cell, best), ++found;
  found = 0;
  for (auto cell = std::llround(cells) + 1; cell < cell_count_ && found < kNeighbours; ++cell)
    if (reached(cell)) consider(cell, best), ++found;
  return best;
}

std::vector<std::int32_t> SubsetSums::items(const Choice& choice) const {
  std::vector<std::int32_t> chosen;
  if (choice.cell < 0)
    fill(choice.target, [&](std::int32_t item, double) { chosen.push_back(item); });
  for (auto cell = choice.cell; cell > 0; cell = before_[static_cast<std::size_t>(cell)])
    chosen.push_back(last_item_[static_cast<std::size_t>(cell)]);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace troupe::balancer
