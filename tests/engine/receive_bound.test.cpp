#include "engine/execution/receive_bound.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace troupe::engine {
namespace {

/// Device 1 of two: its stage 1 gets rows of microbatches 0 to 2 from stage 0, and reduces. Row and
/// gradient of a message share its index.
IterationPlan iteration(std::int32_t in_flight) {
  IterationPlan plan;
  plan.max_in_flight = {3, in_flight};
  for (std::size_t m = 0; m < 3; ++m) {
    Message message;
    message.source = {StageId{0}, MicrobatchId{m}, PartId{0}};
    message.destination = {StageId{1}, MicrobatchId{m}, PartId{0}};
    plan.messages.push_back(message);
  }
  plan.actions.resize(2);
  const auto add = [&](std::size_t device, ActionKind kind, std::size_t message) {
    Action action{kind, StageId{device}, {}, {}, {}, {}};
    action.message = MessageId{message};
    plan.actions[device].push_back(action);
  };
  for (std::size_t m = 0; m < 3; ++m) {
    add(1, ActionKind::receive, m);
    add(1, ActionKind::forward, m);
    add(0, ActionKind::receive_gradient, m);
  }
  for (std::size_t g = 0; g < 3; ++g) add(1, ActionKind::reduce, g);
  return plan;
}

std::vector<Bytes> bytes(const std::vector<std::int64_t>& counts) {
  std::vector<Bytes> sizes;
  for (const std::int64_t count : counts) sizes.push_back(Bytes{count});
  return sizes;
}

TEST_CASE("a device posts what its stages may have in flight, and two reductions", "[engine]") {
  // Rows of 10, 40 and 20 bytes; reductions of 3, 5 and 4.
  const auto received = bytes({10, 0, 40, 0, 20, 0, 3, 5, 4});
  CHECK(receive_bound(iteration(1), DeviceId{1}, received) == Bytes{40 + 5 + 4});
  CHECK(receive_bound(iteration(2), DeviceId{1}, received) == Bytes{40 + 20 + 5 + 4});
  CHECK(receive_bound(iteration(3), DeviceId{1}, received) == Bytes{70 + 5 + 4});
}

TEST_CASE("gradients count for the microbatch of the stage that gets them back", "[engine]") {
  // Stage 0 may have three in flight: all of its gradients.
  CHECK(receive_bound(iteration(1), DeviceId{0}, bytes({7, 8, 9})) == Bytes{24});
}

TEST_CASE("rows and gradients of one microbatch count together", "[engine]") {
  auto plan = iteration(1);
  Message onward;
  onward.source = {StageId{1}, MicrobatchId{2}, PartId{0}};
  onward.destination = {StageId{2}, MicrobatchId{2}, PartId{0}};
  plan.messages.push_back(onward);
  Action back{ActionKind::receive_gradient, {}, {}, {}, {}, {}};
  back.message = MessageId{std::size_t{3}};
  plan.actions[1].push_back(back);
  // Microbatch 2: 20 bytes of rows and 25 of gradients are more than the 40 of microbatch 1.
  const auto received = bytes({10, 0, 40, 0, 20, 0, 0, 0, 0, 25});
  CHECK(receive_bound(plan, DeviceId{1}, received) == Bytes{45});
}

TEST_CASE("content counts for the microbatch that reads it", "[engine]") {
  auto plan = iteration(1);
  plan.deliveries = {{DeviceId{0}, {StageId{1}, MicrobatchId{2}, PartId{0}}, {}, {0}, Bytes{25}}};
  plan.actions[1].push_back({ActionKind::receive_content, {}, {}, {}, {}, {}, DeliveryId{0}});
  // Microbatch 2: 20 bytes of rows and 25 of content are more than the 40 of microbatch 1.
  const auto received = bytes({10, 0, 40, 0, 20, 0, 0, 0, 0, 25});
  CHECK(receive_bound(plan, DeviceId{1}, received) == Bytes{45});
}

TEST_CASE("rows that only pass count two at a time", "[engine]") {
  auto plan = iteration(1);
  for (const std::size_t message : {0U, 1U, 2U}) {
    Action relay{message == 1 ? ActionKind::relay_gradient : ActionKind::relay, {}, {}, {}, {}, {}};
    relay.message = MessageId{message};
    plan.actions[1].push_back(relay);
  }
  // Beside 40 bytes of rows and reductions of 5 and 4: those of 30 and 20 bytes, not the 6.
  const auto received = bytes({10, 0, 40, 0, 20, 0, 3, 5, 4, 30, 6, 20});
  CHECK(receive_bound(plan, DeviceId{1}, received) == Bytes{40 + 5 + 4 + 30 + 20});
}

TEST_CASE("a device that gets nothing from others posts nothing", "[engine]") {
  CHECK(receive_bound(iteration(1), DeviceId{1}, bytes({0, 0, 0, 0, 0, 0, 0, 0, 0})) == Bytes{});
}

}  // namespace
}  // namespace troupe::engine
