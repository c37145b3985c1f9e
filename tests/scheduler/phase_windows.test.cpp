#include "scheduler/iteration/phase_windows.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <string>
#include <vector>

#include "runtime/vocabulary/index.hpp"
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
    // Microbatch 2 needs encoder microbatches 1 and 2, which therefore are in one window.
    CHECK(windows[t] == (task.microbatch < 2 ? 0 : 1));
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
  // A part of encoder microbatch 1 is for llm microbatch 2: there is no cut between the two.
  times.stages[0].parts = {{1}, {0.5, 0.5}, {1}, {1}};
  times.stages[1].needs = {{{0, 0, 0}}, {{0, 1, 0}}, {{0, 1, 1}, {0, 2, 0}}, {{0, 3, 0}}};
  const auto graph = task_graph(times, false);
  const auto refused = make_schedule(graph, "three-phase", {1, 0, 0});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK_THAT(refused.error().message,
             Catch::Matchers::ContainsSubstring("stage 0 may have 1 microbatches in flight"));
  // Room for two is enough, though not for the first two: the second and the third.
  const auto narrow = make_schedule(graph, "three-phase", {2, 0, 0});
  REQUIRE(narrow.ok());
  CHECK(narrow.value().peak_in_flight[0] == 2);
  for (const std::int32_t width : {1, 2}) {
    const auto windows = phase_windows(graph, {0, 0, 0}, {width});
    for (std::size_t t = 0; t < graph.tasks.size(); ++t) {
      const Task& task = graph.tasks[t];
      CAPTURE(width, task.stage, task.microbatch);
      CHECK(windows[t] == (task.microbatch == 0 ? 0 : task.microbatch < 3 ? 1 : 2));
    }
  }
  // With room for three, the first three are a window, which nothing leaves.
  const auto threes = phase_windows(graph, {0, 0, 0}, {3});
  for (std::size_t t = 0; t < graph.tasks.size(); ++t)
    CHECK(threes[t] == graph.tasks[t].microbatch / 3);
  CHECK(make_schedule(graph, "three-phase", {3, 0, 0}).ok());
}

TEST_CASE("no rows wait for a later window where nothing goes back to encoders", "[scheduler]") {
  // The llm trains the second and the third microbatch of a frozen encoder the other way round.
  TaskGraph graph;
  graph.stages = {{0, 2, true}, {1, 1, false}};
  for (std::int32_t m = 0; m < 4; ++m) graph.add({TaskKind::forward, 0, m, 0, 1});
  const std::vector<std::int32_t> trained{0, 2, 1, 3};
  for (std::int32_t m = 0; m < 4; ++m) {
    const auto forward = graph.add({TaskKind::forward, 1, m, 0, 1});
    graph.depend(forward, trained[at(m)]);
    graph.depend(graph.add({TaskKind::backward, 1, m, 0, 1}), forward);
  }
  graph.finish();
  const auto windows = phase_windows(graph, {0, 0}, {1});
  const std::vector<std::int32_t> expected{0, 1, 1, 2};  // By microbatch, of both.
  for (std::size_t t = 0; t < graph.tasks.size(); ++t)
    CHECK(windows[t] == expected[at(graph.tasks[t].microbatch)]);
}

/// Four microbatches of a frozen encoder, of one that trains on its device, and of an llm of one
/// stage on device 0; a task takes 1 ms.
TaskGraph frozen_and_trained(std::int32_t device) {
  TaskGraph graph;
  graph.stages = {{device, 2, true}, {device, 2, true}, {0, 1, false}};
  for (std::int32_t m = 0; m < 4; ++m) {
    const auto frozen = graph.add({TaskKind::forward, 0, m, 0, 1});
    const auto trained = graph.add({TaskKind::forward, 1, m, 0, 1});
    const auto forward = graph.add({TaskKind::forward, 2, m, 0, 1});
    const auto backward = graph.add({TaskKind::backward, 2, m, 0, 1});
    graph.depend(forward, frozen);
    graph.depend(forward, trained);
    graph.depend(backward, forward);
    graph.depend(graph.add({TaskKind::backward, 1, m, 0, 1}), backward);
  }
  graph.finish();
  return graph;
}

TEST_CASE("a frozen encoder does not run into the next window beside the llm", "[scheduler]") {
  const auto shared = frozen_and_trained(0), apart = frozen_and_trained(1);
  for (const std::string schedule : {"dip", "three-phase"}) {
    CAPTURE(schedule);
    const auto timeline = make_schedule(shared, schedule, {2, 2, 0});
    REQUIRE(timeline.ok());
    CHECK(told(shared, timeline.value().order[0]) ==
          "F0 F0 F1 F1 f0 b0 f1 b1 B0 B1 F2 F2 F3 F3 f2 b2 f3 b3 B2 B3");
  }
  // Where no llm is it does, while the llm works.
  const auto timeline = make_schedule(apart, "three-phase", {2, 2, 0});
  REQUIRE(timeline.ok());
  CHECK(told(apart, timeline.value().order[1]) == "F0 F0 F1 F1 F2 F3 B0 B1 F2 F3 B2 B3");
  CHECK(told(apart, timeline.value().order[0]) == "f0 b0 f1 b1 f2 b2 f3 b3");
}

/// Fewest windows of at most `most` encoder microbatches, over all ways to cut `count` of them:
/// each has all that its llm microbatches need (`needs`), and none is trained behind a later one.
/// 0: no way is.
std::int32_t fewest_windows(const std::vector<std::vector<std::int32_t>>& needs, std::int32_t count,
                            std::int32_t most) {
  std::int32_t fewest = 0;
  for (std::uint32_t cuts = 0; cuts < 1U << (count - 1); ++cuts) {
    std::vector<std::int32_t> window{0}, width{1};
    for (std::int32_t m = 1; m < count; ++m) {
      const bool begins = ((cuts >> (m - 1)) & 1U) == 1U;
      window.push_back(window.back() + (begins ? 1 : 0));
      if (begins) width.push_back(0);
      ++width.back();
    }
    bool holds = *std::max_element(width.begin(), width.end()) <= most;
    std::int32_t before = 0;
    for (const auto& own : needs)
      for (std::size_t i = 0; i < own.size(); ++i) {
        const std::int32_t needed = window[at(own[i])];
        holds = holds && (i == 0 ? needed >= before : needed == before);
        before = needed;
      }
    const auto windows = static_cast<std::int32_t>(width.size());
    if (holds && (fewest == 0 || windows < fewest)) fewest = windows;
  }
  return fewest;
}

TEST_CASE("no cut into windows makes fewer, whatever is deferred", "[scheduler][property]") {
  int cut = 0, too_wide = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const std::int32_t count = testing::draw(random, 1, 7);
    auto times = encoder_and_llm(count, seed % 2 == 0);
    // Most encoder microbatches are for the llm microbatch of their number.
    std::vector<std::vector<std::int32_t>> needs(at(count));
    auto& parts = times.stages[1].needs.emplace(needs.size());
    for (std::int32_t m = 0; m < count; ++m) {
      const auto user =
          at(testing::draw(random, 0, 3) == 0 ? testing::draw(random, 0, count - 1) : m);
      needs[user].push_back(m);
      parts[user].push_back({0, m, 0});
    }
    const auto graph = task_graph(times, false);
    for (std::int32_t most = 1; most <= count; ++most) {
      CAPTURE(seed, count, most);
      const auto windows = phase_windows(graph, {0, 0, 0}, {most});
      std::vector<std::int32_t> width;
      for (std::size_t t = 0; t < graph.tasks.size(); ++t) {
        const Task& task = graph.tasks[t];
        if (task.stage != 0 || task.kind != TaskKind::forward) continue;
        width.resize(at(windows[t]) + 1);
        ++width.back();
      }
      const std::int32_t fewest = fewest_windows(needs, count, most);
      const bool fits = *std::max_element(width.begin(), width.end()) <= most;
      CHECK(fits == (fewest > 0));
      if (fits) CHECK(static_cast<std::int32_t>(width.size()) == fewest);
      CHECK(make_schedule(graph, "three-phase", {most, 0, 0}).ok() == fits);
      cut += fits && fewest > 1 ? 1 : 0;
      too_wide += fits ? 0 : 1;
    }
  }
  CHECK(cut > 100);
  CHECK(too_wide > 100);
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
