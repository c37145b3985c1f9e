#include "app/balance/policy_report.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "balancer/distributions.hpp"

namespace troupe::app {
namespace {

using balancer::Workload;
using scheduler::ModulePipeline;

PolicyQuestion question_of(std::vector<Workload> work, ModulePipeline shape, std::int64_t count) {
  PolicyQuestion question{{shape}, "1f1b", {}, {}};
  std::vector<std::int64_t> rows(work.size(), 10);
  question.batches = {{{std::move(work), std::move(rows), count}}};
  return question;
}

TEST_CASE("a report counts times, spread and bound of a step", "[app]") {
  // Two samples as two microbatches of one encoder and one llm stage: encoder 2 and 4, llm 3 and 3.
  // Encoder F0 0..2, F1 2..6; llm F0 2..5, B0 5..11, F1 11..14, B1 14..20; encoder B0 11..15,
  // B1 20..28. The llm is bound by 2 before it, its 18 and 4 after the shorter one: 24.
  const auto question = question_of({{2, 3}, {4, 3}}, {.encoder_stages = 1, .llm_stages = 1}, 2);
  const auto report = report_policy("in-order", question).value();
  CHECK(report.policy == "in-order");
  REQUIRE(report.batches.size() == 1);
  const auto& answer = report.batches[0];
  CHECK(answer.step_ms == Catch::Approx(28));
  CHECK(answer.lower_bound_ms == Catch::Approx(24));
  CHECK(answer.encoder.mean_ms == Catch::Approx(3));
  CHECK(answer.encoder.std_ms == Catch::Approx(1));
  CHECK(answer.encoder.max_ms == Catch::Approx(4));
  CHECK(answer.llm.std_ms == 0);
  CHECK(answer.encoder_loads == std::vector<double>{2, 4});
  CHECK(answer.deferred == 0);
  CHECK(answer.rows_held_max == 0);
  CHECK(report.all.step_ms == answer.step_ms);
}

TEST_CASE("what is deferred waits with its rows", "[app]") {
  // Cases like the published one: equal encoders, llm work that only deferral can even out.
  std::vector<Workload> work;
  for (int i = 0; i < 8; ++i)
    for (const double llm_ms : {9.0, 1.0, 1.0, 1.0}) work.push_back({1 + 0.01 * i, llm_ms});
  auto question = question_of(work, {.encoder_stages = 1, .llm_stages = 1}, 6);
  const auto answer = report_policy("deferral", question).value().all;
  CHECK(answer.deferred > 0);
  CHECK(answer.rows_held_max >= 10);
  CHECK(answer.rows_held_max <= 10 * answer.deferred);
}

TEST_CASE("the slowest pipeline makes the step, and means go over batches", "[app]") {
  // One microbatch each, forward and backward: 3 (2 + 3) = 15 and 3 (1 + 1) = 6 in the first batch,
  // 3 (4 + 4) = 24 and nothing in the second.
  PolicyQuestion question{{{}, {}}, "1f1b", {}, {}};
  question.batches = {{{{{2, 3}}, {0}, 1}, {{{1, 1}}, {0}, 1}}, {{{{4, 4}}, {0}, 1}, {{}, {}, 1}}};
  const auto report = report_policy("in-order", question).value();
  CHECK(report.batches[0].step_ms == Catch::Approx(15));
  CHECK(report.batches[1].step_ms == Catch::Approx(24));
  CHECK(report.all.step_ms == Catch::Approx(19.5));
  CHECK(report.all.encoder.max_ms == 4);
}

TEST_CASE("pipelines of different shapes are simulated as they are", "[app]") {
  // The llm of the second pipeline stands on two stages: a forward of 4 takes 2 on each.
  PolicyQuestion question{{{}, {.encoder_stages = 1, .llm_stages = 2}}, "1f1b", {}, {}};
  question.batches = {{{{}, {}, 1}, {{{1, 4}, {1, 4}}, {0, 0}, 2}}};
  // Encoder F0 0..1, F1 1..2; llm.0 F0 1..3, F1 3..5; llm.1 F0 3..5, B0 5..9, F1 9..11, B1 11..15;
  // llm.0 B1 15..19; encoder B1 19..21.
  CHECK(report_policy("in-order", question).value().all.step_ms == Catch::Approx(21));
}

TEST_CASE("no batches and no samples make an empty report", "[app]") {
  PolicyQuestion question{{{}}, "1f1b", {}, {}};
  for (const auto& name : balancer::policy_names()) {
    CAPTURE(name);
    question.batches.clear();
    const auto none = report_policy(name, question).value();
    CHECK(none.batches.empty());
    CHECK(none.all.step_ms == 0);
    question.batches = {{{{}, {}, 4}}};
    const auto empty = report_policy(name, question).value();
    CHECK(empty.all.step_ms == 0);
    CHECK(empty.all.lower_bound_ms == 0);
    CHECK(empty.all.llm.max_ms == 0);
  }
}

TEST_CASE("a wrong policy or schedule is named", "[app][errors]") {
  auto question = question_of({{1, 1}}, {}, 1);
  CHECK(report_policy("deferal", question).error().code == Errc::not_found);
  question.schedule = "2f2b";
  CHECK(report_policy("random", question).error().code == Errc::invalid_argument);
}

TEST_CASE("auto comes within 2 % of the bound at 16 samples per microbatch and K = 4 stages",
          "[app][property]") {
  struct Case {
    const char* schedule;
    std::int32_t encoder_stages, llm_stages;
  };
  const auto one =
      GENERATE(Case{"1f1b", 1, 1}, Case{"1f1b", 2, 2}, Case{"1f1b", 1, 3}, Case{"eager-1f1b", 2, 2},
               Case{"eager-1f1b", 1, 3}, Case{"gpipe", 2, 2});
  const auto distribution = GENERATE(from_range(balancer::distributions()));
  const ModulePipeline shape{.encoder_stages = one.encoder_stages, .llm_stages = one.llm_stages};
  const std::int64_t count = 4 * (one.encoder_stages + one.llm_stages);
  auto question = question_of(
      generate_workloads(distribution, static_cast<std::size_t>(16 * count), 0), shape, count);
  question.schedule = one.schedule;
  const auto report = report_policy("auto", question).value();
  CAPTURE(one.schedule, one.encoder_stages, one.llm_stages, std::string(to_string(distribution)));
  CHECK(report.all.step_ms <= 1.02 * report.all.lower_bound_ms);
  for (const auto* other : {"random", "deferral", "dflop-search", "balanced-chain"})
    CHECK(report.all.step_ms <= report_policy(other, question).value().all.step_ms);
}

}  // namespace
}  // namespace troupe::app
