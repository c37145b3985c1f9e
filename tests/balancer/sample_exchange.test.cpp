#include "balancer/microbatches/sample_exchange.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <cstddef>

#include "tests/balancer/instances.hpp"

namespace troupe::balancer {
namespace {

using Catch::Approx;

// Weighs the groups unevenly, so that sizes, sides and order all count.
double uneven(std::span<const Workload> loads) {
  double largest = 0;
  for (std::size_t g = 0; g < loads.size(); ++g) {
    const auto weight = 1 + 0.5 * static_cast<double>(g);
    largest = std::max({largest, weight * loads[g].encoder_ms, loads[g].llm_ms / weight});
  }
  return 1 + largest;
}

std::vector<std::int32_t> all_samples(const SampleGroups& groups) {
  std::vector<std::int32_t> samples;
  for (const auto& group : groups) samples.insert(samples.end(), group.begin(), group.end());
  std::ranges::sort(samples);
  return samples;
}

TEST_CASE("exchanging samples loses none and returns the best loads it saw",
          "[balancer][property]") {
  const auto seed = GENERATE(range(0u, 100u));
  const auto samples = log_normal_workloads(seed, 20 + seed % 30);
  SampleGroups groups(2 + seed % 5);
  for (std::size_t i = 0; i < samples.size(); ++i)
    groups[i % groups.size()].push_back(static_cast<std::int32_t>(i));
  const double start = uneven(group_loads(samples, groups));
  // Some searches end by themselves, some are told to.
  std::int64_t left = seed % 2 == 0 ? 5000 : 700;
  double least = HUGE_VAL;
  const auto found =
      exchange_samples(samples, groups, {.seed = seed, .trials_max = 2000},
                       [&](std::span<const Workload> loads) -> std::optional<double> {
                         if (left-- == 0) return std::nullopt;
                         least = std::min(least, uneven(loads));
                         return uneven(loads);
                       });
  CHECK((seed % 2 == 0 ? left >= 5000 - 2000 : left == -1));
  CHECK(all_samples(found) == all_samples(groups));
  CHECK(std::ranges::none_of(found, [](const auto& group) { return group.empty(); }));
  CHECK(
      std::ranges::all_of(found, [](const auto& group) { return std::ranges::is_sorted(group); }));
  CHECK(uneven(group_loads(samples, found)) == Approx(least).epsilon(1e-12));
  CHECK(least < start);
}

TEST_CASE("exchanging samples mostly ends at the optimum of small instances",
          "[balancer][property]") {
  int optimal = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto samples = small_workloads(seed, 7);
    double best = HUGE_VAL;
    for_each_assignment(7, 2, [&](const std::vector<std::size_t>& group_of) {
      SampleGroups groups(2);
      for (std::size_t i = 0; i < 7; ++i)
        groups[group_of[i]].push_back(static_cast<std::int32_t>(i));
      if (!groups[0].empty() && !groups[1].empty())
        best = std::min(best, uneven(group_loads(samples, groups)));
    });
    const auto found = exchange_samples(
        samples, {{0, 1, 2, 3}, {4, 5, 6}}, {.seed = seed, .trials_max = 3000},
        [&](std::span<const Workload> loads) { return std::optional(uneven(loads)); });
    const double reached = uneven(group_loads(samples, found));
    CHECK(reached >= best);
    optimal += reached <= best ? 1 : 0;
  }
  CHECK(optimal >= 40);
}

TEST_CASE("what was moved away leaves nothing behind", "[balancer]") {
  // Thirds do not add up to nothing in floating point.
  std::vector<Workload> samples;
  for (int i = 0; i < 12; ++i) samples.push_back({i < 4 ? 1.0 / 3 + 0.1 * i : 0, 1});
  SampleGroups groups(4);
  for (std::int32_t i = 0; i < 12; ++i) groups[static_cast<std::size_t>(i % 4)].push_back(i);
  int asked = 0, without = 0;
  exchange_samples(samples, groups, {.seed = 1, .trials_max = 5000},
                   [&](std::span<const Workload> loads) -> std::optional<double> {
                     for (const auto& load : loads) {
                       CHECK((load.encoder_ms == 0 || load.encoder_ms > 0.3));
                       without += load.encoder_ms == 0 ? 1 : 0;
                     }
                     // Never twice the same: every change is kept at times.
                     return 1 + 1e-9 * (++asked % 7);
                   });
  CHECK(asked > 1000);
  CHECK(without > 100);
}

TEST_CASE("a single microbatch has nothing to exchange", "[balancer]") {
  const std::vector<Workload> samples{{1, 1}, {2, 2}};
  const auto constant = [](std::span<const Workload>) { return std::optional(1.0); };
  CHECK(exchange_samples(samples, {{0, 1}}, {.trials_max = 100}, constant) == SampleGroups{{0, 1}});
  CHECK(exchange_samples({}, SampleGroups(2), {.trials_max = 100}, constant) == SampleGroups(2));
}

}  // namespace
}  // namespace troupe::balancer
