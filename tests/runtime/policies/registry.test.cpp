#include "runtime/policies/registry.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>
#include <stdexcept>

#include "runtime/plugins/user_calls.hpp"
#include "tests/balancer/instances.hpp"

namespace troupe::policies {
namespace {

using balancer::SampleGroups;
using Catch::Matchers::ContainsSubstring;

const std::vector<Workload> kFour{{1, 4}, {2, 3}, {3, 2}, {4, 1}};

/// What becomes of a policy that returns this, for four samples in up to two microbatches.
Result<MicrobatchPlan> answer_to(PlanMicrobatches plan) {
  static int count = 0;
  const std::string name = "given-" + std::to_string(count++);
  REQUIRE(register_policy({name, std::move(plan)}).ok());
  PolicyOptions options;
  options.microbatches = 2;
  return run_policy(name, kFour, options);
}

Result<MicrobatchPlan> answer_to(SampleGroups encoder, SampleGroups llm) {
  return answer_to([=](auto, const auto&) { return MicrobatchPlan{encoder, llm, {}, {}}; });
}

TEST_CASE("a policy that is added is one by its name", "[policies]") {
  REQUIRE(register_policy({"halves",
                           [](auto samples, const auto&) {
                             MicrobatchPlan made;
                             made.llm.resize(2);
                             for (std::size_t s = samples.size(); s-- > 0;)
                               made.llm[s % 2].push_back(static_cast<std::int32_t>(s));
                             made.encoder = made.llm;
                             return made;
                           }})
              .ok());
  PolicyOptions options;
  options.microbatches = 2;
  const auto plan = run_policy("halves", kFour, options).value();
  CHECK(plan.llm == SampleGroups{{0, 2}, {1, 3}});  // Sorted.
  CHECK(plan.deferred.empty());
  const auto names = policy_names();
  CHECK(std::ranges::find(names, "halves") != names.end());
  CHECK(names.front() == balancer::policy_names().front());
  CHECK_FALSE(searches("halves"));
  CHECK(searches("auto"));
}

TEST_CASE("while a policy of one's own plans, its name tells who does not return",
          "[policies][errors]") {
  std::optional<plugins::UserCall> seen;
  const auto refused = answer_to([&seen](auto, const auto&) -> Result<MicrobatchPlan> {
    seen = plugins::oldest_user_call();
    throw std::runtime_error("enough");
  });
  CHECK_FALSE(refused.ok());
  REQUIRE(seen);
  CHECK_THAT(seen->function, ContainsSubstring("`plan` of policy 'given-"));
  CHECK_FALSE(plugins::oldest_user_call());
}

TEST_CASE("what follows from the sides is filled in", "[policies]") {
  // Sample 1 is deferred by one microbatch.
  const auto plan = answer_to({{0, 1}, {3, 2}}, {{0}, {1, 2, 3}}).value();
  CHECK(plan.deferred == std::vector<std::int32_t>{1});
  CHECK(plan.pairs == std::vector<std::pair<std::int32_t, std::int32_t>>{{0, 1}});
  CHECK(plan.encoder == SampleGroups{{0, 1}, {2, 3}});
  // Both ways: sample 2 runs in the llm before its encoder microbatch has its turn.
  const auto both = answer_to({{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}).value();
  CHECK(both.deferred == std::vector<std::int32_t>{1, 2});
  CHECK(both.pairs == std::vector<std::pair<std::int32_t, std::int32_t>>{{0, 1}, {1, 0}});
}

TEST_CASE("every built-in policy keeps to the rules for others", "[policies]") {
  const auto name = GENERATE(from_range(balancer::policy_names()));
  CAPTURE(name);
  const auto samples = balancer::log_normal_workloads(7, 60);
  PolicyOptions options;
  options.microbatches = 6;
  const auto own = balancer::assign_microbatches(name, samples, options).value();
  REQUIRE(register_policy({"as-" + name, [&](auto, const auto&) { return own; }}).ok());
  const auto checked = run_policy("as-" + name, samples, options).value();
  CHECK(checked.encoder == own.encoder);
  CHECK(checked.llm == own.llm);
  CHECK(checked.deferred == own.deferred);
}

TEST_CASE("a plan that breaks a rule is named, with its policy", "[policies][errors]") {
  const auto said = [](const auto&... sides) {
    const auto error = answer_to(sides...).error();
    CHECK(error.code == Errc::invalid_argument);
    CHECK(error.where == "balancer.policy");
    CHECK_THAT(error.message, ContainsSubstring("policy 'given-"));
    return error.message;
  };
  const SampleGroups good{{0, 1}, {2, 3}};
  CHECK_THAT(said(SampleGroups{{0, 1}, {2}}, good),
             ContainsSubstring("sample 3 in no encoder microbatch"));
  CHECK_THAT(said(good, SampleGroups{{0, 1}, {2, 3, 1}}),
             ContainsSubstring("sample 1 in llm microbatch 1 and in microbatch 0"));
  CHECK_THAT(said(good, SampleGroups{{0, 1}, {2, 4}}),
             ContainsSubstring("sample 4 in llm microbatch 1, of 4"));
  CHECK_THAT(said(SampleGroups{{-1, 1}, {2, 3}}, good), ContainsSubstring("sample -1 in encoder"));
  CHECK_THAT(said(SampleGroups{{0, 1, 2, 3}}, good),
             ContainsSubstring("1 encoder microbatches and 2 of the llm"));
  const SampleGroups three{{0}, {1, 2}, {3}};
  CHECK_THAT(said(three, three), ContainsSubstring("3 microbatches, where 1 to 2"));
  CHECK_THAT(said(SampleGroups{}, SampleGroups{}), ContainsSubstring("has 0 microbatches"));
  CHECK_THAT(said(PlanMicrobatches([](auto, const auto&) -> Result<MicrobatchPlan> {
               throw std::out_of_range("no such bucket");
             })),
             ContainsSubstring("throws: no such bucket"));
}

TEST_CASE("an error of a policy's own keeps its words", "[policies][errors]") {
  const auto error = answer_to([](auto, const auto&) -> Result<MicrobatchPlan> {
                       return Error{Errc::infeasible, "finds no plan", {}, "lower the rate"};
                     }).error();
  CHECK(error.code == Errc::infeasible);
  CHECK_THAT(error.message, ContainsSubstring("' finds no plan"));
  CHECK(error.fix == "lower the rate");
}

TEST_CASE("memory holds for added policies, too", "[policies][errors]") {
  REQUIRE(register_policy({"all-at-once",
                           [](auto, const auto&) {
                             return MicrobatchPlan{{{0, 1, 2, 3}}, {{0, 1, 2, 3}}, {}, {}};
                           }})
              .ok());
  PolicyOptions options;
  options.llm_cap_ms = 9;
  const auto refused = run_policy("all-at-once", kFour, options);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  options.llm_cap_ms = 10;
  CHECK(run_policy("all-at-once", kFour, options).ok());
  CHECK_FALSE(run_policy("all-at-once", std::vector<Workload>{{-1, 0}}, options).ok());
}

TEST_CASE("names are spelled for job files, and taken once", "[policies][errors]") {
  const PlanMicrobatches any = [](auto, const auto&) { return MicrobatchPlan{}; };
  const auto refused = [&](const std::string& name, const PlanMicrobatches& plan) {
    return register_policy({name, plan}).error().message;
  };
  CHECK_THAT(refused("auto", any), ContainsSubstring("is there already"));
  REQUIRE(register_policy({"mine", any}).ok());
  CHECK_THAT(refused("mine", any), ContainsSubstring("is there already"));
  CHECK_THAT(refused("", any), ContainsSubstring("no name for a job file"));
  CHECK_THAT(refused("My policy", any), ContainsSubstring("no name for a job file"));
  CHECK_THAT(refused("empty", nullptr), ContainsSubstring("no `plan`"));
}

}  // namespace
}  // namespace troupe::policies
