#include "balancer/microbatches/policies.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <string_view>

#include "balancer/loads/distributions.hpp"
#include "tests/balancer/instances.hpp"
#include "tests/sanitized.hpp"

namespace troupe::balancer {
namespace {

TEST_CASE("an unknown policy is answered with the nearest name", "[balancer][errors]") {
  const auto plan = assign_microbatches("deferal", {}, {});
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.error().code == Errc::not_found);
  CHECK(plan.error().fix == "did you mean `deferral`?");
}

TEST_CASE("every policy refuses bad workloads and counts", "[balancer][errors]") {
  const auto name = GENERATE(from_range(policy_names()));
  CAPTURE(name);
  PolicyOptions options;
  CHECK_FALSE(assign_microbatches(name, std::vector<Workload>{{NAN, 1}}, options).ok());
  options.microbatches = 0;
  CHECK_FALSE(assign_microbatches(name, std::vector<Workload>{{1, 1}}, options).ok());
}

TEST_CASE("every policy names the entry that is wrong", "[balancer][errors]") {
  const auto name = GENERATE(from_range(policy_names()));
  const double wrong = GENERATE(-1.0, double{NAN}, double{HUGE_VAL});
  CAPTURE(name, wrong);
  const auto plan = assign_microbatches(name, std::vector<Workload>{{1, 1}, {1, wrong}}, {});
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.error().code == Errc::invalid_argument);
  CHECK((plan.error().where + plan.error().message).find("1") != std::string::npos);
}

TEST_CASE("no samples, fewer than microbatches and one giant are ordinary", "[balancer]") {
  const auto name = GENERATE(from_range(policy_names()));
  CAPTURE(name);
  PolicyOptions options{.microbatches = 8, .evaluations_max = 40};
  std::vector<Workload> giant(30, {1, 1});
  giant[7] = {1000, 500};
  for (const auto& samples : {std::vector<Workload>{}, std::vector<Workload>(3, {2, 1}), giant,
                              std::vector<Workload>(20, {0, 0})}) {
    const auto plan = assign_microbatches(name, samples, options);
    REQUIRE(plan.ok());
    CHECK(is_partition(plan.value().encoder, samples.size()));
    CHECK(is_partition(plan.value().llm, samples.size()));
    CHECK(plan.value().encoder.size() <= 8);
  }
}

TEST_CASE("every policy plans a million samples", "[balancer]") {
  const auto samples = log_normal_workloads(3, testing::kSanitized ? 100'000 : 1'000'000);
  PolicyOptions options{.microbatches = 64};
  for (const auto& name : policy_names()) {
    CAPTURE(name);
    const auto plan = assign_microbatches(name, samples, options).value();
    CHECK(is_partition(plan.encoder, samples.size()));
    CHECK(is_partition(plan.llm, samples.size()));
  }
  // Differencing over so many groups would take an hour: longest first on both workloads instead.
  options.microbatches = 65'536;
  const auto plan = assign_microbatches("karmarkar-karp", samples, options).value();
  CHECK(is_partition(plan.llm, samples.size()));
}

TEST_CASE("improved policies defer only where the caller's cost is lower for it", "[balancer]") {
  const auto samples = generate_workloads(Distribution::charts, 64, 2);
  for (const auto* name : {"deferral-exchange", "deferral-chain", "balanced-chain"}) {
    CAPTURE(name);
    PolicyOptions options{.microbatches = 4};
    options.cost = [](const MicrobatchPlan& plan) { return 1.0 + double(plan.deferred.size()); };
    CHECK(assign_microbatches(name, samples, options).value().deferred.empty());
    options.cost = [](const MicrobatchPlan& plan) { return plan.deferred.empty() ? 2.0 : 1.0; };
    // Its encoder microbatches are even on both sides here: there is nothing to defer.
    const bool nothing = std::string_view(name) == "balanced-chain";
    CHECK(assign_microbatches(name, samples, options).value().deferred.empty() == nothing);
  }
  // A giant image shrinks the number of microbatches, unless that costs more.
  std::vector<Workload> giant(30, {1, 1});
  giant[4].encoder_ms = 15;
  PolicyOptions options{.microbatches = 10};
  options.cost = [](const MicrobatchPlan& plan) { return 1 / double(plan.encoder.size()); };
  CHECK(assign_microbatches("deferral-chain", giant, options).value().encoder.size() == 10);
  options.cost = nullptr;
  CHECK(assign_microbatches("deferral-chain", giant, options).value().encoder.size() == 2);
}

TEST_CASE("every policy keeps to the cap or says that it cannot", "[balancer][errors]") {
  const auto name = GENERATE(from_range(policy_names()));
  CAPTURE(name);
  PolicyOptions options{.microbatches = 4};
  options.llm_cap_ms = 0.5;
  const auto plan = assign_microbatches(name, std::vector<Workload>(8, {1, 1}), options);
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.error().code == Errc::infeasible);
}

TEST_CASE("every policy loses no sample, doubles none and repeats itself", "[balancer][property]") {
  const auto name = GENERATE(from_range(policy_names()));
  const auto seed = GENERATE(range(0u, 20u));
  CAPTURE(name, seed);
  Random random(seed);
  const auto samples = log_normal_workloads(seed, random.below(90));
  PolicyOptions options{.microbatches = static_cast<std::int64_t>(1 + random.below(12))};
  options.seed = seed;
  options.evaluations_max = 40;
  const auto plan = assign_microbatches(name, samples, options);
  REQUIRE(plan.ok());
  CHECK(plan.value().encoder.size() == plan.value().llm.size());
  CHECK(static_cast<std::int64_t>(plan.value().encoder.size()) <= options.microbatches);
  CHECK(is_partition(plan.value().encoder, samples.size()));
  CHECK(is_partition(plan.value().llm, samples.size()));
  CHECK(assign_microbatches(name, samples, options).value() == plan.value());
}

}  // namespace
}  // namespace troupe::balancer
