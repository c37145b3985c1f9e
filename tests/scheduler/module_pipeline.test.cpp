#include "scheduler/layout/module_pipeline.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "scheduler/iteration/schedules.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::draw;

TEST_CASE("deferred samples are parts of their encoder microbatch", "[scheduler]") {
  // Encoder microbatches {0, 1} and {2, 3}; sample 1 goes to llm microbatch 1; sample 3 is text.
  const std::vector<ModuleWork> samples = {{6, 1}, {2, 2}, {4, 3}, {0, 4}};
  const auto times = module_pipeline(samples, {{0, 1}, {2, 3}}, {{0, 3}, {1, 2}}, {2, 1});
  REQUIRE(check_times(times).ok());
  REQUIRE(times.stages.size() == 3);
  CHECK(times.stages[1].parts == std::vector<std::vector<double>>{{0.75, 0.25}, {1}});
  CHECK(times.stages[0].forward_ms == std::vector<double>{4, 2});  // 8 and 4 over two stages.
  CHECK(times.stages[2].forward_ms == std::vector<double>{5, 5});  // 1 + 4, 2 + 3.
  CHECK(*times.stages[2].needs ==
        std::vector<std::vector<PartRef>>{{{1, 0, 0}}, {{1, 0, 1}, {1, 1, 0}}});
}

TEST_CASE("freezing saves weight gradients, and input gradients where nothing trains before",
          "[scheduler]") {
  const std::vector<ModuleWork> samples = {{6, 3}};
  const auto backward = [&](bool encoder, bool llm) {
    const auto times = module_pipeline(samples, {{0}}, {{0}}, {1, 1, encoder, llm});
    return std::vector<double>{times.stages[0].input_grad_ms[0], times.stages[0].weight_grad_ms[0],
                               times.stages[1].input_grad_ms[0], times.stages[1].weight_grad_ms[0]};
  };
  CHECK(backward(false, false) == std::vector<double>{6, 6, 3, 3});
  CHECK(backward(true, false) == std::vector<double>{0, 0, 3, 3});
  CHECK(backward(false, true) == std::vector<double>{6, 6, 3, 0});
  CHECK(backward(true, true) == std::vector<double>{0, 0, 0, 0});
}

TEST_CASE("the lower bound of equal work is met by 1F1B where it can be", "[scheduler]") {
  // One encoder stage of 1 + 2 ms, one llm stage of 3 + 6, four microbatches: the llm begins at 1,
  // works 36 and the last gradient takes 2 more: 39.
  const std::vector<ModuleWork> samples(4, {1, 3});
  const SampleLists each = {{0}, {1}, {2}, {3}};
  const auto graph = task_graph(module_pipeline(samples, each, each, {1, 1}), false);
  CHECK(lower_bound_ms(graph) == Approx(39));
  CHECK(make_schedule(graph, "1f1b").value().step_ms == Approx(39));
}

TEST_CASE("the bound counts the whole way back", "[scheduler]") {
  // Four stages of 1 + 2 ms, four microbatches. The last stage begins at 3, works 12, and the last
  // gradient passes three stages of 2 ms: 21.
  const std::vector<ModuleWork> samples(4, {2, 2});
  const SampleLists each = {{0}, {1}, {2}, {3}};
  const auto graph = task_graph(module_pipeline(samples, each, each, {2, 2}), false);
  CHECK(lower_bound_ms(graph) == Approx(21));
  CHECK(make_schedule(graph, "1f1b").value().step_ms == Approx(21));
}

TEST_CASE("GPipe fills and drains twice", "[scheduler]") {
  // Two stages of 1 + 2 ms, three microbatches. Forwards end on the second stage at 1 + 3 = 4, its
  // backwards take 6, and the last gradient 2 more: 12. Any schedule: 1 + 9 + 2 = 12 on the second.
  const std::vector<ModuleWork> even(3, {1, 1});
  const SampleLists each = {{0}, {1}, {2}};
  const auto balanced = task_graph(module_pipeline(even, each, each, {1, 1}), false);
  CHECK(schedule_bound_ms(balanced, "gpipe") == Approx(12));
  CHECK(lower_bound_ms(balanced) == Approx(12));
  // With an encoder of 3 + 6 ms: its forwards take 9, the last one's rows 1 ms more; the first
  // gradient takes 2, the encoder's backwards 18: 30 where 27 is all its work.
  const std::vector<ModuleWork> heavy(3, {3, 1});
  const auto graph = task_graph(module_pipeline(heavy, each, each, {1, 1}), false);
  CHECK(lower_bound_ms(graph) == Approx(27));
  CHECK(schedule_bound_ms(graph, "gpipe") == Approx(30));
  CHECK(schedule_bound_ms(graph, "1f1b") == Approx(27));
  CHECK(make_schedule(graph, "gpipe").value().step_ms == Approx(30));
}

/// All orders of a stage's tasks in which every forward goes before its backward.
std::vector<std::vector<std::int32_t>> all_orders(const TaskGraph& graph, std::int32_t stage) {
  std::vector<std::int32_t> tasks;
  for (std::size_t t = 0; t < graph.tasks.size(); ++t)
    if (graph.tasks[t].stage == stage) tasks.push_back(static_cast<std::int32_t>(t));
  std::vector<std::vector<std::int32_t>> orders;
  const auto place = [&](std::int32_t task) {
    return std::find(tasks.begin(), tasks.end(), task) - tasks.begin();
  };
  do {
    if (std::all_of(graph.dependencies.begin(), graph.dependencies.end(), [&](const auto& need) {
          const auto after = place(need.task), before = place(need.needs);
          return after == std::ssize(tasks) || before == std::ssize(tasks) || before < after;
        }))
      orders.push_back(tasks);
  } while (std::next_permutation(tasks.begin(), tasks.end()));
  return orders;
}

TEST_CASE("the best of all orders is not below the bound", "[scheduler][property]") {
  // Two stages and three microbatches: each device has 6!/2^3 = 90 orders, 36 of them in phases.
  int met = 0;
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    std::mt19937 random(seed);
    std::vector<ModuleWork> work;
    for (int m = 0; m < 3; ++m)
      work.push_back({draw(random, 1, 9) * 1.0, draw(random, 1, 9) * 1.0});
    const auto graph = task_graph(module_pipeline(work, {1, 1}), false);
    const auto in_phases = [&](const std::vector<std::int32_t>& order) {
      return std::all_of(order.begin(), order.begin() + 3, [&](std::int32_t task) {
        return graph.tasks[static_cast<std::size_t>(task)].kind == TaskKind::forward;
      });
    };
    const auto seconds = all_orders(graph, 1);
    REQUIRE(seconds.size() == 90);
    double best = 1e9, best_in_phases = 1e9;
    for (const auto& first : all_orders(graph, 0))
      for (const auto& second : seconds) {
        const auto result = replay(graph, {first, second});
        if (!result.stuck.empty()) continue;
        best = std::min(best, result.timeline.step_ms);
        if (in_phases(first) && in_phases(second))
          best_in_phases = std::min(best_in_phases, result.timeline.step_ms);
      }
    INFO("seed " << seed);
    CHECK(best >= lower_bound_ms(graph) - 1e-9);
    CHECK(best_in_phases >= schedule_bound_ms(graph, "gpipe") - 1e-9);
    met += best_in_phases <= schedule_bound_ms(graph, "gpipe") + 1e-9;
  }
  CHECK(met > 0);  // The bound can be reached.
}

TEST_CASE("no schedule goes below the bound, with any deferral", "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const int count = draw(random, 1, 20);
    const auto microbatches = static_cast<std::size_t>(draw(random, 1, 6));
    std::vector<ModuleWork> samples;
    SampleLists encoder(microbatches), llm(microbatches);
    for (int s = 0; s < count; ++s) {
      samples.push_back({draw(random, 0, 3) * 1.0, draw(random, 1, 9) * 1.0});
      const auto own =
          static_cast<std::size_t>(draw(random, 0, static_cast<int>(microbatches) - 1));
      encoder[own].push_back(s);
      const bool deferred = draw(random, 0, 3) == 0 && own + 1 < microbatches;
      llm[deferred ? own + 1 : own].push_back(s);
    }
    const ModulePipeline shape{draw(random, 1, 3), draw(random, 1, 3), draw(random, 0, 3) == 0,
                               draw(random, 0, 3) == 0, draw(random, 0, 1) == 1};
    const auto times = module_pipeline(samples, encoder, llm, shape);
    INFO("seed " << seed);
    REQUIRE(check_times(times).ok());
    for (const auto& schedule : schedule_names()) {
      const auto graph = task_graph(times, splits_weight_gradient(schedule));
      const auto timeline = make_schedule(graph, schedule);
      REQUIRE(timeline.ok());
      CHECK(timeline.value().step_ms >= schedule_bound_ms(graph, schedule) - 1e-9);
      CHECK(schedule_bound_ms(graph, schedule) >= lower_bound_ms(graph));
    }
  }
}

}  // namespace
}  // namespace troupe::scheduler
