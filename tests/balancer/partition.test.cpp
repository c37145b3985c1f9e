#include "balancer/microbatches/partition.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>

#include "balancer/microbatches/partition_ilp.hpp"
#include "balancer/microbatches/partition_search.hpp"
#include "tests/balancer/instances.hpp"

namespace troupe::balancer {
namespace {

double optimum(const std::vector<Workload>& samples, std::size_t buckets) {
  double best = HUGE_VAL;
  for_each_assignment(samples.size(), buckets, [&](const std::vector<std::size_t>& bucket_of) {
    std::vector<Workload> loads(buckets);
    for (std::size_t i = 0; i < samples.size(); ++i) loads[bucket_of[i]] += samples[i];
    double largest = 0;
    for (const auto& load : loads) largest = std::max({largest, load.encoder_ms, load.llm_ms});
    best = std::min(best, largest);
  });
  return best;
}

// Both workloads scaled to the same sum, so that both bind.
std::vector<Workload> equally_binding(std::uint64_t seed, std::size_t count, double sigma) {
  auto samples = log_normal_workloads(seed, count, sigma);
  const auto sum = total(samples);
  for (auto& sample : samples) sample.llm_ms *= sum.encoder_ms / sum.llm_ms;
  return samples;
}

TEST_CASE("the lower bound is the largest of four", "[balancer]") {
  // LLM 2,4,3,16,13,5,9,10 in four: mean 15.5, largest 16.
  std::vector<Workload> samples;
  for (const double load : {2, 4, 3, 16, 13, 5, 9, 10}) samples.push_back({0, load});
  CHECK(partition_lower_bound(samples, 4) == 16);
  // 5, 5, 5 in two: mean 7.5, some bucket has two samples: 10.
  CHECK(partition_lower_bound(std::vector<Workload>(3, {5, 1}), 2) == 10);
  // 9, 8, 1, 1, 1 in one and a half... in two: mean 10; in four: two of 9, 8, 1, 1, 1 share: 9 is
  // larger than 1 + 1; in one: 20.
  const std::vector<Workload> uneven{{9, 0}, {8, 0}, {1, 0}, {1, 0}, {1, 0}};
  CHECK(partition_lower_bound(uneven, 2) == 10);
  CHECK(partition_lower_bound(uneven, 4) == 9);
  CHECK(partition_lower_bound(uneven, 1) == 20);
  CHECK(partition_lower_bound({}, 3) == 0);
}

TEST_CASE("partition_lpt looks at both sums", "[balancer]") {
  // By sum: 0 (10), 1 (9), 2 (5), 3 (4). 0 -> bucket 0 (8,2); 1 -> bucket 1 (1,8); 2 = (4,1): max
  // 12 in bucket 0, 9 in bucket 1 -> bucket 1 (5,9); 3 = (1,3): 9 in bucket 0, 12 in 1 -> 0.
  const std::vector<Workload> samples{{8, 2}, {1, 8}, {4, 1}, {1, 3}};
  CHECK(partition_lpt(samples, 2) == SampleGroups{{0, 3}, {1, 2}});
}

TEST_CASE("the search trades what longest first cannot", "[balancer]") {
  // LLM 8,7,6,5,4 in two: longest first ends at 17 (8+5+4, 7+6), the optimum is 15 (8+7, 6+5+4).
  std::vector<Workload> samples;
  for (const double load : {8, 7, 6, 5, 4}) samples.push_back({0, load});
  CHECK(largest_sum(samples, partition_lpt(samples, 2)) == 17);
  CHECK(largest_sum(samples, partition_search(samples, 2)) == 15);
}

TEST_CASE("the search loads buckets in proportion to their speed", "[balancer]") {
  const auto samples = log_normal_workloads(4, 400);
  const std::vector<Workload> speeds{{1, 1}, {2, 2}, {5, 5}};
  SampleGroups start(3);
  for (std::int32_t i = 0; i < 400; ++i) start[0].push_back(i);
  const auto loads = group_loads(samples, improve_partition(samples, start, speeds, {}));
  const double fair = std::max(total(samples).llm_ms, total(samples).encoder_ms) / 8;
  for (std::size_t b = 0; b < 3; ++b)
    CHECK(std::max(loads[b].encoder_ms, loads[b].llm_ms) / speeds[b].llm_ms < fair * 1.01);
}

TEST_CASE("the search keeps to its budget and to the caller's word", "[balancer]") {
  const auto samples = equally_binding(1, 512, 0.6);
  CHECK(partition_search(samples, 32, {.evaluations_max = 0}) == partition_lpt(samples, 32));
  int asked = 0;
  const SearchBudget three{.keep_going = [&] { return ++asked <= 3; }};
  const auto early = largest_sum(samples, partition_search(samples, 32, three));
  CHECK(asked == 4);
  CHECK(largest_sum(samples, partition_search(samples, 32)) < early);
}

TEST_CASE("partitions lose nothing and keep their bounds on every small instance",
          "[balancer][property]") {
  const auto seed = GENERATE(range(0u, 1500u));
  Random random(seed);
  auto samples = small_workloads(seed, random.below(7));
  const bool one_workload = seed % 2 == 0;
  for (auto& sample : samples)
    if (one_workload) sample.encoder_ms = 0;
  const std::size_t buckets = 1 + random.below(3);
  const auto count = static_cast<std::int64_t>(buckets);
  const double best = optimum(samples, buckets);
  const auto lpt = partition_lpt(samples, count);
  const auto search = partition_search(samples, count);
  REQUIRE(is_partition(lpt, samples.size()));
  REQUIRE(is_partition(search, samples.size()));
  const double m = static_cast<double>(buckets);
  const double ratio = one_workload ? 4.0 / 3 - 1 / (3 * m) : 2 * (2 - 1 / m);
  CHECK(largest_sum(samples, lpt) <= ratio * best + 1e-9);
  CHECK(largest_sum(samples, search) <= largest_sum(samples, lpt));
  CHECK(partition_lower_bound(samples, count) <= best + 1e-9);
}

TEST_CASE("the integer program finds the optimum of small instances", "[balancer][property]") {
  const auto seed = GENERATE(range(0u, 25u));
  Random random(seed);
  const auto samples = small_workloads(seed, 1 + random.below(6));
  const std::size_t buckets = 1 + random.below(3);
  const auto count = static_cast<std::int64_t>(buckets);
  for (const auto method : {PartitionMethod::ilp, PartitionMethod::automatic}) {
    const auto found =
        partition(samples, {.bucket_count = count, .method = method, .time_limit_ms = 20'000})
            .value();
    REQUIRE(is_partition(found.buckets, samples.size()));
    CHECK(std::abs(found.max_ms - optimum(samples, buckets)) < 1e-6);
    CHECK(std::abs(found.lower_bound_ms - found.max_ms) < 1e-6);
  }
}

TEST_CASE("2,048 samples come within two thousandths of the bound", "[balancer]") {
  const auto samples = equally_binding(7, 2048, 0.6);
  const auto found =
      partition(samples, {.bucket_count = 128, .method = PartitionMethod::search}).value();
  CHECK(found.method == "search");
  CHECK(found.max_ms <= found.lower_bound_ms * 1.002);
}

TEST_CASE("methods are named and bad options refused", "[balancer][errors]") {
  CHECK(partition_method_from("lpt").value() == PartitionMethod::lpt);
  CHECK(partition_method_from("serach").error().fix == "did you mean `search`?");
  const std::vector<Workload> samples{{1, 1}};
  CHECK_FALSE(partition(samples, {.bucket_count = 0}).ok());
  CHECK_FALSE(partition(samples, {.time_limit_ms = 0}).ok());
  CHECK_FALSE(partition(samples, {.time_limit_ms = NAN}).ok());
  CHECK_FALSE(partition(std::vector<Workload>{{NAN, 1}}, {}).ok());
}

TEST_CASE("more buckets than samples, none, one giant and a million samples are ordinary",
          "[balancer]") {
  const auto few = partition(std::vector<Workload>(2, {3, 1}), {.bucket_count = 5}).value();
  CHECK(few.buckets.size() == 5);
  CHECK(few.max_ms == 3);
  CHECK(partition({}, {.bucket_count = 2}).value().max_ms == 0);
  std::vector<Workload> giant(50, {1, 1});
  giant.push_back({1, 1000});
  CHECK(partition(giant, {.bucket_count = 4}).value().max_ms == 1000);
  const auto many = log_normal_workloads(2, 1'000'000);
  const auto search = partition(many, {.bucket_count = 64, .method = PartitionMethod::search});
  CHECK(search.value().max_ms <= search.value().lower_bound_ms * 1.001);
  // 65,536 buckets: looking at all of them for each sample would take minutes.
  const auto crowd = partition_lpt(many, 65'536);
  CHECK(is_partition(crowd, many.size()));
  CHECK(largest_sum(many, crowd) <= 1.5 * partition_lower_bound(many, 65'536));
}

}  // namespace
}  // namespace troupe::balancer
