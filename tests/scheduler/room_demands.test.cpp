#include "scheduler/simulate/room_demands.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <utility>
#include <vector>

#include "scheduler/iteration/plan_iteration.hpp"
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
      const auto widths =
          least_widths(plan, RowFlow(plan.model, units.shapes()), units, microbatches);
      REQUIRE(widths.size() == 4);
      for (std::size_t r = 0; r < 4; ++r) {
        // Text is encoded nowhere.
        const bool waits = images > 0 && (shared || plan.replicas[r].pipeline == PipelineId{0});
        CHECK(widths[r] == (waits ? 2 : 1));
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
  CHECK((least_widths(plan, flow, units, microbatches) == std::vector<std::int32_t>{2, 2, 2, 2}));
  const auto demands = room_demands(
      plan, flow, units, 4, std::vector<LargestMicrobatch>(plan.stages.size()), microbatches);
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
    const auto widths = least_widths(made.plan, RowFlow(made.plan.model, units.shapes()), units,
                                     made.input.microbatches);
    auto& bounds = made.input.max_in_flight;
    for (std::size_t s = 0; s < made.plan.stages.size(); ++s)
      bounds.push_back(made.plan.is_llm(StageId{s}) ? 0
                                                    : widths[made.plan.stages[s].replica.index()]);
    const auto narrow = plan_iteration(made.plan, made.input);
    REQUIRE(narrow.ok());
    for (std::size_t s = 0; s < bounds.size(); ++s)
      if (bounds[s] > 0) CHECK(narrow.value().max_in_flight[s] <= bounds[s]);
    wide += *std::max_element(widths.begin(), widths.end()) > 1 ? 1 : 0;
  }
  CHECK(wide > 5);
}

}  // namespace
}  // namespace troupe::scheduler
