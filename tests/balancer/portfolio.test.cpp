#include "balancer/microbatches/portfolio.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>

#include "balancer/loads/distributions.hpp"
#include "tests/balancer/instances.hpp"
#include "tests/sanitized.hpp"

namespace troupe::balancer {
namespace {

TEST_CASE("a slot lasts as long as its slower side", "[balancer]") {
  // Both sides add up to 6, so nothing is scaled. Encoder 1, 5; LLM 4, 2: slots 1, max(5, 4), 2.
  const std::vector<Workload> samples{{1, 4}, {5, 2}};
  CHECK(slot_time_ms(samples, without_deferral({{0}, {1}})) == Catch::Approx(8));
  // Both LLM parts in the second microbatch: slots 1, 5, 6.
  CHECK(slot_time_ms(samples, make_plan({{0}, {1}}, {{}, {0, 1}})) == Catch::Approx(12));
  // The first LLM microbatch needs the second encoder microbatch: slots 1, 5, 2, 4.
  CHECK(slot_time_ms(samples, make_plan({{0}, {1}}, {{1}, {0}})) == Catch::Approx(12));
}

TEST_CASE("text alone has a cost too", "[balancer]") {
  const std::vector<Workload> text{{0, 4}, {0, 2}};
  CHECK(slot_time_ms(text, without_deferral({{0}, {1}})) == Catch::Approx(3));
  CHECK(slot_time_ms({}, without_deferral(SampleGroups(2))) == 0);
}

TEST_CASE("the portfolio is never behind its best member", "[balancer][property]") {
  const auto seed = GENERATE(range(0u, 12u));
  const auto samples = generate_workloads(distributions()[seed % 7], 96, seed);
  PolicyOptions options{.microbatches = 8};
  options.evaluations_max = 120;
  const auto choice = best_of_portfolio(samples, options).value();
  CHECK(choice.evaluations <= options.evaluations_max);
  CHECK(choice.cost == slot_time_ms(samples, choice.plan));
  for (const auto& policy : policies()) {
    CAPTURE(policy.name);
    const auto plan = assign_microbatches(policy.name, samples, options).value();
    CHECK(choice.cost <= slot_time_ms(samples, plan));
  }
}

TEST_CASE("the portfolio repeats itself for a given budget", "[balancer]") {
  const auto samples = log_normal_workloads(1, 64);
  PolicyOptions options{.microbatches = 6, .seed = 3, .evaluations_max = 80};
  const auto once = best_of_portfolio(samples, options).value();
  const auto again = best_of_portfolio(samples, options).value();
  CHECK(once.plan == again.plan);
  CHECK(once.policy == again.policy);
}

TEST_CASE("the caller's cost decides", "[balancer]") {
  // A cost that likes few microbatches picks the effective K of a giant image.
  std::vector<Workload> samples(30, {1, 1});
  samples[4].encoder_ms = 15;
  PolicyOptions options{.microbatches = 10};
  options.cost = [](const MicrobatchPlan& plan) { return double(plan.encoder.size()); };
  const auto few = best_of_portfolio(samples, options).value();
  CHECK(few.plan.encoder.size() == 2);
  options.cost = [](const MicrobatchPlan& plan) { return -double(plan.encoder.size()); };
  CHECK(best_of_portfolio(samples, options).value().plan.encoder.size() == 10);
}

TEST_CASE("what the search finds is cheaper than every member", "[balancer][property]") {
  // A cost that likes a first and a last microbatch of a third of the mean: no member makes them.
  const auto seed = GENERATE(range(0u, 6u));
  const auto samples = log_normal_workloads(seed, 96);
  PolicyOptions options{.microbatches = 6, .seed = seed, .evaluations_max = 120};
  options.cost = [&](const MicrobatchPlan& plan) {
    const auto loads = group_loads(samples, plan.encoder);
    const double share = total(samples).encoder_ms / static_cast<double>(3 * loads.size());
    return share + std::abs(loads.front().encoder_ms - share) +
           std::abs(loads.back().encoder_ms - share);
  };
  const auto choice = best_of_portfolio(samples, options).value();
  CHECK(choice.cost == options.cost(choice.plan));
  for (const auto& policy : policies()) {
    if (policy.name == "auto") continue;
    CAPTURE(policy.name);
    CHECK(choice.cost < options.cost(assign_microbatches(policy.name, samples, options).value()));
  }
}

TEST_CASE("an estimate from loads leads to the sizes that it likes", "[balancer]") {
  const auto samples = log_normal_workloads(5, 96);
  PolicyOptions options{.microbatches = 6, .evaluations_max = 40};
  // Both want a third microbatch of half a share: 1/11 of all the work.
  const auto miss = [&](std::span<const Workload> loads) {
    return 1 + std::abs(loads[2].encoder_ms / total(loads).encoder_ms - 1.0 / 11);
  };
  options.cost = [&](const MicrobatchPlan& plan) {
    const auto loads = group_loads(samples, plan.encoder);
    return loads.size() == 6 ? miss(loads) : 9.0;
  };
  const auto dealt = best_of_portfolio(samples, options).value();
  options.estimate = miss;
  const auto estimated = best_of_portfolio(samples, options).value();
  CHECK(estimated.cost <= dealt.cost);
  CHECK(estimated.cost < 1.005);
  CHECK(estimated.evaluations <= options.evaluations_max);
  for (options.evaluations_max = 1; options.evaluations_max < 40; options.evaluations_max += 3) {
    const auto few = best_of_portfolio(samples, options).value();
    CHECK(few.evaluations <= options.evaluations_max);
    CHECK(few.cost >= estimated.cost);
  }
}

TEST_CASE("a budget of one still gives a plan", "[balancer]") {
  PolicyOptions options{.microbatches = 4};
  options.evaluations_max = 0;
  const auto choice = best_of_portfolio(log_normal_workloads(1, 20), options).value();
  CHECK(choice.evaluations == 1);
}

TEST_CASE("huge inputs are planned within the work that was allowed", "[balancer]") {
  struct Case {
    std::size_t samples;
    std::int64_t microbatches;
    bool complete;  // Nothing left out.
  };
  const auto one = testing::kSanitized ? GENERATE(Case{5'000, 64, true}, Case{300'000, 64, false},
                                                  Case{32'768, 16'384, false})
                                       : GENERATE(Case{5'000, 64, true}, Case{1'000'000, 64, false},
                                                  Case{131'072, 65'536, false});
  const auto samples = log_normal_workloads(7, one.samples);
  PolicyOptions options{.microbatches = one.microbatches};
  CAPTURE(one.samples, one.microbatches);
  const auto choice = best_of_portfolio(samples, options).value();
  CHECK(is_partition(choice.plan.encoder, samples.size()));
  CHECK(is_partition(choice.plan.llm, samples.size()));
  CHECK(choice.work <= options.work_max);
  CHECK(choice.evaluations > 1);
  CHECK((choice.left_out == 0) == one.complete);
}

TEST_CASE("little work allowed leaves one member", "[balancer]") {
  const auto samples = log_normal_workloads(7, 5'000);
  PolicyOptions options{.microbatches = 16};
  options.work_max = 0;
  options.estimate = [](std::span<const Workload>) { return 1.0; };
  const auto choice = best_of_portfolio(samples, options).value();
  CHECK(choice.evaluations == 1);
  CHECK(choice.left_out > 10);
  CHECK(is_partition(choice.plan.llm, samples.size()));
}

TEST_CASE("work counts what estimates and costs take", "[balancer]") {
  const auto samples = log_normal_workloads(7, 256);
  PolicyOptions options{.microbatches = 16};
  options.work_max = 200'000;
  std::int64_t estimates = 0, costs = 0;
  options.estimate = [&](std::span<const Workload>) {
    ++estimates;
    return 1.0;
  };
  options.cost = [&](const MicrobatchPlan&) {
    ++costs;
    return 1.0;
  };
  const auto choice = best_of_portfolio(samples, options).value();
  CHECK(choice.work <= options.work_max);
  const auto few_estimates = estimates;
  const auto few_costs = costs;
  CHECK(few_estimates > 100);
  CHECK(few_costs > 5);
  // A cost function that says it is dear is called less often.
  options.costing_work = 20'000;
  costs = 0;
  CHECK(best_of_portfolio(samples, options).value().work <= options.work_max);
  CHECK(costs < few_costs);
  // More work allowed, more done.
  options.costing_work = 0;
  options.work_max = 40e6;
  estimates = 0;
  CHECK(best_of_portfolio(samples, options).value().evaluations >= choice.evaluations);
  CHECK(estimates > few_estimates);
}

TEST_CASE("plans that cannot run are left out", "[balancer][errors]") {
  PolicyOptions options{.microbatches = 4};
  options.cost = [](const MicrobatchPlan& plan) { return plan.deferred.empty() ? 1.0 : HUGE_VAL; };
  CHECK(best_of_portfolio(log_normal_workloads(1, 20), options).value().plan.deferred.empty());
  options.cost = [](const MicrobatchPlan&) { return NAN; };
  const auto none = best_of_portfolio(log_normal_workloads(1, 20), options);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().code == Errc::infeasible);
}

}  // namespace
}  // namespace troupe::balancer
