#include "scheduler/simulate/room_demands.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/simulate/memory_bounds.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

/// Two pipelines, encoders before the llm; `shared`: on the devices of each other's llm.
ParallelPlan two_pipelines(bool shared) {
  HandLayout layout;
  layout.pipelines = {
      {{0, 0, {{"vision", {}}, {"audio", {}}}}, {1, 0, {{"llm", {}}}}},
      {{shared ? 1 : 2, 0, {{"vision", {}}, {"audio", {}}}}, {shared ? 0 : 3, 0, {{"llm", {}}}}}};
  return place_by_hand(testing::vision_audio_llm(), layout, {shared ? 2 : 4, 1}).value();
}

TEST_CASE("windows are as wide as all need that share devices or rows", "[scheduler]") {
  for (const bool shared : {false, true})
    for (const int images : {0, 1}) {
      CAPTURE(shared, images);
      const auto plan = two_pipelines(shared);
      std::vector<SampleShape> samples;
      for (int s = 0; s < 8; ++s)
        samples.push_back(testing::sample(s == 1 || s == 2 ? images : 1, 0));
      auto microbatches = assign_by_count(plan, 8, 4);
      REQUIRE(plan.replicas.size() == 4);
      REQUIRE(plan.is_llm(ReplicaId{1}));
      REQUIRE(microbatches[1].size() == 4);
      // The first llm trains the other way round what is encoded second and third.
      std::swap(microbatches[1][1], microbatches[1][2]);
      const SampleUnits units(samples, {});
      const auto sets = window_sets(plan, RowFlow(plan.model, units.shapes()), units, microbatches);
      REQUIRE(sets.size() == 4);
      for (std::size_t r = 0; r < 4; ++r) {
        const bool is_joined = shared || plan.replicas[r].pipeline == PipelineId{0};
        CHECK((sets[r].number == sets[0].number) == is_joined);
        CHECK(sets[r].encoded == 4);
        // Text is encoded nowhere.
        CHECK(sets[r].least_width == (images > 0 && is_joined ? 2 : 1));
      }
    }
}

TEST_CASE("no encoder wants room for more microbatches than it has", "[scheduler]") {
  // As above on shared devices, but the second pipeline encodes all at once.
  const auto plan = two_pipelines(true);
  const std::vector<SampleShape> samples(8, testing::sample(1, 0));
  auto microbatches = assign_by_count(plan, 8, 4);
  std::swap(microbatches[1][1], microbatches[1][2]);
  microbatches[2] = cut_by_count(4, 4, 1);
  const SampleUnits units(samples, {});
  const RowFlow flow(plan.model, units.shapes());
  const auto sets = window_sets(plan, flow, units, microbatches);
  for (const WindowSet& set : sets) CHECK(set.least_width == 2);
  const auto demands = room_demands(
      plan, flow, 4, std::vector<LargestMicrobatch>(plan.stages.size()), microbatches, sets);
  for (std::size_t r : {0U, 2U}) {
    const DeviceId device = plan.at(plan.replicas[r].stages.front()).devices.front();
    CHECK(demands[device.index()].least_width == (r == 0 ? 2 : 1));
    CHECK(demands[device.index()].encoder_microbatches == (r == 0 ? 4 : 1));
  }
}

TEST_CASE("windows as narrow as a step lets them be have an order", "[scheduler][property]") {
  int wide = 0;
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    auto made = testing::random_case(seed);
    made.input.schedule = seed % 2 == 0 ? "three-phase" : "dip";
    if (!plan_iteration(made.plan, made.input).ok()) continue;
    const SampleUnits units(made.input.samples, made.input.pieces);
    const auto sets = window_sets(made.plan, RowFlow(made.plan.model, units.shapes()), units,
                                  made.input.microbatches);
    const auto width_of = [&](const Stage& stage) {
      return sets[stage.replica.index()].least_width;
    };
    auto& bounds = made.input.max_in_flight;
    for (std::size_t s = 0; s < made.plan.stages.size(); ++s)
      bounds.push_back(made.plan.is_llm(StageId{s}) ? 0 : width_of(made.plan.stages[s]));
    const auto narrow = plan_iteration(made.plan, made.input);
    REQUIRE(narrow.ok());
    for (std::size_t s = 0; s < bounds.size(); ++s)
      if (bounds[s] > 0) CHECK(narrow.value().max_in_flight[s] <= bounds[s]);
    wide += std::ranges::any_of(sets, [](const WindowSet& set) { return set.least_width > 1; });
  }
  CHECK(wide > 5);
}

/// In three phases, of six microbatches with a picture each, encoders on a device of their own and
/// two stages of the llm on two others, which have `room` times what the rows of a picture are as
/// they enter the llm. Encoders keep as much of each, the llm's first stage twice that beside them.
std::vector<std::int32_t> bounds_apart(double room, bool frozen) {
  ModelGraph model = testing::vision_audio_llm();
  for (ModuleSpec& module : model.modules) module.freeze = frozen && module.kind != ModuleKind::llm;
  HandLayout layout;
  layout.pipelines = {{{0, 0, {{"vision", {}}, {"audio", {}}}},
                       {1, 0, {{"llm", LayerRange{0, 3}}}},
                       {2, 0, {{"llm", LayerRange{3, 6}}}}}};
  const auto plan = place_by_hand(model, layout, {3, 1}).value();
  const std::vector<SampleShape> samples(6, testing::sample(1, 0));
  const SampleUnits units(samples, {});
  const auto flow = std::make_shared<const RowFlow>(plan.model, units.shapes());
  constexpr double kRows = 2 * 64 * 4;
  SimulationCosts costs;
  costs.state_bytes = [](StageId) { return 0.0; };
  costs.activation_bytes = [](StageId stage, const std::vector<std::int32_t>& part) {
    constexpr double kKept[] = {1, 2, 0};
    return kRows * kKept[stage.index()] * static_cast<double>(part.size());
  };
  return memory_bounds(plan, with_arriving_rows(costs, plan, flow),
                       Bytes{static_cast<std::int64_t>(room * kRows)}, assign_by_count(plan, 6, 6),
                       "three-phase", *flow, units)
      .value();
}

TEST_CASE("rows of a window take room also where the llm has a device for itself", "[scheduler]") {
  using Bounds = std::vector<std::int32_t>;
  // Of 6 encoders could keep three with their gradients. Two of the llm's in flight are 4, and
  // leave room for the rows of two: three windows, 3 + 3 / 2 round trips. One would take 2 + 4.
  CHECK((bounds_apart(6, false) == Bounds{2, 2, 1}));
  CHECK((bounds_apart(8, false) == Bounds{4, 2, 1}));
  // Frozen ones get no gradients and wait for no window: 6 of 9 are rows, and one is in flight.
  CHECK((bounds_apart(9, true) == Bounds{9, 1, 1}));
  CHECK((bounds_apart(10, true) == Bounds{10, 2, 1}));
}

/// 100 bytes of state in each stage. A sample keeps 16 bytes in encoders and 4000 in the llm, which
/// takes ten times as long: rows of a whole window wait for it.
SimulationCosts slow_llm(const ParallelPlan& plan) {
  SimulationCosts costs;
  costs.task_ms = [&plan](StageId stage, const std::vector<std::int32_t>&, TaskKind) {
    return plan.is_llm(stage) ? 10.0 : 1.0;
  };
  costs.state_bytes = [](StageId) { return 100.0; };
  costs.activation_bytes = [&plan](StageId stage, const std::vector<std::int32_t>& part) {
    return (plan.is_llm(stage) ? 4000.0 : 16.0) * static_cast<double>(part.size());
  };
  return costs;
}

TEST_CASE("rows of a window have room where they wait for an llm alone", "[scheduler][property]") {
  int overfull = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto plan = two_pipelines(false);
    IterationInput input;
    input.schedule = seed % 2 == 0 ? "three-phase" : "dip";
    const int count = testing::draw(random, 16, 32);
    for (int s = 0; s < count; ++s) {
      const int images = testing::draw(random, 0, 5) == 0 ? 0 : testing::draw(random, 1, 2);
      input.samples.push_back(testing::sample(images, 0));
    }
    input.microbatches = assign_by_count(plan, count, 8);
    const auto costs = slow_llm(plan);
    input.task_cost = costs.task_ms;
    const SampleUnits units(input.samples, {});
    input.flow = std::make_shared<const RowFlow>(plan.model, units.shapes());
    const auto kept = with_arriving_rows(costs, plan, input.flow);
    double largest = 0, rows = 0;  // Of a microbatch of the llm.
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const StageId stage{s};
      if (!plan.is_llm(stage)) continue;
      for (const Microbatch& microbatch : input.microbatches[plan.at(stage).replica.index()]) {
        const auto& part = microbatch.parts.front().samples;
        const double bytes = kept.activation_bytes(stage, part);
        largest = std::max(largest, bytes);
        rows = std::max(rows, bytes - costs.activation_bytes(stage, part));
      }
    }
    // Room for one microbatch in flight and the rows of another, or of some.
    const double memory = 100 + largest + rows + 500.0 * testing::draw(random, 0, 4);
    const auto bounds = memory_bounds(plan, kept, Bytes{static_cast<std::int64_t>(memory)},
                                      input.microbatches, input.schedule, *input.flow, units);
    REQUIRE(bounds.ok());
    const auto fullest = [&](const std::vector<std::int32_t>& in_flight) {
      input.max_in_flight = in_flight;
      const auto step = simulate(plan, plan_iteration(plan, input).value(), costs).value();
      return *std::ranges::max_element(step.peak_memory_bytes);
    };
    CHECK(fullest(bounds.value()) <= memory);
    overfull += fullest({}) > memory ? 1 : 0;
  }
  CHECK(overfull > 100);  // With all in one window.
}

}  // namespace
}  // namespace troupe::scheduler
