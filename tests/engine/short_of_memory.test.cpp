// What is said where memory leaves no order.

#include "tests/torch_catch.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/iteration/microbatching.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/simulate/memory_bounds.hpp"
#include "tests/engine/phase_fixture.hpp"
#include "tests/scheduler/two_layers.hpp"

namespace troupe::engine {
namespace {

using Catch::Matchers::ContainsSubstring;
using scheduler::testing::two_layer_sample;

/// An encoder and an llm of one layer each, on nodes of their own or on one device.
ParallelPlan pair_of(bool shared) {
  HandLayout layout;
  layout.pipelines = {{{0, 0, {{"vision", {}}}}, {shared ? 0 : 1, 0, {{"llm", {}}}}}};
  return scheduler::place_by_hand(scheduler::testing::two_layers(), layout, {shared ? 1 : 2, 1})
      .value();
}

TEST_CASE("a bound by memory that leaves no order says what memory is short", "[engine][errors]") {
  constexpr double kMebibyte = 1 << 20;
  scheduler::SimulationCosts costs;
  costs.state_bytes = [](StageId) { return 50 * kMebibyte; };
  costs.activation_bytes = [](StageId, const std::vector<std::int32_t>& samples) {
    return 30 * kMebibyte * static_cast<double>(samples.size());
  };
  // The second microbatch of the encoder is the largest.
  const std::vector<MicrobatchList> cut{{one_part({0}), one_part({1, 2})}, {one_part({0, 1, 2})}};
  const auto said = [&](bool shared, const std::string& schedule) {
    return short_of_memory(pair_of(shared), costs, Bytes{150 << 20}, cut, schedule, StageId{0}, 2);
  };
  const Error alone = said(false, "1f1b");
  CHECK(alone.code == Errc::infeasible);
  CHECK(alone.where == "cluster.device_memory_gib");
  CHECK(alone.message ==
        "stage 0 keeps activations of 2 microbatches at once, up to 120.0 MiB; device 0 of node 0 "
        "has 100.0 MiB beside state");
  CHECK(alone.fix == "raise it or train.microbatches, for fewer samples in each");
  CHECK_THAT(said(true, "1f1b").message, ContainsSubstring("50.0 MiB beside state for all"));
  // Only phases take activations to host memory, and only once.
  const std::string offload = "scheduler.offload_encoders = \"activations\"";
  CHECK_THAT(said(false, "dip").fix, ContainsSubstring(offload));
  costs.offloaded_bytes = [](StageId, const std::vector<std::int32_t>& samples) {
    return 20 * kMebibyte * static_cast<double>(samples.size());
  };
  // 40 of what leaves once, and twice the 20 that stay.
  const Error offloaded = said(false, "dip");
  CHECK_THAT(offloaded.fix, !ContainsSubstring(offload));
  CHECK_THAT(offloaded.message, ContainsSubstring("up to 80.0 MiB; "));
  CHECK_THAT(offloaded.message, ContainsSubstring("where their rows wait for the llm"));
}

TEST_CASE("stages of a device never have more than its room together", "[engine][errors]") {
  const auto plan = pair_of(true);
  scheduler::SimulationCosts costs;
  costs.state_bytes = [](StageId) { return 100.0; };
  costs.activation_bytes = [](StageId stage, const std::vector<std::int32_t>& samples) {
    return (stage.value == 0 ? 6.0 : 20.0) * static_cast<double>(samples.size());
  };
  const std::vector<MicrobatchList> cut{{one_part({0})}, {one_part({0, 1, 2})}};
  const std::vector<SampleShape> empty(3);
  const auto within = [&](std::int64_t room) {
    return memory_bounds(plan, costs, Bytes{200 + room}, cut, "1f1b",
                         scheduler::RowFlow(plan.model, empty), SampleUnits(empty, {}));
  };
  using Bounds = std::vector<std::int32_t>;
  // Halves of 60 each: one of the llm's 60, ten of the encoder's 6.
  CHECK((within(120).value() == Bounds{10, 1}));
  // The llm takes 60 of 100, and the encoder has 40.
  CHECK((within(100).value() == Bounds{6, 1}));
  CHECK((within(66).value() == Bounds{1, 1}));
  // So deals know.
  CHECK((rooms_beside_llm(plan, costs, Bytes{300}, cut) == std::vector<double>{40, 100}));
  CHECK((rooms_beside_llm(plan, costs, Bytes{250}, cut) == std::vector<double>{0, 50}));
  // Each has room alone.
  const auto full = within(65);
  REQUIRE_FALSE(full.ok());
  CHECK(full.error().code == Errc::infeasible);
  CHECK(full.error().where == "cluster.device_memory_gib");
  CHECK_THAT(full.error().message, ContainsSubstring("the stages of device 0 of node 0 keep"));
}

TEST_CASE("a step that memory leaves no order blames memory, not a bound that nobody set",
          "[engine][errors]") {
  const auto plan = pair_of(false);
  // A row keeps 1000 bytes: of two pictures of 40 rows one has room.
  const auto known = std::make_shared<const PlanningCosts>(
      PlanningCosts{scheduler::testing::two_layer_costs(0, 1000), {}, Bytes{42'500}});
  DealtBatch batch{1, 1, {}, {{0, 1}}};
  batch.samples.assign(2, two_layer_sample(40, 2));
  const auto planned = [&](const std::string& schedule) {
    MicrobatchingOptions options;
    options.policy = "in-order";
    options.schedule = schedule;
    options.microbatches = 2;
    return Microbatching(plan, options, known).plan(batch);
  };
  CHECK(planned("1f1b").ok());
  // All forwards come first.
  const auto refused = planned("gpipe");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK(refused.error().where == "cluster.device_memory_gib");
  CHECK_THAT(refused.error().message,
             ContainsSubstring("stage 0 keeps activations of 2 microbatches at once"));
}

}  // namespace
}  // namespace troupe::engine
