#include "balancer/microbatches/hierarchical.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "balancer/microbatches/baselines.hpp"
#include "balancer/microbatches/policies.hpp"
#include "tests/balancer/instances.hpp"

namespace troupe::balancer {
namespace {

using Catch::Matchers::ContainsSubstring;

// Least largest encoder load over all assignments.
double best_encoder_max(const std::vector<Workload>& samples, std::size_t groups) {
  double best = HUGE_VAL;
  for_each_assignment(samples.size(), groups, [&](const std::vector<std::size_t>& group_of) {
    std::vector<double> loads(groups, 0);
    for (std::size_t i = 0; i < samples.size(); ++i) loads[group_of[i]] += samples[i].encoder_ms;
    best = std::min(best, *std::max_element(loads.begin(), loads.end()));
  });
  return best;
}

TEST_CASE("the effective number of microbatches follows the largest encoder workload",
          "[balancer]") {
  // Sum 18, largest 3: six fit; with a largest of 9 only two.
  CHECK(effective_microbatches(std::vector<Workload>{{3, 1}, {15, 1}}, 8) == 1);
  CHECK(effective_microbatches(std::vector<Workload>(6, {3, 1}), 8) == 6);
  // Six microbatches of 3 from 18 units in samples of 1 and 2.
  const std::vector<Workload> mixed{{2, 1}, {1, 1}, {2, 1}, {1, 1}, {2, 1}, {1, 1},
                                    {2, 1}, {1, 1}, {2, 1}, {1, 1}, {2, 1}, {1, 1}};
  CHECK(effective_microbatches(mixed, 6) == 6);
  for (const auto& load : group_loads(mixed, assign_stratified(mixed, 6)))
    CHECK(load.encoder_ms == 3);
  CHECK(effective_microbatches(std::vector<Workload>(6, {0.1, 1}), 8) == 6);
  CHECK(effective_microbatches(std::vector<Workload>(6, {3, 1}), 4) == 4);
  CHECK(effective_microbatches(std::vector<Workload>(6, {0, 1}), 8) == 8);
  CHECK(effective_microbatches({}, 8) == 8);
}

TEST_CASE("K_eff of all replicas takes the place of that of one's samples", "[balancer]") {
  // Of its own samples two microbatches: 18 of work, 9 at most in one.
  const std::vector<Workload> samples{{9, 1}, {3, 1}, {3, 1}, {3, 1}};
  PolicyOptions options{.microbatches = 4};
  const auto count = [&](const char* policy) {
    return assign_microbatches(policy, samples, options).value().encoder.size();
  };
  for (const char* policy : {"hierarchical", "deferral", "deferral-chain"}) {
    CAPTURE(policy);
    options.shared_microbatches.reset();
    CHECK(count(policy) == 2);
    options.shared_microbatches = 3;
    CHECK(count(policy) == 3);
    options.shared_microbatches = 9;  // K is the most.
    CHECK(count(policy) == 4);
  }
}

TEST_CASE("assign_stratified deals the coarse half before the fine one", "[balancer]") {
  // Coarse by LLM: samples 0 (enc 4) and 3 (enc 2) -> microbatches 0 and 1. Fine: 1 (enc 3) goes to
  // microbatch 1 (2 < 4), 2 (enc 1) to microbatch 0 (4 < 5).
  const std::vector<Workload> samples{{4, 9}, {3, 1}, {1, 2}, {2, 8}};
  CHECK(assign_stratified(samples, 2) == SampleGroups{{0, 2}, {1, 3}});
}

TEST_CASE("samples without encoder work are spread by LLM work", "[balancer]") {
  const std::vector<Workload> samples{{2, 1}, {1, 1}, {0, 5}, {0, 5}, {0, 5}, {0, 5}};
  const auto loads = group_loads(samples, assign_stratified(samples, 2));
  CHECK(loads[0].llm_ms == loads[1].llm_ms);
}

TEST_CASE("deferral evens out a pair exactly where it can", "[balancer]") {
  // Loads 9 = 4+3+2 and 3: half the difference is 3, so sample 1 moves and both have 6.
  const std::vector<Workload> samples{{1, 4}, {1, 3}, {1, 2}, {3, 3}};
  const auto plan = defer_in_pairs(samples, {{3}, {0, 1, 2}});
  CHECK(plan.encoder == SampleGroups{{0, 1, 2}, {3}});
  CHECK(plan.llm == SampleGroups{{0, 2}, {1, 3}});
  CHECK(plan.deferred == std::vector<std::int32_t>{1});
  CHECK(plan.pairs == std::vector<std::pair<std::int32_t, std::int32_t>>{{0, 1}});
}

TEST_CASE("a pair costs what its heavier side has left, the receiver's too", "[balancer]") {
  // LLM loads: A 10 = 5 + 3 + 2, B 9 = 5 + 4 give; D 4 and C 1 take. Each pair moves what comes
  // closest to half its difference, and costs the larger load after that (equation 4.3):
  //   A, D: 3 of 3    -> 7 and 7: 7      A, C: 5 of 4.5 -> 5 and 6: 6
  //   B, D: 4 of 2.5  -> 5 and 8: 8      B, C: 4 of 4   -> 5 and 5: 5
  // With 7 only C is left for B and D for A; with 6 both want C. By what givers alone have left, A,
  // C and B, D would cost 5, and D end at 8.
  const std::vector<Workload> samples{{1, 5}, {1, 3}, {1, 2}, {1, 5}, {1, 4}, {1, 4}, {1, 1}};
  const auto plan = defer_in_pairs(samples, {{0, 1, 2}, {3, 5}, {4}, {6}});
  CHECK(plan.encoder == SampleGroups{{0, 1, 2}, {4}, {3, 5}, {6}});
  CHECK(plan.llm == SampleGroups{{0, 2}, {1, 4}, {3}, {5, 6}});
  CHECK(llm_spread(group_loads(samples, plan.llm)).max_ms == 7);
}

TEST_CASE("six microbatches with units of LLM work all end at 6", "[balancer]") {
  // As in Entrain figure 4.8: encoder 3 each of 18; LLM loads 7, 9, 5, 3, 8, 4 in unit samples, so
  // that microbatches 0, 1, 4 are overloaded (1, 2, 5 counted from 1) and 2, 3, 5 are not.
  std::vector<Workload> samples;
  SampleGroups groups;
  for (const int load : {7, 9, 5, 3, 8, 4}) {
    groups.emplace_back();
    for (int i = 0; i < load; ++i) {
      groups.back().push_back(static_cast<std::int32_t>(samples.size()));
      samples.push_back({3.0 / load, 1});
    }
  }
  const auto plan = defer_in_pairs(samples, groups);
  for (const auto& load : group_loads(samples, plan.llm)) CHECK(load.llm_ms == 6);
  for (const auto& load : group_loads(samples, plan.encoder))
    CHECK(std::abs(load.encoder_ms - 3) < 1e-12);
  REQUIRE(plan.pairs.size() == 3);
  // In a pair the first gives: its encoder microbatch is one of the overloaded ones.
  std::vector<std::ptrdiff_t> givers, takers;
  const auto original = [&](std::int32_t microbatch) {
    const auto& group = plan.encoder[static_cast<std::size_t>(microbatch)];
    return std::find(groups.begin(), groups.end(), group) - groups.begin();
  };
  for (const auto& [over, under] : plan.pairs) {
    givers.push_back(original(over));
    takers.push_back(original(under));
  }
  std::sort(givers.begin(), givers.end());
  std::sort(takers.begin(), takers.end());
  CHECK(givers == std::vector<std::ptrdiff_t>{0, 1, 4});
  CHECK(takers == std::vector<std::ptrdiff_t>{2, 3, 5});
  // Each giver defers half of what it has more: 9 - 6, 8 - 6, 7 - 6.
  CHECK(plan.deferred.size() == 6);
}

TEST_CASE("an unpaired microbatch comes last", "[balancer]") {
  const std::vector<Workload> samples{{1, 9}, {1, 5}, {1, 1}};
  const auto plan = defer_in_pairs(samples, {{0}, {1}, {2}});
  CHECK(plan.pairs.size() == 1);
  CHECK(plan.encoder.size() == 3);
  CHECK(plan.encoder[0] == std::vector<std::int32_t>{0});
}

TEST_CASE("a cap that the effective K breaks brings back the user's K", "[balancer]") {
  // One sample holds half of the encoder work: K_eff = 2 of 4, each with LLM work 4.
  const std::vector<Workload> samples{{6, 2}, {2, 2}, {2, 2}, {2, 2}};
  HierarchicalOptions options{.microbatches = 4, .deferral = true, .llm_cap_ms = {}};
  CHECK(assign_hierarchical(samples, options).value().encoder.size() == 2);
  options.llm_cap_ms = 3;
  const auto plan = assign_hierarchical(samples, options).value();
  CHECK(plan.encoder.size() == 4);
  CHECK(llm_spread(group_loads(samples, plan.llm)).max_ms <= 3);
  options.llm_cap_ms = 1;
  const auto refused = assign_hierarchical(samples, options);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK_THAT(refused.error().message, ContainsSubstring("above the cap of 1"));
}

TEST_CASE("bad options are refused", "[balancer][errors]") {
  const std::vector<Workload> samples{{1, 1}};
  CHECK_FALSE(assign_hierarchical(samples, {.microbatches = 0}).ok());
  CHECK_FALSE(assign_hierarchical(samples, {.microbatches = 1, .llm_cap_ms = NAN}).ok());
  CHECK_FALSE(assign_hierarchical(std::vector<Workload>{{1, -1}}, {.microbatches = 1}).ok());
}

TEST_CASE("more microbatches than samples, no samples and one giant sample are ordinary",
          "[balancer]") {
  const std::vector<Workload> text(2, {0, 1});
  CHECK(assign_hierarchical(text, {.microbatches = 5}).value().encoder.size() == 5);
  CHECK(assign_hierarchical({}, {.microbatches = 3}).value().llm == SampleGroups(3));
  std::vector<Workload> giant(20, {1, 1});
  giant.push_back({1000, 1});
  CHECK(assign_hierarchical(giant, {.microbatches = 8}).value().encoder.size() == 1);
}

TEST_CASE("encoder assignment keeps Graham's bound against the optimum", "[balancer][property]") {
  const auto seed = GENERATE(range(0u, 1000u));
  Random random(seed);
  const auto samples = small_workloads(seed, 1 + random.below(6));
  const auto groups = 1 + random.below(3);
  const auto assigned = assign_stratified(samples, static_cast<std::int64_t>(groups));
  REQUIRE(is_partition(assigned, samples.size()));
  const double bound = 2 - 1 / static_cast<double>(groups);
  CHECK(encoder_spread(group_loads(samples, assigned)).max_ms <=
        bound * best_encoder_max(samples, groups) + 1e-9);
}

TEST_CASE("deferral keeps encoder sums, moves within pairs only and never raises the largest load",
          "[balancer][property]") {
  const auto seed = GENERATE(range(0u, 300u));
  Random random(seed);
  const auto samples = log_normal_workloads(seed, random.below(200), 0.3 + random.uniform());
  const HierarchicalOptions options{.microbatches =
                                        static_cast<std::int64_t>(1 + random.below(20))};
  const auto before =
      assign_hierarchical(samples, {.microbatches = options.microbatches, .deferral = false})
          .value();
  const auto plan = assign_hierarchical(samples, options).value();
  REQUIRE(is_partition(plan.encoder, samples.size()));
  REQUIRE(is_partition(plan.llm, samples.size()));
  auto encoder = plan.encoder;
  auto encoder_before = before.encoder;
  std::sort(encoder.begin(), encoder.end());
  std::sort(encoder_before.begin(), encoder_before.end());
  CHECK(encoder == encoder_before);
  CHECK(llm_spread(group_loads(samples, plan.llm)).max_ms <=
        llm_spread(group_loads(samples, before.llm)).max_ms * (1 + 1e-12));
  // A microbatch's samples run with it or with its partner right after it.
  for (const auto& [over, under] : plan.pairs) CHECK(under == over + 1);
  std::size_t moved = 0;
  for (const auto& [over, under] : plan.pairs)
    for (const auto sample : plan.encoder[static_cast<std::size_t>(over)])
      moved += std::binary_search(plan.llm[static_cast<std::size_t>(under)].begin(),
                                  plan.llm[static_cast<std::size_t>(under)].end(), sample);
  CHECK(moved == plan.deferred.size());
}

TEST_CASE("a million samples are planned", "[balancer]") {
  const auto samples = log_normal_workloads(1, 1'000'000);
  const auto plan = assign_hierarchical(samples, {.microbatches = 64}).value();
  const auto spread = llm_spread(group_loads(samples, plan.llm));
  CHECK(spread.std_ms < 0.001 * spread.mean_ms);
}

}  // namespace
}  // namespace troupe::balancer
