#include "balancer/ranks/sorted_items.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace troupe::balancer {

namespace {

constexpr int kDigitBitsMax = 11;

// Digits of the lengths, all of one width: few narrow passes, as each scatters to as many places
// as a digit has values, and the first-level cache holds the ends of some hundred runs only.
class Digits {
 public:
  explicit Digits(std::uint32_t largest) {
    const int bits = std::max<int>(1, std::bit_width(largest));
    count_ = (bits + kDigitBitsMax - 1) / kDigitBitsMax;
    width_ = (bits + count_ - 1) / count_;
    mask_ = (1U << width_) - 1;
  }

  int count() const { return count_; }
  /// Complemented, so that the largest come first.
  std::size_t of(std::uint32_t length, int digit) const {
    return mask_ - (length >> (digit * width_) & mask_);
  }
  /// Where the items of each value begin, from how many there are.
  std::vector<std::uint32_t> counters() const { return std::vector<std::uint32_t>(mask_ + 1, 0); }

 private:
  int count_ = 1;
  int width_ = 1;
  std::uint32_t mask_ = 1;
};

void to_starts(std::vector<std::uint32_t>& counts) {
  std::uint32_t start = 0;
  for (auto& count : counts) start += std::exchange(count, start);
}

template <class Visit>
void for_each_length(const std::vector<std::vector<std::int64_t>>& lengths, Visit visit) {
  for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    for (std::size_t i = 0; i < lengths[rank].size(); ++i)
      visit(rank, i, static_cast<std::uint32_t>(lengths[rank][i]));
}

// How numbers stand for places, and a table where 32 bits are too few.
SortedItems coded(const std::vector<std::vector<std::int64_t>>& lengths, std::size_t count) {
  SortedItems sorted;
  std::size_t longest = 0;
  for (const auto& rank : lengths) longest = std::max(longest, rank.size());
  sorted.index_bits = static_cast<std::uint32_t>(std::bit_width(longest));
  if (static_cast<std::uint32_t>(std::bit_width(lengths.size())) + sorted.index_bits <= 32)
    return sorted;
  sorted.places.reserve(count);
  for_each_length(lengths, [&](std::size_t rank, std::size_t i, std::uint32_t) {
    sorted.places.push_back({static_cast<std::int32_t>(rank), static_cast<std::int32_t>(i)});
  });
  return sorted;
}

}  // namespace

SortedItems sorted_by_length(const std::vector<std::vector<std::int64_t>>& lengths) {
  std::size_t count = 0;
  std::int64_t bits = 0;  // All that are set somewhere: as many as in the largest.
  for (const auto& rank : lengths) {
    count += rank.size();
    for (const auto length : rank) bits |= length;
  }
  const Digits digits(static_cast<std::uint32_t>(bits));
  auto sorted = coded(lengths, count);
  sorted.items.resize(count);
  std::vector<std::vector<std::uint32_t>> next(static_cast<std::size_t>(digits.count()));
  for (auto& counters : next) counters = digits.counters();
  for_each_length(lengths, [&](std::size_t, std::size_t, std::uint32_t length) {
    for (int digit = 0; digit < digits.count(); ++digit)
      ++next[static_cast<std::size_t>(digit)][digits.of(length, digit)];
  });
  for (auto& counters : next) to_starts(counters);
  // The first pass reads the lengths themselves.
  sorted.items.resize(count);
  std::uint32_t number = 0;
  for_each_length(lengths, [&](std::size_t rank, std::size_t i, std::uint32_t length) {
    const auto code = sorted.places.empty()
                          ? static_cast<std::uint32_t>(rank << sorted.index_bits | i)
                          : number++;
    sorted.items[next[0][digits.of(length, 0)]++] = {length, code};
  });
  std::vector<LengthItem> scratch(digits.count() > 1 ? count : 0);
  for (int digit = 1; digit < digits.count(); ++digit) {
    auto& counters = next[static_cast<std::size_t>(digit)];
    for (const auto& item : sorted.items) scratch[counters[digits.of(item.length, digit)]++] = item;
    sorted.items.swap(scratch);
  }
  return sorted;
}

}  // namespace troupe::balancer
