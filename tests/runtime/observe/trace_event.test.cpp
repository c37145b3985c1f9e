#include "runtime/observe/trace_event.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/runtime/observe/example_plan.hpp"

namespace troupe::observe {
namespace {

Action on_message(ActionKind kind) {
  Action action;
  action.kind = kind;
  action.message = MessageId{0};
  return action;
}

TEST_CASE("an event of a message carries the end that executes it and its bytes", "[observe]") {
  const auto plan = testing::example_iteration();
  const auto event = [&](ActionKind kind) {
    return trace_event(plan, DeviceId{0}, on_message(kind), 4);
  };
  // Rows leave the source and reach the destination; gradients go the other way.
  for (const auto kind : {ActionKind::send, ActionKind::receive_gradient}) {
    CHECK(event(kind).action.stage == StageId{0});
    CHECK(event(kind).action.microbatch == MicrobatchId{0});
  }
  for (const auto kind : {ActionKind::receive, ActionKind::send_gradient}) {
    CHECK(event(kind).action.stage == StageId{1});
    CHECK(event(kind).action.microbatch == MicrobatchId{4});
    CHECK(event(kind).action.part == PartId{1});
  }
  CHECK(event(ActionKind::send).bytes == 6 * 16 * 4);
  CHECK(event(ActionKind::send).step == 7);
  CHECK(event(ActionKind::send).epoch_number == 2);
}

TEST_CASE("an event of a delivery has its bytes, and where it comes the part that reads it",
          "[observe]") {
  auto plan = testing::example_iteration();
  plan.deliveries = {{DeviceId{3}, {StageId{1}, MicrobatchId{4}, PartId{1}}, {}, {1}, Bytes{1200}}};
  Action send{ActionKind::send_content, {}, {}, {}, {}, {}, DeliveryId{0}};
  Action receive = send;
  receive.kind = ActionKind::receive_content;
  receive.stage = StageId{1};
  CHECK(trace_event(plan, DeviceId{3}, send, 8).bytes == 1200);
  CHECK(trace_event(plan, DeviceId{3}, send, 8).action == send);
  const auto event = trace_event(plan, DeviceId{1}, receive, 8);
  CHECK(event.bytes == 1200);
  CHECK(event.action.stage == StageId{1});
  CHECK(event.action.microbatch == MicrobatchId{4});
  CHECK(event.action.part == PartId{1});
}

TEST_CASE("an event of compute, or of a message the plan lacks, is taken as it is", "[observe]") {
  const auto plan = testing::example_iteration();
  const Action forward{ActionKind::forward, StageId{2}, MicrobatchId{1}, PartId{0}, {}, {}};
  CHECK(trace_event(plan, DeviceId{2}, forward, 4).action == forward);
  Action unknown = on_message(ActionKind::send);
  unknown.message = MessageId{9};
  CHECK(trace_event(plan, DeviceId{2}, unknown, 4).action == unknown);
}

TEST_CASE("a node that has its own messages alone finds them by their names", "[observe]") {
  const auto whole = testing::example_iteration();
  auto own = whole;
  own.message_ids = {MessageId{7}};
  Action send = on_message(ActionKind::send);
  CHECK(trace_event(own, DeviceId{0}, send, 4).action == send);  // Of another node.
  send.message = MessageId{7};
  const auto event = trace_event(own, DeviceId{0}, send, 4);
  CHECK(event.action.microbatch == MicrobatchId{0});
  CHECK(event.bytes == 6 * 16 * 4);
}

TEST_CASE("only forward and backward count as compute", "[observe]") {
  CHECK(time_kind(ActionKind::forward) == TimeKind::compute);
  CHECK(time_kind(ActionKind::backward_weight) == TimeKind::compute);
  CHECK(time_kind(ActionKind::optimizer_step) == TimeKind::update);
  CHECK(time_kind(ActionKind::send) == TimeKind::transfer);
  CHECK(time_kind(ActionKind::offload) == TimeKind::offload);
  CHECK(time_kind(ActionKind::fetch) == TimeKind::offload);
  CHECK(time_kind(ActionKind::evict_parameters) == TimeKind::offload);
  CHECK(time_kind(ActionKind::fetch_parameters) == TimeKind::offload);
  CHECK(time_kind(ActionKind::fetch_state) == TimeKind::offload);
  CHECK(time_kind(ActionKind::offload_state) == TimeKind::offload);
  CHECK(time_kind(ActionKind::receive) == TimeKind::wait);
  CHECK(time_kind(ActionKind::commit) == TimeKind::wait);
}

TEST_CASE("the trace clock never goes backwards", "[observe]") {
  auto last = trace_now_ns();
  for (int i = 0; i < 1000; ++i) {
    const auto now = trace_now_ns();
    REQUIRE(now >= last);
    last = now;
  }
}

// Stands for a message library: counts what inspect hands over.
struct FieldCounter {
  using result_type = int;
  template <class... Fields>
  int operator()(Fields&...) {
    return static_cast<int>(sizeof...(Fields));
  }
};

TEST_CASE("every field of the trace values travels", "[observe]") {
  FieldCounter counter;
  TraceEvent event;
  TraceCounter value;
  TraceMark mark;
  CHECK(inspect(counter, event) == 8);
  CHECK(inspect(counter, value) == 4);
  CHECK(inspect(counter, mark) == 6);
}

}  // namespace
}  // namespace troupe::observe
