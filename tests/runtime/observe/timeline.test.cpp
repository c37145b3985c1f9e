#include "runtime/observe/timeline.hpp"

#include <algorithm>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <random>

#include "tests/runtime/observe/example_plan.hpp"

namespace troupe::observe {
namespace {

TraceEvent event(ActionKind kind, int device, std::int64_t begin, std::int64_t end) {
  TraceEvent made;
  made.device = DeviceId{device};
  made.step = 7;
  made.action.kind = kind;
  made.begin_ns = begin * 1'000'000;
  made.end_ns = end * 1'000'000;
  return made;
}

TraceEvent of_message(ActionKind kind, int device, std::int64_t begin, std::int64_t end) {
  auto made = event(kind, device, begin, end);
  made.action.message = MessageId{3};
  return made;
}

TraceEvent of_group(ActionKind kind, int device, std::int64_t begin, std::int64_t end) {
  auto made = event(kind, device, begin, end);
  made.action.group = GroupId{0};  // Held by devices 0 and 3; device 0 first.
  return made;
}

TEST_CASE("a timeline has a lane per device and begins at zero", "[observe]") {
  auto forward = event(ActionKind::forward, 2, 1005, 1009);
  forward.action.stage = StageId{2};
  forward.action.microbatch = MicrobatchId{4};
  forward.action.part = PartId{1};
  const std::vector events{forward, event(ActionKind::commit, 0, 1002, 1003)};

  const auto timeline = make_timeline(events, trace_names(testing::example_plan()));

  REQUIRE(timeline.lanes.size() == 4);
  CHECK(timeline.lanes[2].stages == "llm.stage1");
  CHECK(timeline.lanes[3].stages.empty());
  REQUIRE(timeline.intervals.size() == 2);
  CHECK(timeline.intervals[0].lane == 0);
  CHECK(timeline.intervals[0].begin_ms == 0);
  CHECK((timeline.intervals[1] == TimelineInterval{2, 3, 7, ActionKind::forward, 2, 4, 1, 0, ""}));
  CHECK(timeline.span_ms() == 7);
}

TEST_CASE("sends are linked with receives, holders with their reduction", "[observe]") {
  // Handed over in another order than lanes and times have.
  const std::vector events{
      of_message(ActionKind::receive, 1, 1, 6), of_message(ActionKind::send, 0, 2, 3),
      of_group(ActionKind::reduce, 0, 8, 9), of_group(ActionKind::reduce_send, 3, 7, 8),
      of_group(ActionKind::reduce_receive, 3, 8, 10)};

  const auto timeline = make_timeline(events, trace_names(testing::example_plan()));

  // By lane and begin: send 0, reduce 1 | receive 2 | reduce_send 3, reduce_receive 4.
  CHECK((timeline.links == std::vector<TimelineLink>{{0, 2}, {1, 4}, {3, 1}}));
  CHECK(timeline.intervals[1].subject == "projector.0");
}

TEST_CASE("content that is sent is linked with where it comes", "[observe]") {
  auto send = event(ActionKind::send_content, 0, 2, 3);
  auto receive = event(ActionKind::receive_content, 1, 1, 6);
  send.action.delivery = receive.action.delivery = DeliveryId{4};
  auto other = send;
  other.action.delivery = DeliveryId{5};
  const auto timeline =
      make_timeline(std::vector{receive, send, other}, trace_names(testing::example_plan()));
  CHECK(timeline.links.size() == 1);
}

TEST_CASE("an end without its other end has no link", "[observe]") {
  auto of_other_step = of_message(ActionKind::receive, 1, 1, 6);
  of_other_step.step = 8;
  const std::vector events{of_message(ActionKind::send, 0, 2, 3), of_other_step,
                           of_group(ActionKind::reduce, 0, 8, 9)};
  CHECK(make_timeline(events, trace_names(testing::example_plan())).links.empty());
}

TEST_CASE("devices and stages that the names do not know are kept", "[observe]") {
  auto stranger = event(ActionKind::forward, 9, 0, 1);
  stranger.action.stage = StageId{77};
  const auto timeline = make_timeline(std::vector{stranger}, trace_names(testing::example_plan()));
  REQUIRE(timeline.lanes.size() == 5);
  CHECK(timeline.intervals[0].lane == 4);
  CHECK(timeline.intervals[0].stage == -1);
}

TEST_CASE("the times of a lane add up to the span", "[observe]") {
  // Device 0: forward 4, gap 1, backward 3, wait 2. Device 1: an update of 1 in a span of 10.
  const std::vector events{
      event(ActionKind::forward, 0, 0, 4), event(ActionKind::backward, 0, 5, 8),
      event(ActionKind::commit, 0, 8, 10), event(ActionKind::optimizer_step, 1, 6, 7)};
  const auto times = lane_times(make_timeline(events, trace_names(testing::example_plan())));
  CHECK((times[0] == LaneTimes{4, 3, 0, 0, 3}));
  CHECK((times[1] == LaneTimes{0, 0, 1, 0, 9}));
  CHECK((times[2] == LaneTimes{0, 0, 0, 0, 10}));
}

TEST_CASE("sorting keeps links at their intervals", "[observe][property]") {
  const auto seed = GENERATE(range(0u, 30u));
  std::mt19937 random(seed);
  Timeline timeline;
  timeline.lanes.resize(3);
  for (int i = 0; i < 40; ++i) {
    const double begin = static_cast<double>(random() % 100);
    TimelineInterval interval;
    interval.lane = static_cast<std::int32_t>(random() % 3);
    interval.begin_ms = begin;
    interval.end_ms = begin + 1;
    interval.microbatch = i;  // Remembers who it is.
    timeline.intervals.push_back(interval);
  }
  std::vector<std::pair<int, int>> linked;
  for (int i = 0; i < 20; ++i) {
    timeline.links.push_back(
        {static_cast<std::int32_t>(random() % 40), static_cast<std::int32_t>(random() % 40)});
    linked.emplace_back(timeline.links.back().from, timeline.links.back().to);
  }
  sort_intervals(timeline);
  std::vector<std::pair<int, int>> after;
  for (const auto& link : timeline.links)
    after.emplace_back(timeline.intervals[static_cast<std::size_t>(link.from)].microbatch,
                       timeline.intervals[static_cast<std::size_t>(link.to)].microbatch);
  std::sort(linked.begin(), linked.end());
  std::sort(after.begin(), after.end());
  CHECK((after == linked));
  for (std::size_t i = 1; i < 40; ++i) {
    const auto &a = timeline.intervals[i - 1], &b = timeline.intervals[i];
    CHECK(std::pair(a.lane, a.begin_ms) <= std::pair(b.lane, b.begin_ms));
  }
}

TEST_CASE("no events make an empty timeline", "[observe]") {
  const auto timeline = make_timeline({}, {});
  CHECK(timeline.lanes.empty());
  CHECK(timeline.span_ms() == 0);
  CHECK(lane_times(timeline).empty());
}

}  // namespace
}  // namespace troupe::observe
