#include "tests/torch_catch.hpp"

#include "app/balance/policy_report.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "balancer/microbatches/policies.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/scheduler/two_encoders.hpp"
#include "tests/scheduler/two_layers.hpp"

namespace troupe::app {
namespace {

using Catch::Approx;
using scheduler::testing::two_layers;

SampleShape sample(std::int32_t encoder_rows, TokenCount llm_tokens) {
  return scheduler::testing::two_layer_sample(encoder_rows, llm_tokens);
}

/// Every pipeline an encoder stage and an llm stage; both on one node where `shared` says so.
PolicyQuestion question_of(std::vector<SampleShape> samples, const std::vector<bool>& shared,
                           std::int64_t microbatches) {
  HandLayout layout;
  std::int32_t node = 0;
  for (const bool one : shared) {
    const std::int32_t first = node++;
    const std::int32_t second = one ? first : node++;
    layout.pipelines.push_back({{first, 0, {{"vision", {}}}}, {second, 0, {{"llm", {}}}}});
  }
  PolicyQuestion question;
  question.plan = scheduler::place_by_hand(two_layers(), layout, {node, 1}).value();
  question.options.microbatches = microbatches;
  question.costs = std::make_shared<const engine::PlanningCosts>(
      engine::PlanningCosts{scheduler::testing::two_layer_costs(0, 1), {}, Bytes{}});
  question.batches = {std::move(samples)};
  return question;
}

TEST_CASE("a report counts times, spread and bound of a step", "[app]") {
  // Two microbatches of one sample. The first encoder layer needs no input gradient, so that its
  // backward takes as long as its forward: F0 0..2, F1 2..6. Llm F0 2..5, B0 5..11, F1 11..15,
  // B1 15..23; encoder B0 11..13, B1 23..27. The llm is bound by 2 before it, its 9 + 12 and the 2
  // behind the shorter one: 25.
  const auto question = question_of({sample(2, 3), sample(4, 4)}, {false}, 2);
  const auto report = report_policy("in-order", question).value();
  CHECK(report.policy == "in-order");
  REQUIRE(report.batches.size() == 1);
  const auto& answer = report.batches[0];
  CHECK(answer.microbatches == 2);
  CHECK(answer.step_ms == Approx(27));
  CHECK(answer.lower_bound_ms == Approx(25));
  REQUIRE(answer.phases.size() == 2);
  REQUIRE(report.encoders == std::size_t{0});
  const auto& encoder = answer.phases[0];
  CHECK(encoder.name == "vision");
  CHECK(encoder.spread.mean_ms == Approx(3));
  CHECK(encoder.spread.std_ms == Approx(1));
  CHECK(encoder.spread.max_ms == Approx(4));
  CHECK(answer.llm().name == "llm");
  CHECK(answer.llm().spread.std_ms == Approx(0.5));
  REQUIRE(encoder.loads.size() == 1);
  REQUIRE(encoder.loads[0].size() == 2);
  CHECK(encoder.loads[0][0] == Approx(2));
  CHECK(encoder.loads[0][1] == Approx(4));
  CHECK((encoder.balance == engine::PhaseBalance{}));  // Of one replica.
  CHECK(answer.deferred == 0);
  CHECK(answer.rows_held_max == 0);
  CHECK(answer.dealt == std::vector<std::int64_t>{2});
  CHECK(report.all.step_ms == answer.step_ms);
}

/// One replica of vision, two each of audio and the llm, all on nodes of their own; every layer
/// takes a millisecond per row.
PolicyQuestion two_encoders(std::vector<std::vector<SampleShape>> batches) {
  PolicyQuestion question;
  question.plan = scheduler::testing::two_encoder_plan({"vision", "audio", "audio", "llm", "llm"});
  question.options.microbatches = 2;
  question.costs = std::make_shared<const engine::PlanningCosts>(
      engine::PlanningCosts{scheduler::testing::two_encoder_costs(0), {}, Bytes{}});
  question.batches = std::move(batches);
  return question;
}

/// Sixteen samples; the first four sounds are as long as all the others.
std::vector<SampleShape> pictures_and_sounds() {
  std::vector<SampleShape> samples;
  for (std::int32_t i = 0; i < 16; ++i) {
    auto& made = samples.emplace_back(sample(1 + i, 20));
    const std::int32_t frames = i < 4 ? 36 : 12;
    made.media.push_back({ModuleId{1}, {{frames, frames, 1, 0, 0, 0}}});
  }
  return samples;
}

double sum_of(const std::vector<std::vector<double>>& loads) {
  double sum = 0;
  for (const auto& replica : loads)
    for (const double ms : replica) sum += ms;
  return sum;
}

TEST_CASE("each phase is reported by what its own replicas get", "[app]") {
  auto question = two_encoders({pictures_and_sounds()});
  question.options.exchange = "per-phase";
  const auto report = report_policy("in-order", question).value();
  CHECK(report.exchange.steps == 1);
  CHECK(report.exchange.exchanged == 1);
  const auto& phases = report.all.phases;
  REQUIRE(phases.size() == 3);
  // 1 + 2 + .. + 16 rows of pictures, 4 x 36 + 12 x 12 of sound and 16 x 20 tokens.
  const double work[] = {136, 288, 320};
  const std::size_t replicas[] = {1, 2, 2};
  for (std::size_t g = 0; g < 3; ++g) {
    CAPTURE(g);
    CHECK(phases[g].loads.size() == replicas[g]);
    CHECK(sum_of(phases[g].loads) == Approx(work[g]));
  }
  // A replica of audio has 144, more than the 136 of vision; those of the first half of the batch
  // 4 x 36 + 4 x 12 = 192. Spread, one is at most a sound longer than the other.
  CHECK(report.encoders == std::size_t{1});
  CHECK(phases[1].balance.drawn == Approx(192.0 / 144));
  CHECK(phases[1].balance.planned == Approx(1));
  CHECK(phases[1].balance.bound == Approx(1));
  CHECK(phases[1].spread.max_ms < 136);
  // All nodes are others than the llm's.
  CHECK(phases[1].far_rows.planned == Approx(1));
  CHECK(phases[1].far_rows.bound == Approx(1));
  // Both llm replicas are of the only pipeline.
  CHECK(report.all.dealt == std::vector<std::int64_t>{16});
  CHECK(report.all.microbatches == 2);
}

TEST_CASE("how even phases are is the mean over batches", "[app]") {
  const std::vector<SampleShape> alike(16, pictures_and_sounds()[15]);
  const auto report =
      report_policy("in-order", two_encoders({pictures_and_sounds(), alike})).value();
  CHECK(report.batches[0].phases[1].balance.drawn == Approx(192.0 / 144));
  CHECK(report.batches[1].phases[1].balance.drawn == Approx(1));
  CHECK(report.all.phases[1].balance.drawn == Approx((192.0 / 144 + 1) / 2));
  CHECK(report.all.phases[1].loads == report.batches[0].phases[1].loads);
  CHECK(report.exchange.steps == 2);
  CHECK(report.exchange.exchanged == 0);
}

TEST_CASE("two stages on one device share its time", "[app]") {
  // The same on one device, which is never idle: encoder 2 x 6, llm 3 x 7.
  const auto question = question_of({sample(2, 3), sample(4, 4)}, {true}, 2);
  const auto answer = report_policy("in-order", question).value().all;
  CHECK(answer.step_ms == Approx(33));
  CHECK(answer.lower_bound_ms == Approx(33));
}

TEST_CASE("what is deferred waits with its rows", "[app]") {
  // Equal encoders, llm work that only deferral can even out.
  std::vector<SampleShape> samples;
  for (int i = 0; i < 8; ++i)
    for (const TokenCount tokens : {90, 10, 10, 10}) samples.push_back(sample(10 + i, tokens));
  const auto answer = report_policy("deferral", question_of(samples, {false}, 6)).value().all;
  CHECK(answer.deferred > 0);
  CHECK(answer.rows_held_max >= 1);  // Each sample hands on one row.
  CHECK(answer.rows_held_max <= answer.deferred);
}

TEST_CASE("later batches are dealt by what the first ones took, and means go over all", "[app]") {
  // The second pipeline has one device for what the first one has two for.
  const std::vector<SampleShape> samples(12, sample(10, 10));
  auto question = question_of(samples, {false, true}, 2);
  question.batches = {samples, samples};
  std::vector<std::size_t> announced;
  const auto report = report_policy("in-order", question, [&](std::size_t batch) {
                        announced.push_back(batch);
                      }).value();
  REQUIRE(report.batches.size() == 2);
  CHECK(announced == std::vector<std::size_t>{0, 1});
  CHECK(report.batches[0].dealt == std::vector<std::int64_t>{6, 6});
  CHECK(report.batches[1].dealt[0] > report.batches[1].dealt[1]);
  CHECK(report.batches[0].step_ms == Approx(6 * (20 + 30)));  // The slower pipeline's.
  CHECK(report.all.step_ms == Approx((report.batches[0].step_ms + report.batches[1].step_ms) / 2));
  CHECK(report.all.dealt == report.batches[0].dealt);
}

TEST_CASE("a report says of a job's batches what training predicts", "[app]") {
  const auto policy = GENERATE(from_range(balancer::policy_names()));
  CAPTURE(policy);
  auto job = engine::tiny_job();
  job.train.global_batch_size = 16;
  job.train.microbatches = 4;
  job.balancer.policy = policy;
  auto setup = engine::prepare(job).value();
  const auto device = scheduler::find_device("H100-80G").value();
  setup.costs =
      engine::planning_costs(setup, engine::computed_profile(setup, device), device.memory).value();
  const auto plan = engine::make_parallel_plan(setup).value();
  const auto options = engine::planner_options(setup, 600, 1);
  engine::BatchPlanner planner(plan, options);
  PolicyQuestion question{plan, options.microbatching, setup.costs, {}};
  std::vector<double> predicted;
  for (std::int64_t batch = 0; batch < 5; ++batch) {
    const auto planned = engine::plan_tiny(planner, setup, plan, batch).value();
    predicted.push_back(planned.prediction.calibrated_step_ms);
    question.batches.push_back(planned.iteration.samples);
  }
  const auto report = report_policy(policy, question).value();
  for (std::size_t batch = 0; batch < predicted.size(); ++batch) {
    CHECK(report.batches[batch].step_ms == predicted[batch]);
    CHECK(report.batches[batch].lower_bound_ms <= predicted[batch]);
  }
}

TEST_CASE("no batches make an empty report", "[app]") {
  auto question = question_of({}, {false}, 1);
  question.batches.clear();
  const auto none = report_policy("auto", question).value();
  CHECK(none.batches.empty());
  CHECK(none.all.step_ms == 0);
}

TEST_CASE("a wrong policy or schedule is named", "[app][errors]") {
  auto question = question_of({sample(1, 1)}, {false}, 1);
  CHECK(report_policy("deferal", question).error().code == Errc::not_found);
  question.options.schedule = "2f2b";
  CHECK(report_policy("random", question).error().code == Errc::invalid_argument);
}

TEST_CASE("a policy whose microbatches break a device's memory is refused", "[app][errors]") {
  // A token holds a byte. The second microbatch has 40 of them, the llm's device room for 30.
  auto question =
      question_of({sample(1, 1), sample(1, 1), sample(1, 20), sample(1, 20)}, {false}, 2);
  question.costs = std::make_shared<const engine::PlanningCosts>(
      engine::PlanningCosts{question.costs->model, {}, Bytes{30}});
  const auto refused = report_policy("in-order", question);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
}

}  // namespace
}  // namespace troupe::app
