#include "balancer/sorted_items.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::balancer {

namespace {

constexpr int kDigitBits = 11;
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;

// One stable counting pass, largest digit first.
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

std::vector<LengthItem> sorted_by_length(const std::vector<std::vector<std::int64_t>>& lengths) {
  std::vector<LengthItem> items;
  std::size_t count = 0;
  for (const auto& rank : lengths) count += rank.size();
  items.reserve(count);
  std::int64_t largest = 0;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    for (std::size_t i = 0; i < lengths[rank].size(); ++i) {
      largest = std::max(largest, lengths[rank][i]);
      items.push_back(
          {lengths[rank][i], {static_cast<std::int32_t>(rank), static_cast<std::int32_t>(i)}});
    }
  std::vector<LengthItem> scratch(items.size());
  for (int shift = 0; (largest >> shift) > 0; shift += kDigitBits) {
    pass(items, scratch, shift);
    items.swap(scratch);
  }
  return items;
}

}  // namespace troupe::balancer
