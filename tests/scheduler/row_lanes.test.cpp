#include "scheduler/iteration/row_lanes.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "scheduler/iteration/plan_iteration.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::random_case;
using testing::text_llm;

TEST_CASE("stages that feed each other have a lane each way", "[scheduler]") {
  // Layers on devices 0, 1, 2 of three nodes, one after the other: 0 and 2 never meet.
  const auto plan = place_by_hand(text_llm(3), {}, {3, 1}).value();
  const auto lane = [](int from, int to) { return RowLane{DeviceId{from}, DeviceId{to}}; };
  CHECK(row_lanes(plan) == std::vector{lane(0, 1), lane(1, 0), lane(1, 2), lane(2, 1)});
  CHECK(row_lanes(place_by_hand(text_llm(3), {}, {1, 1}).value()).empty());
}

TEST_CASE("rows between devices of a pipeline have a lane, and a way back",
          "[scheduler][property]") {
  int on_lanes = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const auto made = random_case(seed);
    const auto planned = plan_iteration(made.plan, made.input);
    REQUIRE(planned.ok());
    const auto lanes = row_lanes(made.plan);
    CHECK(std::ranges::is_sorted(lanes));
    CHECK(std::ranges::adjacent_find(lanes) == lanes.end());
    for (const RowLane& lane : lanes) {
      CHECK(lane.from != lane.to);
      CHECK(std::ranges::binary_search(lanes, RowLane{lane.to, lane.from}));
    }
    for (const Message& message : planned.value().messages) {
      const StageId source = message.source.stage, destination = message.destination.stage;
      const RowLane way{made.plan.at(source).devices.front(),
                        made.plan.at(destination).devices.front()};
      if (way.from == way.to || made.plan.pipeline_of(source) != made.plan.pipeline_of(destination))
        continue;
      CHECK(std::ranges::binary_search(lanes, way));
      ++on_lanes;
    }
  }
  CHECK(on_lanes > 200);
}

}  // namespace
}  // namespace troupe::scheduler
