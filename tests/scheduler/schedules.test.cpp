#include "scheduler/iteration/schedules.hpp"
#include "runtime/vocabulary/random.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "scheduler/check/check_order.hpp"
#include "scheduler/cost/stage_times.hpp"
#include "tests/scheduler/random_times.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::random_times;

/// A chain of equal stages on a device each.
PipelineTimes chain(int stages, int microbatches, double forward, double input, double weight) {
  PipelineTimes times;
  times.microbatches = microbatches;
  for (int s = 0; s < stages; ++s) {
    StageTimes stage{
        "llm." + std::to_string(s), s, false, {}, {forward}, {input}, {weight}, {}, {}};
    if (s + 1 < stages) stage.next = {s + 1};
    times.stages.push_back(stage);
  }
  return times;
}

Timeline make(const PipelineTimes& times, const std::string& schedule,
              const std::vector<std::int32_t>& max_in_flight = {}) {
  REQUIRE(check_times(times).ok());
  auto timeline =
      make_schedule(task_graph(times, splits_weight_gradient(schedule)), schedule, max_in_flight);
  REQUIRE(timeline.ok());
  return std::move(timeline).value();
}

/// An order with names, as `check_order` takes it.
std::vector<NamedOrder> named(const PipelineTimes& times, const std::string& schedule,
                              const Timeline& timeline) {
  const auto graph = task_graph(times, splits_weight_gradient(schedule));
  std::vector<NamedOrder> order;
  for (std::size_t d = 0; d < timeline.order.size(); ++d) {
    NamedOrder list{"d" + std::to_string(d), static_cast<std::int32_t>(d), {}};
    for (const auto task : timeline.order[d])
      list.actions.push_back(action_name(times, graph.tasks[static_cast<std::size_t>(task)], true));
    order.push_back(list);
  }
  return order;
}

/// Encoders before a chain of llm stages, which take turns, or of which each has something of every
/// microbatch. F = 1, B = 2; frozen ones have none.
TaskGraph several_encoders(int encoders, bool take_turns, int stages, int microbatches,
                           bool frozen = false) {
  TaskGraph graph;
  const int depth = (stages + encoders - 1) / encoders + 1;
  for (int e = 0; e < encoders; ++e) graph.stages.push_back({e, depth, true});
  for (int s = 0; s < stages; ++s) graph.stages.push_back({encoders + s, stages - s, false});
  for (int m = 0; m < microbatches; ++m) {
    std::vector<std::int32_t> encoded;
    for (int e = 0; e < encoders; ++e)
      if (!take_turns || m % encoders == e)
        encoded.push_back(graph.add({TaskKind::forward, e, m, 0, 1}));
    std::vector<std::int32_t> before = encoded;
    const auto add = [&](TaskKind kind, std::int32_t stage, double ms) {
      const std::int32_t task = graph.add({kind, stage, m, 0, ms});
      for (const std::int32_t needed : before) graph.depend(task, needed);
      return task;
    };
    for (int s = 0; s < stages; ++s) before = {add(TaskKind::forward, encoders + s, 1)};
    for (int s = stages; s-- > 0;) before = {add(TaskKind::backward, encoders + s, 2)};
    for (const std::int32_t forward : frozen ? std::vector<std::int32_t>{} : encoded)
      add(TaskKind::backward, graph.tasks[static_cast<std::size_t>(forward)].stage, 2);
  }
  graph.finish();
  return graph;
}

TEST_CASE("equal stages take the published times", "[scheduler]") {
  // S = 4, M = 8, every task 1 ms. 1F1B and GPipe: (M + S - 1)(f + b) = 11 x 3 = 33. ZB-H1: work 24
  // plus (S - 1)(f + i - w) = 3. ZB-H2: work 24 plus the first forwards of the stages before, 3.
  const auto times = chain(4, 8, 1, 1, 1);
  const auto one = make(times, "1f1b");
  CHECK(one.step_ms == 33);
  CHECK(one.peak_in_flight == std::vector<std::int32_t>{4, 3, 2, 1});
  CHECK(one.idle_ms == std::vector<double>{9, 9, 9, 9});
  const auto gpipe = make(times, "gpipe");
  CHECK(gpipe.step_ms == 33);
  CHECK(gpipe.peak_in_flight == std::vector<std::int32_t>{8, 8, 8, 8});
  const auto zero = make(times, "zero-bubble");
  CHECK(zero.step_ms == 27);
  CHECK(zero.peak_in_flight == std::vector<std::int32_t>{4, 4, 4, 4});
  CHECK(make(times, "eager-zero-bubble").step_ms == 27);
  // With i = 2: ZB-H1 is 32 + 3 x (1 + 2 - 1) = 38, ZB-H2 32 + 3 = 35.
  CHECK(make(chain(4, 8, 1, 2, 1), "zero-bubble").step_ms == 38);
  CHECK(make(chain(4, 8, 1, 2, 1), "eager-zero-bubble").step_ms == 35);
}

TEST_CASE("unequal stages take the time of the cases page", "[scheduler]") {
  // Forward + backward 10, 1, 1, 1 with 16 microbatches: exactly 160 + the way there and back of
  // one microbatch through the other three, less what overlaps: at least 160, at most 163.
  auto times = chain(4, 16, 0.5, 0.25, 0.25);
  times.stages[0].forward_ms = {5};
  times.stages[0].input_grad_ms = times.stages[0].weight_grad_ms = {2.5};
  CHECK(make(times, "1f1b").step_ms == Approx(160));
  // The slowest stage last: sum of stages + 15 x slowest = 13 + 150 = 163.
  std::swap(times.stages[0].forward_ms, times.stages[3].forward_ms);
  std::swap(times.stages[0].input_grad_ms, times.stages[3].input_grad_ms);
  std::swap(times.stages[0].weight_grad_ms, times.stages[3].weight_grad_ms);
  CHECK(make(times, "1f1b").step_ms == Approx(163));
}

TEST_CASE("encoders of different depth warm up by their own distance to the sink", "[scheduler]") {
  // E1 has two stages, E2 one, the llm three: warm-ups 5, 4, 4, 3, 2, 1.
  auto times = chain(6, 8, 1, 1, 1);
  times.stages[0].next = {1};
  times.stages[1].next = {3};
  times.stages[2].next = {3};
  const auto timeline = make(times, "1f1b");
  CHECK(timeline.peak_in_flight == std::vector<std::int32_t>{5, 4, 4, 3, 2, 1});
}

TEST_CASE("split backward does not wait for deferred samples", "[scheduler]") {
  // Half of encoder microbatch 0 is deferred to llm microbatch 1; encoder 4 + 8 ms, llm 6 + 6.
  PipelineTimes times;
  times.microbatches = 3;
  times.stages = {{"vision", 0, true, {1}, {4}, {4}, {4}, {{0.5, 0.5}, {1}, {1}}, {}},
                  {"llm", 1, false, {}, {6}, {3}, {3}, {}, {}}};
  times.stages[1].needs = {{{0, 0, 0}}, {{0, 0, 1}, {0, 1, 0}}, {{0, 2, 0}}};
  // Both: vision F0 0-4, F1 4-8; llm F0 2-8, B0 8-14, F1 14-20, B1 20-26; vision B0.0 14-18.
  // 1F1B: vision waits for B0.1 26-30, F2 30-34, B1 34-42; llm F2 34-40, B2 40-46; B2 46-54.
  CHECK(make(times, "1f1b").step_ms == 54);
  // Split: vision F2 18-22; llm F2 26-32, B2 32-38; vision B0.1 26-30, B1 30-38, B2 38-46.
  CHECK(make(times, "split-1f1b").step_ms == 46);
}

TEST_CASE("phases keep encoders and llm apart on a shared device", "[scheduler]") {
  PipelineTimes times = chain(3, 3, 1, 1, 1);
  times.stages[0].encoder = true;
  times.stages[1].device = 0;
  times.stages[2].device = 1;
  for (const std::string schedule : {"dip", "three-phase"}) {
    const auto timeline = make(times, schedule);
    const auto graph = task_graph(times, false);
    std::string sides;
    for (const auto task : timeline.order[0])
      sides +=
          graph.stages[static_cast<std::size_t>(graph.tasks[static_cast<std::size_t>(task)].stage)]
                  .encoder
              ? 'e'
              : 'l';
    CHECK(sides == "eeelllllleee");
    CHECK(timeline.peak_in_flight[0] == 3);
  }
}

TEST_CASE("an llm of text alone waits for its device's encoders, whose rows others need",
          "[scheduler]") {
  // Vision on device 0 feeds the llm of device 1; the llm of device 0 has text alone.
  PipelineTimes times;
  times.microbatches = 2;
  times.stages = {{"vision", 0, true, {2}, {2}, {2}, {2}, {}, {}},
                  {"text", 0, false, {}, {9}, {9}, {9}, {}, {}},
                  {"llm", 1, false, {}, {6}, {6}, {6}, {}, {}}};
  times.stages[2].needs = {{{0, 0, 0}}, {{0, 1, 0}}};
  for (const std::string schedule : {"dip", "three-phase"}) {
    const auto timeline = make(times, schedule);
    const auto graph = task_graph(times, false);
    std::vector<std::int32_t> stages;
    for (const auto task : timeline.order[0])
      stages.push_back(graph.tasks[static_cast<std::size_t>(task)].stage);
    INFO(schedule);
    CHECK(stages == std::vector<std::int32_t>{0, 0, 1, 1, 1, 1, 0, 0});
  }
}

TEST_CASE("eager 1F1B uses the room it is given where that is faster", "[scheduler][property]") {
  int faster = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    auto times = chain(2, 12, 1, 1, 1);
    for (auto& stage : times.stages) {
      stage.forward_ms.resize(12);
      for (auto& forward_ms : stage.forward_ms)
        forward_ms = static_cast<double>(1 + random.below(8));
    }
    const auto usual = make(times, "eager-1f1b");
    CHECK(usual.peak_in_flight[0] <= 4);
    const auto roomy = make(times, "eager-1f1b", {12, 12});
    CHECK(roomy.step_ms <= usual.step_ms);
    if (roomy.step_ms == usual.step_ms) continue;
    CHECK(roomy.peak_in_flight[0] > 4);
    ++faster;
  }
  CHECK(faster > 0);
}

TEST_CASE("bounds on memory hold, and one that is too small is refused", "[scheduler][errors]") {
  const auto times = chain(3, 8, 1, 1, 1);
  for (const std::string schedule : {"1f1b", "eager-1f1b", "split-1f1b", "zero-bubble"})
    CHECK(make(times, schedule, {2, 2, 1}).peak_in_flight[0] == 2);
  const auto gpipe = make_schedule(task_graph(times, false), "gpipe", {2, 0, 0});
  REQUIRE_FALSE(gpipe.ok());  // All forwards first, but room for two.
  CHECK(gpipe.error().code == Errc::infeasible);
  // The llm's first microbatch needs two encoder microbatches at once.
  PipelineTimes deferred;
  deferred.microbatches = 2;
  deferred.stages = {{"vision", 0, true, {1}, {1}, {1}, {1}, {}, {}},
                     {"llm", 1, false, {}, {1}, {1}, {1}, {}, {}}};
  deferred.stages[1].needs = {{{0, 0, 0}, {0, 1, 0}}, {}};
  for (const auto& schedule : schedule_names()) {
    const auto refused =
        make_schedule(task_graph(deferred, splits_weight_gradient(schedule)), schedule, {1, 1});
    INFO(schedule);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Errc::infeasible);
    CHECK(make_schedule(task_graph(deferred, splits_weight_gradient(schedule)), schedule, {2, 1})
              .ok());
  }
  const auto unknown = make_schedule(task_graph(times, false), "1f2b");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().fix == "did you mean `1f1b`?");
}

TEST_CASE("stages behind one that memory holds back keep going", "[scheduler]") {
  // F = 1, B = 2. With `bound` microbatches under way, one ends per round trip / bound at best.
  constexpr int kMicrobatches = 86;
  for (const auto schedule : {"1f1b", "three-phase"})
    for (const int stages : {8, 12, 22})
      for (int bound = 1; 2 * bound < stages; ++bound) {
        CAPTURE(schedule, stages, bound);
        // Those of the first half share their devices with an encoder, say.
        std::vector<std::int32_t> bounds(static_cast<std::size_t>(stages), 0);
        std::fill_n(bounds.begin(), stages / 2, bound);
        const auto timeline = make(chain(stages, kMicrobatches, 1, 1, 1), schedule, bounds);
        CHECK(timeline.step_ms <= 1.45 * kMicrobatches * 3.0 * stages / bound);
        CHECK(timeline.peak_in_flight.front() == bound);
      }
  // Two of those before a stage are held back: it goes by the shorter part.
  auto times = chain(6, 40, 1, 1, 1);
  times.stages[0].next = {2};
  times.stages[1].next = {2};
  CHECK(make(times, "1f1b", {4, 1, 0, 0, 0, 0}).peak_in_flight ==
        std::vector<std::int32_t>{4, 1, 1, 1, 1, 1});
  CHECK(make(times, "1f1b", {1, 4, 0, 0, 0, 0}).peak_in_flight ==
        std::vector<std::int32_t>{1, 4, 1, 1, 1, 1});
}

TEST_CASE("several encoders hold back no more than they do together", "[scheduler]") {
  const auto step_ms = [](int encoders, bool take_turns, const std::vector<std::int32_t>& bounds) {
    const auto made = make_schedule(several_encoders(encoders, take_turns, 3, 24), "1f1b", bounds);
    REQUIRE(made.ok());
    return made.value().step_ms;
  };
  // Round trips of 4 x 3 ms. With one microbatch of each of four encoders under way the llm is as
  // busy as without bounds: 24 x 3 ms behind the first forward, and 8 more.
  CHECK(step_ms(4, true, {}) == 81);
  CHECK(step_ms(4, true, {1, 1, 1, 1, 0, 0, 0}) == 81);
  // Of two encoders two microbatches are, so that one ends each 6 ms; of one, each 12 ms.
  CHECK(step_ms(2, true, {1, 1, 0, 0, 0}) == 150);
  CHECK(step_ms(1, true, {1, 0, 0, 0}) == 24 * 12);
  // As many as of one where all of them have something of each microbatch.
  CHECK(step_ms(4, false, {1, 1, 1, 1, 0, 0, 0}) == 24 * 12);
  // The same where each has room for two, as many as it is deep, and the llm is three deep: only
  // those that take turns let it warm up as it wishes.
  CHECK(step_ms(4, false, {2, 2, 2, 2, 0, 0, 0}) == 150);
  CHECK(step_ms(4, true, {2, 2, 2, 2, 0, 0, 0}) == 81);
  // A frozen one holds nobody back: (M + S - 1) x 3 ms behind its first forward.
  const auto frozen = several_encoders(1, true, 3, 24, true);
  CHECK(make_schedule(frozen, "1f1b", {1, 0, 0, 0}).value().step_ms == 79);
  // Nor does who has room for all of its microbatches: (M + S - 1) x 3 ms.
  CHECK(make(chain(8, 3, 1, 1, 1), "1f1b", {3, 0, 0, 0, 0, 0, 0, 0}).step_ms == 30);
}

TEST_CASE("every schedule of random pipelines is sound and replays to its own time",
          "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    const auto times = random_times(seed);
    REQUIRE(check_times(times).ok());
    for (const auto& schedule : schedule_names()) {
      const auto timeline = make(times, schedule);
      INFO("seed " << seed << " " << schedule);
      CHECK(check_order(times, named(times, schedule, timeline), timeline.peak_in_flight).empty());
      const auto graph = task_graph(times, splits_weight_gradient(schedule));
      // A list that runs in order never begins later than the execution it was taken from.
      const auto again = replay(graph, timeline.order);
      CHECK(again.stuck.empty());
      CHECK(again.timeline.step_ms == Approx(timeline.step_ms));
      CHECK(in_flight_peaks(graph, timeline.order) == timeline.peak_in_flight);
      double busy = 0;
      for (const auto& task : graph.tasks) busy += task.ms;
      for (const double idle : timeline.idle_ms) busy += idle;
      CHECK(busy == Approx(timeline.step_ms * static_cast<double>(timeline.order.size())));
    }
  }
}

/// Two stages on a device each, the second one on two; a microbatch of a forward and a backward.
TaskGraph two_stages(std::int32_t microbatches) {
  TaskGraph graph;
  graph.stages = {{.device = 0, .depth = 2}, {.device = 1, .depth = 1, .others = {2}}};
  for (std::int32_t m = 0; m < microbatches; ++m) {
    const auto first = graph.add({TaskKind::forward, 0, m, 0, 1});
    const auto second = graph.add({TaskKind::forward, 1, m, 0, 1});
    const auto third = graph.add({TaskKind::backward, 1, m, 0, 2});
    const auto last = graph.add({TaskKind::backward, 0, m, 0, 2});
    graph.depend(second, first);
    graph.depend(third, second);
    graph.depend(last, third);
  }
  graph.finish();
  return graph;
}

/// A schedule that always returns these orders.
Schedule fixed(DeviceOrders orders) {
  return Schedule(std::make_shared<const OwnSchedule>(
      OwnSchedule{.name = "mine", .order = [orders](const auto&, const auto&) { return orders; }}));
}

TEST_CASE("orders of a user's own schedule are executed", "[scheduler]") {
  const auto graph = two_stages(2);
  const auto made = make_schedule(graph, fixed({{0, 4, 3, 7}, {1, 2, 5, 6}, {1, 2, 5, 6}}));
  REQUIRE(made.ok());
  CHECK(made.value().step_ms == 9);  // 1, then 1 + 2 twice on the second stage, 2 at the end.
  CHECK((made.value().peak_in_flight == std::vector<std::int32_t>{2, 1}));
  CHECK_FALSE(has_fixed_order(fixed({})));
}

TEST_CASE("a wished order is followed as far as what tasks need allows", "[scheduler]") {
  // Of each microbatch: forwards of both stages, backwards of both, from task 4 x microbatch on.
  const auto graph = two_stages(2);
  CHECK((order_devices(graph, std::vector<std::int32_t>{0, 4, 1, 2, 3, 5, 6, 7}) ==
         DeviceOrders{{0, 4, 3, 7}, {1, 2, 5, 6}, {1, 2, 5, 6}}));
  CHECK((order_devices(graph, std::vector<std::int32_t>{3, 7, 6, 2, 5, 1, 4, 0}) ==
         DeviceOrders{{4, 7, 0, 3}, {5, 6, 1, 2}, {5, 6, 1, 2}}));
  // What is left out, twice or no task at all is for `make_schedule` to tell.
  CHECK((order_devices(graph, std::vector<std::int32_t>{0, 4, 4, 5, 6, 7, 99, -1}) ==
         DeviceOrders{{0, 4, 7}, {5, 6}, {5, 6}}));

  // A sample of the first microbatch is deferred to the second one of the last stage.
  TaskGraph deferred = graph;
  deferred.depend(5, 0);
  deferred.depend(3, 6);
  deferred.finish();
  const std::vector<std::int32_t> one_by_one{0, 1, 2, 3, 4, 5, 6, 7};
  const auto orders = order_devices(deferred, one_by_one);
  CHECK((orders == DeviceOrders{{0, 4, 3, 7}, {1, 2, 5, 6}, {1, 2, 5, 6}}));
  CHECK(make_schedule(deferred, fixed(orders)).ok());
}

TEST_CASE("a user's own schedule that breaks a rule is told by its name and the task",
          "[scheduler][errors]") {
  const auto graph = two_stages(2);
  const auto said = [&](const DeviceOrders& orders, const std::vector<std::int32_t>& most = {}) {
    const auto made = make_schedule(graph, fixed(orders), most);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().where == "scheduler.schedule");
    CHECK_FALSE(made.error().fix.empty());
    return made.error().message;
  };
  CHECK(said({{0, 4, 3, 7}, {1, 2, 5, 6}}) ==
        "schedule 'mine' orders 2 devices, where there are 3");
  CHECK(said({{0, 4, 3, 7}, {1, 2, 5, 6}, {1, 2, 5}}) ==
        "schedule 'mine' leaves out backward of microbatch 1, part 0, on stage 1 on device 2");
  CHECK(said({{0, 4, 3, 7, 0}, {1, 2, 5, 6}, {1, 2, 5, 6}}) ==
        "schedule 'mine' has forward of microbatch 0, part 0, on stage 0 twice on device 0");
  CHECK(said({{0, 4, 3, 7, 1}, {1, 2, 5, 6}, {1, 2, 5, 6}}) ==
        "schedule 'mine' has forward of microbatch 0, part 0, on stage 1 on device 0, not its own");
  CHECK(said({{0, 4, 3, 8}, {1, 2, 5, 6}, {1, 2, 5, 6}}) ==
        "schedule 'mine' has task 8 on device 0, of 8");
  // Two devices of one task meet in two orders.
  CHECK_THAT(said({{0, 4, 3, 7}, {1, 2, 5, 6}, {5, 6, 1, 2}}),
             Catch::Matchers::StartsWith("schedule 'mine' waits for ever: "));
  CHECK(said({{0, 4, 3, 7}, {1, 2, 5, 6}, {1, 2, 5, 6}}, {1, 0}) ==
        "schedule 'mine' has 2 microbatches in flight on stage 0, where at most 1 have room");
  CHECK(make_schedule(graph, fixed({{0, 4, 3, 7}, {1, 2, 5, 6}, {1, 2, 5, 6}}), {2, 1}).ok());
}

TEST_CASE("who knows what a bound comes from says why there is no order", "[scheduler][errors]") {
  const RefuseBound refuse = [](std::int32_t stage, std::int32_t needed) {
    return Error{Errc::infeasible, std::to_string(stage) + ": " + std::to_string(needed), "", "x"};
  };
  const auto times = chain(3, 8, 1, 1, 1);
  const auto gpipe = make_schedule(task_graph(times, false), "gpipe", {2, 0, 0}, refuse);
  REQUIRE_FALSE(gpipe.ok());
  CHECK(gpipe.error().message == "0: 3");
  const DeviceOrders orders{{0, 4, 3, 7}, {1, 2, 5, 6}, {1, 2, 5, 6}};
  const auto own = make_schedule(two_stages(2), fixed(orders), {1, 0}, refuse);
  REQUIRE_FALSE(own.ok());
  CHECK_THAT(own.error().message, Catch::Matchers::EndsWith("at most 1 have room: 0: 2"));
  CHECK(own.error().fix == "x, or let the plug-in run fewer tasks ahead");
}

}  // namespace
}  // namespace troupe::scheduler
