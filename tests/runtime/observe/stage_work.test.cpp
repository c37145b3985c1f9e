#include "runtime/observe/stage_work.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::observe {
namespace {

TraceEvent event(ActionKind kind, int stage, std::int64_t begin, std::int64_t end) {
  TraceEvent made;
  made.device = DeviceId{stage};
  made.action.kind = kind;
  made.action.stage = StageId{stage};
  made.begin_ns = begin;
  made.end_ns = end;
  return made;
}

TEST_CASE("work is the sum of compute, from first begin to last end", "[observe]") {
  const std::vector<TraceEvent> events{
      event(ActionKind::forward, 1, 10, 30),          event(ActionKind::send, 1, 30, 31),
      event(ActionKind::receive_gradient, 1, 31, 90), event(ActionKind::backward, 1, 90, 100),
      event(ActionKind::optimizer_step, 1, 100, 150), event(ActionKind::forward, 0, 5, 6)};
  CHECK(stage_work(events) == std::vector<StageWork>{{StageId{0}, DeviceId{0}, 1, 5, 6},
                                                     {StageId{1}, DeviceId{1}, 30, 10, 100}});
}

TEST_CASE("bubble and imbalance by hand", "[observe]") {
  // Two devices; stage 0 works 6 ms in [0, 10), stage 1 works 2 ms in [3, 7).
  // Span 10 ms, room 20 ms, work 8 ms: bubble 0.6. Mean work 4 ms, largest 6: imbalance 1.5.
  const std::vector<StageWork> stages{{StageId{0}, DeviceId{0}, 6'000'000, 0, 10'000'000},
                                      {StageId{1}, DeviceId{1}, 2'000'000, 3'000'000, 7'000'000}};
  const auto balance = step_balance(stages, 2);
  CHECK(balance.bubble == 1 - 8.0 / 20);
  CHECK(balance.imbalance == 1.5);
  CHECK(balance.span_ms == 10);
  // A third device that had nothing to do only adds room.
  CHECK(step_balance(stages, 3).bubble == 1 - 8.0 / 30);
}

TEST_CASE("a stage without work counts in the mean but not in the span", "[observe]") {
  const std::vector<StageWork> stages{{StageId{0}, DeviceId{0}, 4, 100, 104},
                                      {StageId{1}, DeviceId{1}, 0, 0, 0}};
  const auto balance = step_balance(stages, 2);
  CHECK(balance.bubble == 0.5);
  CHECK(balance.imbalance == 2);
}

TEST_CASE("no work at all is balanced, and wrong clocks give no negative bubble", "[observe]") {
  CHECK(step_balance({}, 4) == StepBalance{});
  const std::vector<StageWork> impossible{{StageId{0}, DeviceId{0}, 50, 0, 10}};
  CHECK(step_balance(impossible, 1).bubble == 0);
}

TEST_CASE("the time of a step is the mean over its devices, by kind", "[observe]") {
  // By hand, over two devices: compute 6 + 2, update 4, transfer 1, waiting 10 and offloading 2 + 4
  // ms, halved.
  const auto event = [](int device, ActionKind kind, std::int64_t ms) {
    TraceEvent event;
    event.device = DeviceId{device};
    event.action.kind = kind;
    event.end_ns = ms * 1'000'000;
    return event;
  };
  const std::vector<TraceEvent> events{
      event(0, ActionKind::forward, 6), event(1, ActionKind::backward_weight, 2),
      event(1, ActionKind::reduce, 3),  event(0, ActionKind::optimizer_step, 1),
      event(0, ActionKind::send, 1),    event(1, ActionKind::receive, 10),
      event(0, ActionKind::offload, 2), event(0, ActionKind::fetch, 4)};
  CHECK(step_times(events, 2) == StepTimes{4, 2, 0.5, 5, 3});
  CHECK(step_times({}, 2) == StepTimes{});
  CHECK(step_times(events, 0) == StepTimes{});
}

}  // namespace
}  // namespace troupe::observe
