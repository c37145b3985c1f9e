#include "kernels/gpu_sub_blocks.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace troupe::kernels::gpu {

namespace {

// A grid's second dimension counts parts.
constexpr std::size_t kPartsMax = 65535;

std::int64_t divide_up(std::int64_t number, std::int64_t by) { return (number + by - 1) / by; }

std::int32_t turns_of(const SubBlock& part) { return part.to - part.from; }

}  // namespace

SubBlocks cut_blocks(std::span<const std::int32_t> turns, std::int32_t turns_max) {
  SubBlocks result;
  for (std::size_t index = 0; index < turns.size(); ++index) {
    const auto block = static_cast<std::int32_t>(index);
    const std::int64_t length = turns[index];
    const auto count = static_cast<std::int32_t>(divide_up(length, turns_max));
    if (count <= 1) {
      result.parts.push_back({block, 0, turns[index], -1});
      continue;
    }
    result.splits.push_back({block, result.slots, count});
    for (std::int64_t piece = 0; piece < count; ++piece)
      result.parts.push_back({block, static_cast<std::int32_t>(length * piece / count),
                              static_cast<std::int32_t>(length * (piece + 1) / count),
                              result.slots++});
  }
  // Long ones first, so that the last to end are short.
  std::stable_sort(result.parts.begin(), result.parts.end(),
                   [](const auto& a, const auto& b) { return turns_of(a) > turns_of(b); });
  return result;
}

std::int64_t makespan(const SubBlocks& list, const Spread& spread) {
  const auto thread_blocks = std::ssize(list.parts) * spread.copies;
  const auto places = std::max<std::int64_t>(std::min(spread.places, thread_blocks), 1);
  // When each place is free: a heap, the earliest on top.
  std::vector<std::int64_t> free_at(static_cast<std::size_t>(places));
  for (const auto& part : list.parts)
    for (std::int64_t copy = 0; copy < spread.copies; ++copy) {
      std::pop_heap(free_at.begin(), free_at.end(), std::greater<>());
      free_at.back() += turns_of(part) + (part.slot >= 0 ? kPartialTurns : 0);
      std::push_heap(free_at.begin(), free_at.end(), std::greater<>());
    }
  return *std::max_element(free_at.begin(), free_at.end()) +
         (list.splits.empty() ? 0 : kMergeTurns);
}

SubBlocks balance_blocks(std::span<const std::int32_t> turns, const Spread& spread) {
  auto best = cut_blocks(turns, std::numeric_limits<std::int32_t>::max());
  if (spread.places < 1 || spread.copies < 1 || turns.empty()) return best;
  const std::int64_t longest = *std::max_element(turns.begin(), turns.end());
  const auto total = std::accumulate(turns.begin(), turns.end(), std::int64_t{0}) * spread.copies;
  // A list is done at most its longest part after the mean of places, in any order (Graham).
  if (longest * kSharesMax * spread.places <= total) return best;
  auto soonest = makespan(best, spread);
  for (std::int64_t shares = 1; shares <= kSharesMax; shares *= 2) {
    const auto most = std::max<std::int64_t>(divide_up(total, spread.places * shares), 1);
    if (most >= longest) continue;
    auto cut = cut_blocks(turns, static_cast<std::int32_t>(most));
    if (cut.parts.size() > kPartsMax) break;
    const auto end = makespan(cut, spread);
    if (end >= soonest) continue;
    soonest = end;
    best = std::move(cut);
  }
  return best;
}

}  // namespace troupe::kernels::gpu
