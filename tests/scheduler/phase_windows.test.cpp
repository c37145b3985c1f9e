#include "scheduler/iteration/phase_windows.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

#include "scheduler/check/check_order.hpp"
#include "scheduler/cost/stage_times.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "tests/scheduler/random_times.hpp"

namespace troupe::scheduler {
namespace {

/// An encoder before two stages of an llm; `shared`: on the device of the first.
PipelineTimes encoder_and_llm(std::int32_t microbatches, bool shared) {
  PipelineTimes times;
  times.microbatches = microbatches;
  times.stages = {{"vision", 0, true, {1}, {1}, {1}, {1}, {}, {}},
                  {"llm.0", shared ? 0 : 1, false, {2}, {1}, {1}, {1}, {}, {}},
                  {"llm.1", shared ? 1 : 2, false, {}, {1}, {1}, {1}, {}, {}}};
  return times;
}

/// What a device does: `F0 B0` of the encoder, `f0 b0` of the llm.
std::string told(const TaskGraph& graph, const std::vector<std::int32_t>& order) {
  std::string text;
  for (const auto index : order) {
    const Task& task = graph.tasks[static_cast<std::size_t>(index)];
    std::string word = task.kind == TaskKind::forward ? "f" : "b";
    if (graph.stage_of(index).encoder) word[0] = word[0] == 'f' ? 'F' : 'B';
    text += (text.empty() ? "" : " ") + word + std::to_string(task.microbatch);
  }
  return text;
}

TEST_CASE("phases run over one window after the other where memory is short", "[scheduler]") {
  for (const std::string schedule : {"dip", "three-phase"}) {
    CAPTURE(schedule);
    const auto times = encoder_and_llm(4, true);
    const auto graph = task_graph(times, false);
    const auto timeline = make_schedule(graph, schedule, {2, 0, 0});
    REQUIRE(timeline.ok());
    // The llm fills and drains once for each window.
    CHECK(told(graph, timeline.value().order[0]) ==
          "F0 F1 f0 f1 b0 b1 B0 B1 F2 F3 f2 f3 b2 b3 B2 B3");
    CHECK(told(graph, timeline.value().order[1]) == "f0 b0 f1 b1 f2 b2 f3 b3");
    CHECK(timeline.value().peak_in_flight[0] == 2);
    // Room for all: one window, as without a bound.
    const auto roomy = make_schedule(graph, schedule, {4, 0, 0});
    CHECK(roomy.value().order == make_schedule(graph, schedule, {}).value().order);
    CHECK(roomy.value().step_ms <= timeline.value().step_ms);
  }
}

TEST_CASE("text goes with the window before it, and needs none of its own", "[scheduler]") {
  auto times = encoder_and_llm(4, false);
  // The llm's microbatches 1 and 3 are text alone.
  times.stages[1].needs = {{{0, 0, 0}}, {}, {{0, 1, 0}, {0, 2, 0}}, {{0, 3, 0}}};
  (*times.stages[1].needs)[3].clear();
  const auto graph = task_graph(times, false);
  const auto windows = phase_windows(graph, {0, 0, 0}, {2});
  for (std::size_t t = 0; t < graph.tasks.size(); ++t) {
    const Task& task = graph.tasks[t];
    if (task.stage == 0) continue;
    CAPTURE(task.stage, task.microbatch);
    // Microbatch 2 needs encoder microbatches of both windows, which therefore are one.
    CHECK(windows[t] == 0);
  }
  // Two of text behind one of the second window.
  times.stages[1].needs = {{{0, 0, 0}, {0, 1, 0}}, {{0, 2, 0}, {0, 3, 0}}, {}, {}};
  const auto apart = task_graph(times, false);
  const auto two = phase_windows(apart, {0, 0, 0}, {2});
  for (std::size_t t = 0; t < apart.tasks.size(); ++t) {
    const Task& task = apart.tasks[t];
    CAPTURE(task.stage, task.microbatch);
    CHECK(two[t] == (task.stage == 0 ? task.microbatch / 2 : std::min(task.microbatch, 1)));
  }
}

TEST_CASE("a window takes in what its samples are deferred to", "[scheduler][errors]") {
  auto times = encoder_and_llm(4, false);
  // A part of encoder microbatch 1 is for llm microbatch 2, in the next window.
  times.stages[0].parts = {{1}, {0.5, 0.5}, {1}, {1}};
  times.stages[1].needs = {{{0, 0, 0}}, {{0, 1, 0}}, {{0, 1, 1}, {0, 2, 0}}, {{0, 3, 0}}};
  const auto graph = task_graph(times, false);
  const auto windows = phase_windows(graph, {0, 0, 0}, {2});
  CHECK(*std::max_element(windows.begin(), windows.end()) == 0);
  const auto refused = make_schedule(graph, "three-phase", {2, 0, 0});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK_THAT(refused.error().message,
             Catch::Matchers::ContainsSubstring("stage 0 may have 2 microbatches in flight"));
  // With room for three, the first three are a window, which nothing leaves.
  CHECK(make_schedule(graph, "three-phase", {3, 0, 0}).ok());
  // Of windows of one, the second and the third become one.
  const auto ones = phase_windows(graph, {0, 0, 0}, {1});
  for (std::size_t t = 0; t < graph.tasks.size(); ++t) {
    const Task& task = graph.tasks[t];
    CAPTURE(task.stage, task.microbatch);
    CHECK(ones[t] == (task.microbatch == 0 ? 0 : task.microbatch < 3 ? 1 : 2));
  }
}

TEST_CASE("windows of a part are its own", "[scheduler]") {
  auto times = encoder_and_llm(4, false);
  auto other = encoder_and_llm(4, false);
  for (std::size_t s = 0; s < other.stages.size(); ++s) {
    auto& stage = other.stages[s];
    stage.name += "'";
    stage.device += 3;
    for (auto& next : stage.next) next += 3;
    times.stages.push_back(stage);
  }
  const auto graph = task_graph(times, false);
  const auto windows = phase_windows(graph, {0, 0, 0, 1, 1, 1}, {0, 1});
  for (std::size_t t = 0; t < graph.tasks.size(); ++t)
    CHECK(windows[t] == (graph.tasks[t].stage < 3 ? 0 : graph.tasks[t].microbatch));
}

TEST_CASE("windows keep what memory allows on any pipeline", "[scheduler][property]") {
  int narrow = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    auto times = testing::random_times(seed, 3, 7);
    const auto graph = task_graph(times, false);
    for (const std::string schedule : {"dip", "three-phase"})
      for (std::int32_t most = 1; most <= times.microbatches; ++most) {
        CAPTURE(seed, schedule, most);
        std::vector<std::int32_t> bounds;
        for (const auto& stage : times.stages) bounds.push_back(stage.encoder ? most : 0);
        const auto made = make_schedule(graph, schedule, bounds);
        if (!made.ok()) {  // Samples are deferred from each microbatch to the next.
          REQUIRE(made.error().code == Errc::infeasible);
          REQUIRE_FALSE(times.stages[0].parts.empty());
          continue;
        }
        std::size_t scheduled = 0;
        for (const auto& order : made.value().order) scheduled += order.size();
        CHECK(scheduled == graph.tasks.size());
        for (std::size_t s = 0; s < times.stages.size(); ++s)
          if (times.stages[s].encoder) CHECK(made.value().peak_in_flight[s] <= most);
        narrow += times.stages[0].encoder && most < times.microbatches;
      }
  }
  CHECK(narrow > 300);
}

}  // namespace
}  // namespace troupe::scheduler
