#include "app/solve/policy_simulation.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>

#include "balancer/loads/distributions.hpp"
#include "tests/sanitized.hpp"

namespace troupe::app {
namespace {

using balancer::MicrobatchPlan;
using balancer::PolicyOptions;
using balancer::Workload;
using scheduler::ModulePipeline;

TEST_CASE("policies are told what the simulation says", "[app]") {
  // Two samples as two microbatches of one encoder and one llm stage: encoder 2 and 4, llm 3 and 3.
  // Encoder F0 0..2, F1 2..6; llm F0 2..5, B0 5..11, F1 11..14, B1 14..20; encoder B0 11..15,
  // B1 20..28.
  const std::vector<Workload> samples{{2, 3}, {4, 3}};
  PolicySimulation simulation(samples, {.encoder_stages = 1, .llm_stages = 1}, "1f1b");
  PolicyOptions options{.microbatches = 2};
  simulation.guide("auto", options);
  const auto plan = balancer::without_deferral({{0}, {1}});
  CHECK(simulation.run(plan).value().step_ms == Catch::Approx(28));
  CHECK(options.pipeline_stages == 2);
  CHECK(options.cost(plan) == Catch::Approx(28));
  REQUIRE(options.estimate);
  CHECK(options.estimate(samples) == Catch::Approx(28));
}

TEST_CASE("there is an estimate for auto alone, and only where an order is fixed", "[app]") {
  // One sample of 1 and 1: six tasks of 1 in turn; with weight gradients apart, the llm's runs
  // beside the encoder's input gradient.
  struct Case {
    const char* policy;
    const char* schedule;
    double step_ms;
  };
  const auto one = GENERATE(Case{"dflop", "1f1b", 6}, Case{"auto", "zero-bubble", 5});
  const std::vector<Workload> samples{{1, 1}};
  PolicySimulation simulation(samples, {}, one.schedule);
  PolicyOptions options;
  simulation.guide(one.policy, options);
  CHECK_FALSE(options.estimate);
  CHECK(options.cost(balancer::without_deferral({{0}})) == Catch::Approx(one.step_ms));
}

TEST_CASE("a simulated machine may have longer backwards and links", "[app]") {
  // One sample, encoder 2 and llm 3, on a stage of each. Forwards 5, backwards twice as long 10;
  // four times as long 20; half as long 2.5. Rows and gradients cross the link once each.
  const std::vector<Workload> samples{{2, 3}};
  const auto step_ms = [&](const SimulatedMachine& machine) {
    PolicySimulation simulation(samples, {}, "1f1b", machine);
    return simulation.run(balancer::without_deferral({{0}})).value().step_ms;
  };
  CHECK(step_ms({}) == Catch::Approx(15));
  CHECK(step_ms({.backward_over_forward = 4}) == Catch::Approx(25));
  CHECK(step_ms({.backward_over_forward = 0.5}) == Catch::Approx(7.5));
  CHECK(step_ms({.link_ms = 1}) == Catch::Approx(17));
}

TEST_CASE("a simulated machine may have room for few microbatches", "[app]") {
  // Two samples of 1 and 1. With room for one the encoder waits: 1 + 1 + 2 + 2 twice. Else F0 0..1,
  // F1 1..2; llm F0 1..2, B0 2..4, F1 4..5, B1 5..7; encoder B0 4..6, B1 7..9.
  const std::vector<Workload> samples{{1, 1}, {1, 1}};
  const auto plan = balancer::without_deferral({{0}, {1}});
  const auto run = [&](const std::string& schedule, std::int32_t room) {
    return PolicySimulation(samples, {}, schedule, {.max_in_flight = room}).run(plan);
  };
  CHECK(run("1f1b", 0).value().step_ms == Catch::Approx(9));
  CHECK(run("1f1b", 2).value().step_ms == Catch::Approx(9));
  CHECK(run("1f1b", 1).value().step_ms == Catch::Approx(12));
  // Both stages on one device: phases of one sample after the other, 1 + 1 + 2 + 2 each.
  const auto apart = PolicySimulation(samples, {.colocated = true}, "dip", {.max_in_flight = 1});
  CHECK(apart.run(plan).value().step_ms == Catch::Approx(12));
}

TEST_CASE("auto looks at the machine that is simulated", "[app]") {
  // The estimate knows the default machine alone; costs are those of this one.
  const std::vector<Workload> samples{{2, 3}};
  PolicySimulation simulation(samples, {}, "1f1b", {.link_ms = 1});
  PolicyOptions options;
  simulation.guide("auto", options);
  CHECK_FALSE(options.estimate);
  CHECK(options.cost(balancer::without_deferral({{0}})) == Catch::Approx(17));
}

TEST_CASE("a schedule that nobody knows costs infinitely much", "[app][errors]") {
  const std::vector<Workload> samples{{1, 1}};
  PolicySimulation simulation(samples, {}, "2f2b");
  PolicyOptions options;
  simulation.guide("auto", options);
  CHECK(options.cost(balancer::without_deferral({{0}})) == HUGE_VAL);
  CHECK(simulation.run(balancer::without_deferral({{0}})).error().code == Errc::invalid_argument);
}

TEST_CASE("auto takes no longer than any policy, and less than even microbatches",
          "[app][property]") {
  struct Case {
    const char* schedule;
    std::int32_t encoder_stages, llm_stages;
  };
  const auto one =
      GENERATE(Case{"1f1b", 1, 1}, Case{"1f1b", 2, 2}, Case{"1f1b", 1, 3}, Case{"1f1b", 3, 5},
               Case{"eager-1f1b", 2, 2}, Case{"eager-1f1b", 1, 3}, Case{"gpipe", 2, 2});
  const auto all = balancer::distributions();
  const auto distribution =
      GENERATE_COPY(from_range(all.begin(), testing::kSanitized ? all.begin() + 1 : all.end()));
  const ModulePipeline shape{.encoder_stages = one.encoder_stages, .llm_stages = one.llm_stages};
  const std::int64_t count = 4 * (one.encoder_stages + one.llm_stages);
  const auto samples = generate_workloads(distribution, static_cast<std::size_t>(16 * count), 0);
  PolicySimulation simulation(samples, shape, one.schedule);
  const auto plan_of = [&](const std::string& policy) {
    PolicyOptions options{.microbatches = count};
    simulation.guide(policy, options);
    return balancer::assign_microbatches(policy, samples, options).value();
  };
  const auto chosen = plan_of("auto");
  const double step_ms = simulation.run(chosen).value().step_ms;
  CAPTURE(one.schedule, one.encoder_stages, one.llm_stages, std::string(to_string(distribution)));
  CHECK(step_ms >= lower_bound_ms(simulation.graph(chosen)) * (1 - 1e-12));
  for (const auto& other : balancer::policy_names())
    if (other != "auto") CHECK(step_ms <= simulation.run(plan_of(other)).value().step_ms);
  // Small first and last microbatches fill and drain sooner, unless one module is always waited
  // for.
  if (one.encoder_stages == one.llm_stages)
    CHECK(step_ms < simulation.run(plan_of("dflop-search")).value().step_ms);
}

}  // namespace
}  // namespace troupe::app
