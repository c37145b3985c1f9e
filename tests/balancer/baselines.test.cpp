#include "balancer/microbatches/baselines.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>

#include "tests/balancer/instances.hpp"

namespace troupe::balancer {
namespace {

double best_llm_max(const std::vector<Workload>& samples, std::size_t groups) {
  double best = HUGE_VAL;
  for_each_assignment(samples.size(), groups, [&](const std::vector<std::size_t>& group_of) {
    std::vector<double> loads(groups, 0);
    for (std::size_t i = 0; i < samples.size(); ++i) loads[group_of[i]] += samples[i].llm_ms;
    best = std::min(best, *std::max_element(loads.begin(), loads.end()));
  });
  return best;
}

TEST_CASE("in-order groups are runs of nearly equal count", "[balancer]") {
  CHECK(in_order_groups(7, 3) == SampleGroups{{0, 1, 2}, {3, 4}, {5, 6}});
  CHECK(in_order_groups(1, 3) == SampleGroups{{0}, {}, {}});
  CHECK(in_order_groups(0, 2) == SampleGroups(2));
}

TEST_CASE("random groups depend on the seed alone", "[balancer]") {
  CHECK(random_groups(50, 5, 3) == random_groups(50, 5, 3));
  CHECK(random_groups(50, 5, 3) != random_groups(50, 5, 4));
  CHECK(is_partition(random_groups(50, 7, 3), 50));
}

TEST_CASE("disttrain starts with the smallest and drains with the next smallest", "[balancer]") {
  // Sizes 9, 2, 7, 3, 8 with two stages: 1 first, 3 last. Between: after microbatch 1 (LLM 1) the
  // encoder work closest to 1 is microbatch 2's 2; then LLM 5 -> microbatch 4's 4 (0 has 8).
  const std::vector<Workload> samples{{8, 1}, {1, 1}, {2, 5}, {1, 2}, {4, 4}};
  CHECK(disttrain_groups(samples, 5, 2) == SampleGroups{{1}, {2}, {4}, {0}, {3}});
  CHECK(disttrain_groups(samples, 5, 99).size() == 5);
  CHECK(disttrain_groups(samples, 1, 3) == SampleGroups{{0, 1, 2, 3, 4}});
}

TEST_CASE("llm-only puts the longest first", "[balancer]") {
  // 16, 13, 10, 9 open the buckets; 5 joins 9 (14), 4 joins 10 (14), 3 joins 13 (16), 2 joins the
  // lower bucket of those at 14 (16). The largest is the optimum, the largest item.
  std::vector<Workload> samples;
  for (const double load : {2, 4, 3, 16, 13, 5, 9, 10}) samples.push_back({0, load});
  const auto groups = llm_only_groups(samples, 4);
  CHECK(groups == SampleGroups{{3}, {2, 4}, {0, 1, 7}, {5, 6}});
  CHECK(llm_spread(group_loads(samples, groups)).max_ms == 16);
}

TEST_CASE("llm-only keeps the bound of longest processing time first", "[balancer][property]") {
  const auto seed = GENERATE(range(0u, 1000u));
  Random random(seed);
  const auto samples = small_workloads(seed, 1 + random.below(6));
  const auto groups = 1 + random.below(3);
  const auto assigned = llm_only_groups(samples, static_cast<std::int64_t>(groups));
  const double bound = 4.0 / 3 - 1 / (3 * static_cast<double>(groups));
  CHECK(llm_spread(group_loads(samples, assigned)).max_ms <=
        bound * best_llm_max(samples, groups) + 1e-9);
}

TEST_CASE("differencing solves the textbook case", "[balancer]") {
  // 8, 7, 6, 5, 4 in two ways: 8-7=1, 6-5=1, 4-1=3, 3-1=2: the sums differ by 2.
  std::vector<Workload> samples;
  for (const double load : {8, 7, 6, 5, 4}) samples.push_back({0, load});
  const auto loads = group_loads(samples, karmarkar_karp_groups(samples, 2));
  CHECK(std::abs(loads[0].llm_ms - loads[1].llm_ms) == 2);
}

TEST_CASE("differencing loses no sample and beats longest first on average",
          "[balancer][property]") {
  double differencing = 0;
  double longest_first = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    auto samples = log_normal_workloads(seed, random.below(120));
    for (auto& sample : samples) sample.encoder_ms = 0;
    const auto ways = static_cast<std::int64_t>(1 + random.below(9));
    const auto groups = karmarkar_karp_groups(samples, ways);
    REQUIRE(groups.size() == static_cast<std::size_t>(ways));
    REQUIRE(is_partition(groups, samples.size()));
    differencing += llm_spread(group_loads(samples, groups)).max_ms;
    longest_first += llm_spread(group_loads(samples, llm_only_groups(samples, ways))).max_ms;
  }
  CHECK(differencing < longest_first);
}

}  // namespace
}  // namespace troupe::balancer
