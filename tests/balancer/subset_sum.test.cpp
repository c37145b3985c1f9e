#include "balancer/microbatches/subset_sum.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <numeric>

#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {
namespace {

double sum_of(const std::vector<double>& sizes, const std::vector<std::int32_t>& items) {
  double sum = 0;
  for (const auto item : items) sum += sizes[static_cast<std::size_t>(item)];
  return sum;
}

double best_gap(const std::vector<double>& sizes, double target) {
  double best = HUGE_VAL;
  for (std::uint32_t mask = 0; mask < (1u << sizes.size()); ++mask) {
    double sum = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (mask >> i & 1) sum += sizes[i];
    best = std::min(best, std::abs(sum - target));
  }
  return best;
}

TEST_CASE("closest finds the subset by hand", "[balancer]") {
  // Of 7, 5, 3 the sums near 9 are 8 = 5 + 3 and 10 = 7 + 3: a tie, so the smaller.
  const SubsetSums sums(std::vector<double>{7, 5, 3});
  const auto choice = sums.closest(9);
  CHECK(choice.sum == 8);
  CHECK(sums.items(choice) == std::vector<std::int32_t>{1, 2});
  CHECK(sums.items(sums.closest(0)).empty());
  CHECK(sums.closest(100).sum == 15);
  CHECK(sums.closest(-4).sum == 0);
}

TEST_CASE("closest has an answer for no items and for items of size 0", "[balancer]") {
  CHECK(SubsetSums({}).closest(3).sum == 0);
  const SubsetSums zeros(std::vector<double>{0, 0});
  CHECK(zeros.items(zeros.closest(1)).empty());
}

TEST_CASE("closest is exact on integers and near it on reals", "[balancer][property]") {
  const auto seed = GENERATE(range(0u, 500u));
  Random random(seed);
  std::vector<double> sizes(1 + random.below(11));
  const bool integers = seed % 2 == 0;
  for (auto& size : sizes)
    size = integers ? static_cast<double>(random.below(50)) : random.log_normal(1, 1);
  const SubsetSums sums(sizes);
  const double target = random.uniform() * sums.total();
  const auto choice = sums.closest(target);
  // The handle leads to items that add up to what was promised.
  CHECK(std::abs(sum_of(sizes, sums.items(choice)) - choice.sum) < 1e-9);
  const double cells = static_cast<double>(sizes.size()) / 2 + 1;
  const double slack = integers ? 1e-9 : cells * sums.total() / 16384;
  CHECK(std::abs(choice.sum - target) <= best_gap(sizes, target) + slack);
}

TEST_CASE("a hundred thousand sizes are answered greedily and closely", "[balancer]") {
  Random random(5);
  std::vector<double> sizes(100'000);
  for (auto& size : sizes) size = random.log_normal(1, 1);
  const SubsetSums sums(sizes);
  const auto choice = sums.closest(sums.total() / 3);
  CHECK(std::abs(choice.sum - sums.total() / 3) < 0.1);
  CHECK(std::abs(sum_of(sizes, sums.items(choice)) - choice.sum) < 1e-3);
}

}  // namespace
}  // namespace troupe::balancer
