#include "balancer/sorted_items.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::balancer {

namespace {

constexpr int kDigitBits = 11;
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;

// One stable counting pass over a digit of the lengths, largest first.
void pass(const std::vector<LengthItem>& from, std::vector<LengthItem>& to, int shift) {
  std::array<std::uint32_t, kDigits> next{};
  const auto digit = [&](const LengthItem& item) {
    return kDigits - 1 - (static_cast<std::size_t>(item.length >> shift) & (kDigits - 1));
  };
  for (const auto& item : from) ++next[digit(item)];
  std::uint32_t start = 0;
  for (auto& count : next) start += std::exchange(count, start);
  for (const auto& item : from) to[next[digit(item)]++] = item;
}

}  // namespace

SortedItems sorted_by_length(const std::vector<std::vector<std::int64_t>>& lengths) {
  SortedItems sorted;
  std::size_t count = 0;
  for (const auto& rank : lengths) count += rank.size();
  sorted.items.reserve(count);
  sorted.places.reserve(count);
  std::uint32_t largest = 0;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    for (std::size_t i = 0; i < lengths[rank].size(); ++i) {
      const auto length = static_cast<std::uint32_t>(lengths[rank][i]);
      largest = std::max(largest, length);
      sorted.items.push_back({length, static_cast<std::uint32_t>(sorted.places.size())});
      sorted.places.push_back({static_cast<std::int32_t>(rank), static_cast<std::int32_t>(i)});
    }
  std::vector<LengthItem> scratch(count);
  for (int shift = 0; shift < 32 && (largest >> shift) > 0; shift += kDigitBits) {
    pass(sorted.items, scratch, shift);
    sorted.items.swap(scratch);
  }
  return sorted;
}

}  // namespace troupe::balancer
