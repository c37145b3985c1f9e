#include "scheduler/layout/layout_score.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/simulate/memory_bounds.hpp"
#include "tests/scheduler/layout_requests.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::model_of;
using testing::OneOfEach;
using testing::split_by_ranks;
using testing::text;
using testing::text_llm;

/// Layers of 1, 2, 2 and 4 ms per token and pass, samples of ten tokens, batches of eight.
struct Weighed {
  CostModel model = model_of(split_by_ranks(text_llm(4)), {1, 2, 2, 4}, {{}, {2, 1}});
  AutoLayoutRequest request;

  Weighed() {
    request.model = &model;
    request.samples = {text(10), text(10), text(10)};
    request.global_batch = 8;
    request.microbatches = 2;
  }
};

TEST_CASE("a layer weighs what a mean microbatch costs it", "[scheduler]") {
  const Weighed weighed;
  LayoutScorer scorer(weighed.request);
  // Four samples a pipeline, two a microbatch: 20 tokens. Forward and both gradients, but for the
  // first layer, which has nothing trainable before it.
  const auto two = scorer.weights(2, {}).value();
  REQUIRE(two.work_ms.size() == 4);
  CHECK(two.work_ms[0] == Approx(20 * 1 * 2));
  CHECK(two.work_ms[1] == Approx(20 * 2 * 3));
  CHECK(two.work_ms[2] == two.work_ms[1]);
  CHECK(two.work_ms[3] == Approx(20 * 4 * 3));
  for (const double bytes : two.activation_bytes) CHECK(bytes == Approx(20));
  // 10 to 13 elements of 16 bytes: parameter, gradient and two moments in fp32.
  CHECK(two.state_bytes == std::vector<double>{160, 176, 192, 208});
  CHECK((two.layers[3] == LayerId{ModuleId{0}, 3}));

  // Eight pipelines have a sample each; five have two at most, so one in a microbatch.
  for (const std::int32_t pipelines : {5, 8}) {
    const auto one = scorer.weights(pipelines, {}).value();
    CHECK(one.work_ms[1] == Approx(10 * 2 * 3));
    CHECK(one.activation_bytes[1] == Approx(10));
  }
  // Two devices for a stage: half of the time, and of the state, as all of it can be split.
  const auto split = scorer.weights(2, {{2, 1}}).value();
  CHECK(split.work_ms[1] == Approx(20 * 2 * 3 / 2));
  CHECK(split.state_bytes[0] == 80);
  CHECK(scorer.weights(2, {{4, 1}}).error().code == Errc::not_found);
}

TEST_CASE("asking again, or for other degrees between, changes no answer", "[scheduler]") {
  const Weighed weighed;
  LayoutScorer scorer(weighed.request), fresh(weighed.request);
  const auto first = scorer.weights(2, {}).value();
  const auto split = scorer.weights(2, {{2, 1}}).value();
  CHECK(scorer.weights(2, {}).value().work_ms == first.work_ms);
  CHECK(fresh.weights(2, {{2, 1}}).value().work_ms == split.work_ms);
  const auto plan = place_by_hand(weighed.model.graph(), {}, {2, 1}).value();
  const auto step = scorer.score(plan, {}).value();
  CHECK(fresh.score(plan, {}).value().step_ms == step.step_ms);
  CHECK(predict_step(plan, weighed.request).value().step_ms == step.step_ms);
}

TEST_CASE("samples that some nodes see are searched with as all others", "[scheduler]") {
  Weighed weighed;
  const auto plan = place_by_hand(weighed.model.graph(), {}, {2, 1}).value();
  const auto seen_by_all = predict_step(plan, weighed.request);
  for (auto& sample : weighed.request.samples) sample.seen_by = {NodeId{0}};
  const auto step = predict_step(plan, weighed.request);
  REQUIRE(step.ok());
  CHECK(step.value().step_ms == seen_by_all.value().step_ms);
}

TEST_CASE("a score counts what encoders offload", "[scheduler]") {
  OneOfEach one;
  one.request.prediction.speeds.host = {0.5, 1e-6};  // A byte in a millisecond.
  const auto plan = one.on_one_device();
  const auto resident = predict_step(plan, one.request).value();
  CHECK(resident.step_ms == Approx(4 * (2 + 3)));
  CHECK(resident.peak_host_bytes == std::vector<double>{0});
  one.request.offload_encoders = true;
  const auto step = predict_step(plan, one.request).value();
  // Each microbatch of vision goes and comes back, but for its output.
  CHECK(step.step_ms == Approx(resident.step_ms + 8 * (0.5 + 60)));
  CHECK(step.peak_host_bytes == std::vector<double>{4 * 60});
  CHECK(step.peak_memory_bytes[0] < resident.peak_memory_bytes[0] - 3 * 60);
}

TEST_CASE("a score with offloading is that of the step's own plan", "[scheduler]") {
  // Of 158 bytes beside the state a microbatch of the llm takes 64, and one of vision 60 that it
  // offloads: 34 are left for what stays of four, and rows or gradients, 8 for each.
  OneOfEach one;
  one.request.offload_encoders = true;
  one.request.device_memory = Bytes{320 + 158};
  one.request.prediction.speeds.host = {0.5, 1e-6};
  const auto plan = one.on_one_device();
  const auto samples = draw_batch(one.request.samples, 4, one.request.seed);
  const auto flow = std::make_shared<const RowFlow>(plan.model, samples);
  const auto costs = with_offloading(
      predicted_costs(plan, one.model, samples, one.request.prediction).value(), plan, flow);
  IterationInput input;
  input.microbatches = assign_by_count(plan, 4, 4);
  input.schedule = one.request.schedule;
  input.offload_encoders = true;
  const SampleUnits units(samples, {});
  input.max_in_flight =
      memory_bounds(plan, with_arriving_rows(costs, plan, flow), one.request.device_memory,
                    input.microbatches, input.schedule, *flow, units)
          .value();
  input.task_cost = costs.task_ms;
  input.message_cost = message_costs(plan, costs);
  input.routes = {one.request.boundary, link_costs(costs)};
  const auto iteration = plan_iteration(plan, samples, std::move(input)).value();
  const auto step = simulate(plan, iteration, costs).value();

  LayoutScorer scorer(one.request);
  const auto scored = scorer.score(plan, 1).value();
  CHECK(scored.step_ms == step.step_ms);
  CHECK(scored.peak_memory_bytes == step.peak_memory_bytes);
  CHECK(scored.peak_host_bytes == step.peak_host_bytes);
  // In one window, where there would be room for one microbatch of 64.
  CHECK(scored.peak_host_bytes == std::vector<double>{4 * 60});
  CHECK(scored.peak_memory_bytes[0] <= 320 + 158);
}

TEST_CASE("layers of encoders weigh what is moved of them, too", "[scheduler]") {
  OneOfEach one(64, true);
  one.request.prediction.speeds.host = {0.5, 1e-6};
  LayoutScorer resident(one.request);
  const auto before = resident.weights(1, {}).value();
  CHECK(before.staying_bytes.empty());
  CHECK(before.leaving_bytes == std::vector<double>{40, 0});
  CHECK(before.moves_to_host());
  one.request.offload_encoders = true;
  LayoutScorer scorer(one.request);
  const auto weights = scorer.weights(1, {}).value();
  CHECK(weights.work_ms[0] == Approx(before.work_ms[0] + 2 * 64));
  CHECK(weights.work_ms[1] == before.work_ms[1]);
  CHECK(weights.activation_bytes == before.activation_bytes);
  CHECK(weights.staying_bytes == std::vector<double>{4, 0});
  const OneOfEach still;
  CHECK_FALSE(LayoutScorer(still.request).weights(1, {}).value().moves_to_host());
}

TEST_CASE("batches are drawn without repetition while there are enough samples", "[scheduler]") {
  const std::vector<SampleShape> samples{text(1), text(2), text(3)};
  const auto batch = draw_batch(samples, 7, 5);
  REQUIRE(batch.size() == 7);
  for (std::size_t begin : {0, 3}) {
    std::vector<TokenCount> tokens;
    for (std::size_t i = begin; i < begin + 3; ++i) {
      tokens.push_back(batch[i].llm_tokens);
      CHECK(batch[i].position == static_cast<std::int64_t>(i));
    }
    std::sort(tokens.begin(), tokens.end());
    CHECK(tokens == std::vector<TokenCount>{1, 2, 3});
  }
  CHECK((draw_batch(samples, 7, 5) == batch));
}

}  // namespace
}  // namespace troupe::scheduler
