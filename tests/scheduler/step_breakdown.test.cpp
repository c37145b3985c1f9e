#include "scheduler/simulate/step_breakdown.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "scheduler/iteration/plan_iteration.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::sample;
using testing::text_llm;

/// Forward 1 ms, backward 2 ms, updates 0.25 ms; a message of 512 bytes takes 1 ms and 0.5 ms.
SimulationCosts costs_of_512_bytes() {
  SimulationCosts costs;
  costs.task_ms = [](StageId, const auto&, TaskKind kind) {
    return kind == TaskKind::backward ? 2.0 : 1.0;
  };
  costs.optimizer_ms = [](StageId) { return 0.25; };
  costs.network = {0.5, 0.000512};
  return costs;
}

/// Simulates even runs of the samples in so many microbatches per llm replica, and takes that
/// apart.
StepBreakdown broken_down(const ParallelPlan& plan, std::vector<SampleShape> samples,
                          std::int32_t microbatches, const SimulationCosts& costs,
                          std::vector<double> speeds) {
  IterationInput input;
  const auto count = static_cast<std::int32_t>(samples.size());
  input.samples = std::move(samples);
  input.microbatches = assign_by_count(plan, count, microbatches);
  const auto iteration = plan_iteration(plan, input).value();
  SimulationOptions options;
  options.record_timeline = true;
  const auto step = simulate(plan, iteration, costs, options).value();
  const auto found = break_down(plan, iteration, step, speeds);
  CHECK(found.work_ms + found.fill_ms + found.boundary_ms + found.rest_ms == Approx(step.step_ms));
  return found;
}

TEST_CASE("waits for what is on its way to another module are the boundary's", "[scheduler]") {
  // Encoders on device 0, the llm on device 1; two rows of 64 columns are 512 bytes. Device 0: F0
  // 0-1, F1 1-2. Rows at device 1 at 2.5 and 3.5: F0 2.5-3.5, B0 3.5-5.5, F1 5.5-6.5, B1 6.5-8.5.
  // Gradients at device 0 at 7 and 10: B0 7-9, B1 10-12; commit 1, update 0.25. Both have 6.25 to
  // do. Device 0 waits 3.5 for the first gradient to be sent, 1.5 until it is there, and for the
  // second one, which was sent meanwhile, from 9 to 10.
  const HandLayout layout{{},
                          {{{"vision", "audio"}, {{0, 0, {{"vision", {}}, {"audio", {}}}}}},
                           {{"llm"}, {{1, 0, {{"llm", {}}}}}}}};
  const auto plan = place_by_hand(testing::vision_audio_llm(), layout, {2, 1}).value();
  const auto found =
      broken_down(plan, {sample(1, 0), sample(1, 0)}, 2, costs_of_512_bytes(), {1, 1});
  CHECK(found.work_ms == Approx(6.25));
  CHECK(found.fill_ms == Approx(3.5));
  CHECK(found.boundary_ms == Approx(2.5));
  CHECK(found.rest_ms == Approx(1));
  REQUIRE(found.phases.size() == 2);
  for (const PhaseTime& phase : found.phases) {
    CHECK(phase.largest_ms == Approx(6));
    CHECK(phase.imbalance_ms() == Approx(0).margin(1e-9));
  }
}

TEST_CASE("rows between stages of one module cross no boundary", "[scheduler]") {
  // Two rows of 64 columns between two stages of the llm: the same times.
  const auto plan = place_by_hand(text_llm(2), {}, {2, 1}).value();
  const auto found =
      broken_down(plan, {sample(0, 0, 2), sample(0, 0, 2)}, 2, costs_of_512_bytes(), {1});
  CHECK(found.boundary_ms == 0);
  CHECK(found.fill_ms == Approx(3.5 + 2.5));
  CHECK(found.rest_ms == Approx(1));
}

TEST_CASE("imbalance of a phase is beyond what its replicas would share by speed", "[scheduler]") {
  // Three copies of the llm, a sample each, passes of 1, 2 and 3 ms. Sums: 1 ms latency there, 1 ms
  // back, and commit 2; 40 bytes take a millisecond more: 15 in all (simulate_plan.test.cpp).
  const HandLayout layout{
      {{{0, 0, {{"llm", {}}}}}, {{1, 0, {{"llm", {}}}}}, {{2, 0, {{"llm", {}}}}}}};
  const auto plan = place_by_hand(text_llm(1), layout, {3, 1}).value();
  SimulationCosts costs;
  costs.task_ms = [](StageId stage, const auto&, TaskKind) { return 1.0 + stage.value; };
  costs.network = {1, 4e-5};
  costs.reduce_gigabytes_per_s = 4e-5;
  const std::vector<SampleShape> samples{sample(0, 0), sample(0, 0), sample(0, 0)};
  const auto found = broken_down(plan, samples, 1, costs, {1, 1, 1});
  CHECK(found.work_ms == Approx(6));
  CHECK(found.fill_ms == 0);
  CHECK(found.boundary_ms == 0);
  CHECK(found.rest_ms == Approx(15 - 6));
  REQUIRE(found.phases.size() == 1);
  CHECK(found.phases[0].largest_ms == Approx(6));
  CHECK(found.phases[0].even_ms == Approx(4));  // (2 + 4 + 6) / 3.
  // The last one is twice as fast: it has 12 of 18 units of work, and could do 9 in 4.5.
  CHECK(broken_down(plan, samples, 1, costs, {1, 1, 2}).phases[0].imbalance_ms() == Approx(1.5));
}

TEST_CASE("the parts of any step add up to it", "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const auto drawn = testing::random_case(seed);
    const auto iteration = plan_iteration(drawn.plan, drawn.input).value();
    auto costs = costs_of_512_bytes();
    costs.node = {0.25, 0.001024};
    SimulationOptions options;
    options.record_timeline = true;
    const auto step = simulate(drawn.plan, iteration, costs, options).value();
    const std::vector<double> speeds(drawn.plan.replicas.size(), 1);
    const auto found = break_down(drawn.plan, iteration, step, speeds);
    CHECK(found.fill_ms >= 0);
    CHECK(found.boundary_ms >= 0);
    CHECK(found.rest_ms >= -1e-9);
    for (const PhaseTime& phase : found.phases) CHECK(phase.imbalance_ms() >= -1e-9);
  }
}

}  // namespace
}  // namespace troupe::scheduler
