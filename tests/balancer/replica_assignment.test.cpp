#include "balancer/ranks/replica_assignment.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>

#include "tests/balancer/instances.hpp"

namespace troupe::balancer {
namespace {

TEST_CASE("assign_replicas gives each sample to the least LLM work", "[balancer]") {
  // By encoder: 1 (9), 0 (5), 3 (4), 2 (1). Sample 1 -> replica 0 (LLM 2); 0 -> replica 1 (LLM 6);
  // 3 -> replica 0 (LLM 5); 2 -> replica 0 (5 < 6).
  const std::vector<Workload> samples{{5, 6}, {9, 2}, {1, 8}, {4, 3}};
  const std::vector<double> speeds{1, 1};
  CHECK(assign_replicas(samples, speeds).value() == SampleGroups{{1, 2, 3}, {0}});
}

TEST_CASE("assign_replicas loads replicas in proportion to their speed", "[balancer]") {
  // Equal samples, speeds 1 and 3: of eight samples the fast replica takes six.
  const std::vector<Workload> samples(8, {1, 1});
  const auto replicas = assign_replicas(samples, std::vector<double>{1, 3}).value();
  CHECK(replicas[0].size() == 2);
  CHECK(replicas[1].size() == 6);
}

TEST_CASE("assign_replicas spreads samples without LLM work by encoder work", "[balancer]") {
  const std::vector<Workload> samples(4, {2, 0});
  const auto replicas = assign_replicas(samples, std::vector<double>{1, 1}).value();
  CHECK(replicas[0].size() == 2);
}

TEST_CASE("samples of one work alone go to who is done first, too", "[balancer]") {
  // 9 -> replica 1 (4.5 < 9); 5 -> 0 (5 < 7); 4 -> 1 (6.5 < 9); 3 -> 0 (8, as long as 1, is lower).
  const std::vector<Workload> samples{{3, 3}, {9, 9}, {5, 5}, {4, 4}};
  CHECK(assign_replicas(samples, std::vector<double>{1, 2}).value() ==
        SampleGroups{{0, 2}, {1, 3}});
}

TEST_CASE("assign_replicas refuses bad speeds and workloads", "[balancer][errors]") {
  const std::vector<Workload> samples{{1, 1}};
  CHECK_FALSE(assign_replicas(samples, {}).ok());
  const auto zero = assign_replicas(samples, std::vector<double>{1, 0});
  REQUIRE_FALSE(zero.ok());
  CHECK(zero.error().where == "replica 1");
  CHECK_FALSE(assign_replicas(samples, std::vector<double>{NAN}).ok());
  CHECK_FALSE(assign_replicas(std::vector<Workload>{{-1, 1}}, std::vector<double>{1}).ok());
}

TEST_CASE("assign_replicas loses no sample and stays within list scheduling's bound",
          "[balancer][property]") {
  const auto seed = GENERATE(range(0u, 200u));
  Random random(seed);
  const auto samples = small_workloads(seed, random.below(40));
  const std::vector<double> speeds(1 + random.below(6), 1.0);
  const auto replicas = assign_replicas(samples, speeds).value();
  REQUIRE(is_partition(replicas, samples.size()));
  double largest = 0;
  for (const auto& sample : samples) largest = std::max(largest, sample.llm_ms);
  const double mean = total(samples).llm_ms / static_cast<double>(speeds.size());
  CHECK(llm_spread(group_loads(samples, replicas)).max_ms <= mean + largest);
}

TEST_CASE("the search balances both workloads over unequal replicas", "[balancer][property]") {
  const auto seed = GENERATE(range(0u, 20u));
  const auto samples = log_normal_workloads(seed, 256);
  const std::vector<double> speeds{1, 1.5, 2, 2};
  const auto worst = [&](const SampleGroups& replicas) {
    double largest = 0;
    const auto loads = group_loads(samples, replicas);
    for (std::size_t r = 0; r < loads.size(); ++r)
      largest = std::max({largest, loads[r].encoder_ms / speeds[r], loads[r].llm_ms / speeds[r]});
    return largest;
  };
  const auto replicas = assign_replicas_search(samples, speeds).value();
  REQUIRE(is_partition(replicas, samples.size()));
  CHECK(worst(replicas) <= worst(assign_replicas(samples, speeds).value()));
  const auto sum = total(samples);
  CHECK(worst(replicas) <= std::max(sum.encoder_ms, sum.llm_ms) / 6.5 * 1.002);
  CHECK_FALSE(assign_replicas_search(samples, {}).ok());
}

}  // namespace
}  // namespace troupe::balancer
