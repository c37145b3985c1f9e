// The counting half of instantiate.hpp: numbers of any length.

#include <algorithm>
#include <cstdio>

#include "scheduler/recovery/instantiate.hpp"

namespace troupe::scheduler {

namespace {

// A non-negative whole number in limbs of 18 decimal digits, least first; empty is zero. Addition
// is all that counting needs.
class Natural {
 public:
  Natural() = default;
  explicit Natural(std::uint64_t small) : limbs_{small} {}

  Natural& operator+=(const Natural& other) {
    if (limbs_.size() < other.limbs_.size()) limbs_.resize(other.limbs_.size(), 0);
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < limbs_.size(); ++i) {
      if (i >= other.limbs_.size() && carry == 0) break;
      limbs_[i] += carry + (i < other.limbs_.size() ? other.limbs_[i] : 0);
      carry = limbs_[i] >= kBase ? 1 : 0;
      if (carry) limbs_[i] -= kBase;
    }
    if (carry) limbs_.push_back(carry);
    return *this;
  }

  std::string text() const {
    if (limbs_.empty()) return "0";
    std::string digits = std::to_string(limbs_.back());
    for (std::size_t i = limbs_.size() - 1; i-- > 0;) {
      char block[24];
      std::snprintf(block, sizeof block, "%018llu", static_cast<unsigned long long>(limbs_[i]));
      digits += block;
    }
    return digits;
  }

 private:
  static constexpr std::uint64_t kBase = 1'000'000'000'000'000'000;
  std::vector<std::uint64_t> limbs_;
};

}  // namespace

std::string count_combinations(const std::vector<std::int64_t>& sizes, std::int64_t node_count,
                               std::int64_t pipelines_min) {
  // Coin change (eq. 2.5) with the number of pipelines beside the nodes, saturating at the minimum.
  const std::int64_t enough = std::max<std::int64_t>(pipelines_min, 0);
  const auto at = [&](std::int64_t nodes, std::int64_t pipelines) {
    return static_cast<std::size_t>(nodes * (enough + 1) + pipelines);
  };
  std::vector<Natural> ways(at(node_count + 1, 0));
  ways[0] = Natural{1};
  for (const std::int64_t size : sizes)
    for (std::int64_t nodes = size; nodes <= node_count; ++nodes)
      for (std::int64_t pipelines = 0; pipelines <= enough; ++pipelines)
        ways[at(nodes, std::min(pipelines + 1, enough))] += ways[at(nodes - size, pipelines)];
  return ways[at(node_count, enough)].text();
}

}  // namespace troupe::scheduler
