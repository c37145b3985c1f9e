// How large a microbatch of the llm may be.

#include "tests/torch_catch.hpp"

#include "scheduler/simulate/llm_cap.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/iteration/microbatching.hpp"
#include "engine/layout/choose_layout.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/engine/phase_fixture.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/scheduler/two_layers.hpp"

namespace troupe::engine {
namespace {

using scheduler::testing::two_layer_sample;

ParallelPlan plan_of(std::vector<HandStage> stages, std::int32_t nodes) {
  auto job = tiny_job();
  job.parallel.layout.pipelines = {std::move(stages)};
  job.cluster.nodes = job.cluster.local_nodes = nodes;
  return make_parallel_plan(prepare(job).value()).value();
}

/// Encoder and projector on one device, the llm on the other or on the same one.
ParallelPlan pair_of(bool shared) {
  return plan_of({{0, 0, {{"vision", {}}}}, {shared ? 0 : 1, 0, {{"llm", {}}}}}, shared ? 1 : 2);
}

/// 100 bytes of state for each stage, and 10 bytes of activations for each sample.
scheduler::SimulationCosts costs_of_stages() {
  scheduler::SimulationCosts costs;
  costs.state_bytes = [](StageId) { return 100.0; };
  costs.activation_bytes = [](StageId, const std::vector<std::int32_t>& samples) {
    return 10.0 * static_cast<double>(samples.size());
  };
  return costs;
}

/// Of the first llm, whose samples are 6 ms of work.
std::optional<double> cap_ms(const ParallelPlan& plan, const scheduler::SimulationCosts& costs,
                             std::int64_t device_memory, const std::vector<std::int32_t>& samples,
                             const std::vector<double>& encoders_keep = {}) {
  const auto rooms = rooms_in_flight(plan, costs, Bytes{device_memory}, encoders_keep);
  return llm_cap_ms(plan, costs, rooms, ReplicaId{1}, samples, 6);
}

TEST_CASE("a microbatch of the llm takes what state leaves", "[engine]") {
  const auto plan = pair_of(false);
  auto costs = costs_of_stages();
  // 40 bytes are left, one microbatch in flight on the last stage: 40 of 30 bytes for 6 ms are 8.
  const auto cap = cap_ms(plan, costs, 140, {0, 1, 2});
  REQUIRE(cap.has_value());
  CHECK(*cap == 8);
  // State alone is too much: nothing fits.
  CHECK(*cap_ms(plan, costs, 90, {0}) == 0);
  costs.activation_bytes = [](StageId, const auto&) { return 0.0; };
  CHECK_FALSE(cap_ms(plan, costs, 140, {0}).has_value());
}

TEST_CASE("what a device keeps on standby leaves less for microbatches", "[engine]") {
  auto costs = costs_of_stages();
  // As above with 20 of the 40 bytes taken on the llm's device: 20 of 30 bytes for 6 ms are 4.
  costs.standby_bytes = [](DeviceId device) { return device.value == 1 ? 20.0 : 0.0; };
  CHECK(*cap_ms(pair_of(false), costs, 140, {0, 1, 2}) == 4);
}

TEST_CASE("the deeper a stage, the smaller the microbatches that fit", "[engine]") {
  // The llm in two stages on devices of their own: two microbatches are in flight on the first, so
  // that 60 bytes of room are 30 for each, and 30 of 30 bytes for 6 ms are 6.
  const auto plan = plan_of({{0, 0, {{"vision", {}}}},
                             {1, 0, {{"llm", LayerRange{0, 2}}}},
                             {2, 0, {{"llm", LayerRange{2, 4}}}}},
                            3);
  CHECK(*cap_ms(plan, costs_of_stages(), 160, {0, 1, 2}) == 6);
}

TEST_CASE("stages of the llm on one device have its room together", "[engine]") {
  // Of 60 bytes two microbatches on the first stage and one on the second: 90 bytes for 6 ms.
  const auto plan = plan_of({{0, 0, {{"vision", {}}}},
                             {1, 0, {{"llm", LayerRange{0, 2}}}},
                             {1, 0, {{"llm", LayerRange{2, 4}}}}},
                            2);
  CHECK(*cap_ms(plan, costs_of_stages(), 260, {0, 1, 2}) == 4);
}

TEST_CASE("encoders leave the llm less of a device that both share", "[engine]") {
  using Kept = std::vector<double>;
  const auto plan = pair_of(true);
  auto costs = costs_of_stages();
  // One of two microbatches has half of three samples, or more.
  const Kept kept = kept_by_encoders(plan, costs, {{0, 1, 2}}, 2);
  CHECK((kept == Kept{15, 0}));
  // 75 bytes less 15: 60 of 30 bytes for 6 ms are 12.
  CHECK(*cap_ms(plan, costs, 275, {0, 1, 2}, kept) == 12);
  CHECK(*cap_ms(plan, costs, 210, {0, 1, 2}, kept) == 0);
  // What is in host memory meanwhile takes nothing.
  costs.offloaded_bytes = [](StageId stage, const std::vector<std::int32_t>& samples) {
    return stage.value == 0 ? 8.0 * static_cast<double>(samples.size()) : 0.0;
  };
  CHECK((kept_by_encoders(plan, costs, {{0, 1, 2}}, 2) == Kept{3, 0}));
  // Encoders elsewhere are in nobody's way, and of several nobody knows which has what.
  CHECK((kept_by_encoders(pair_of(false), costs, {{0, 1, 2}}, 2) == Kept{0, 0}));
  CHECK((kept_by_encoders(colocated(), costs, {{0, 1, 2}}, 2) == Kept{0, 0, 0, 0}));
}

TEST_CASE("a cut leaves encoders on the llm's device their room", "[engine]") {
  const std::string schedule = GENERATE("1f1b", "three-phase");
  CAPTURE(schedule);
  HandLayout layout;
  layout.pipelines = {{{0, 0, {{"vision", {}}}}, {0, 0, {{"llm", {}}}}}};
  const auto plan =
      scheduler::place_by_hand(scheduler::testing::two_layers(), layout, {1, 1}).value();
  // One picture of 40 rows, and four times 20 rows for the llm. The picture is all of the encoder's
  // work, so that one microbatch would do: 80 rows of the llm beside it. A device has room for 85,
  // which is enough for 40 of each.
  DealtBatch batch{1, 1, {}, {{0, 1, 2, 3}}};
  batch.samples.assign(4, two_layer_sample(0, 20));
  batch.samples.front() = two_layer_sample(40, 20);
  const auto known = std::make_shared<const PlanningCosts>(
      PlanningCosts{scheduler::testing::two_layer_costs(0, 1000), {}, Bytes{85'500}});
  MicrobatchingOptions options;
  options.policy = "hierarchical";
  options.schedule = schedule;
  options.microbatches = 2;
  const auto made = Microbatching(plan, options, known).plan(batch);
  REQUIRE(made.ok());
  CHECK(made.value().iteration.microbatches[1].size() == 2);
}

}  // namespace
}  // namespace troupe::engine
