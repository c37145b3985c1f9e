#include "scheduler/layout/step_estimator.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "scheduler/iteration/schedules.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::draw;

TEST_CASE("an estimate is the step of equal work", "[scheduler]") {
  // One encoder stage of 1 + 2 ms, one llm stage of 3 + 6, four microbatches: the llm begins at 1,
  // works 36, and the last gradient takes 2 more.
  const auto estimator = StepEstimator::create({1, 1}, "1f1b", 4);
  REQUIRE(estimator);
  const std::vector<ModuleWork> loads(4, {1, 3});
  CHECK((*estimator)(loads) == Approx(39));
}

/// A stage on a device of its own: per millisecond of load, a passes' worth of each kind.
StageTimes stage(const std::string& name, std::int32_t device, bool encoder,
                 std::vector<std::int32_t> next, double share) {
  return {name, device, encoder, std::move(next), {share}, {share}, {share}, {}, {}};
}

TEST_CASE("stages may branch and have constants of their own", "[scheduler]") {
  // Two encoders side by side, 0.25 and 0.75 of the load, feed one llm. One microbatch of 4 and 2:
  // forwards 1 + 1 (its constant) and 3, the llm's 2; backwards 4, then 2 and 6. On the longer way
  // 3 + 2 + 4 + 6.
  PipelineTimes times;
  times.stages = {stage("a", 0, true, {2}, 0.25), stage("b", 1, true, {2}, 0.75),
                  stage("llm", 2, false, {}, 1)};
  using Constants = StepEstimator::Constants;
  const std::vector<Constants> constants{{1, 0, 0}, {}, {}};
  const std::vector<ModuleWork> loads{{4, 2}};
  CHECK(StepEstimator::create(times, "1f1b", constants).value()(loads) == Approx(15));
  // A constant of 3 makes the first encoder's forward 4 long, and its way the longer one.
  const std::vector<Constants> slow{{3, 0, 0}, {}, {}};
  CHECK(StepEstimator::create(times, "1f1b", slow).value()(loads) == Approx(16));
  // Without rows for the encoders there is no constant either.
  const std::vector<ModuleWork> text{{0, 2}};
  CHECK(StepEstimator::create(times, "1f1b", slow).value()(text) == Approx(6));
  times.stages[1].device = 0;
  CHECK_FALSE(StepEstimator::create(times, "1f1b"));
}

TEST_CASE("where times decide the order there is no estimator", "[scheduler]") {
  CHECK_FALSE(StepEstimator::create({2, 2}, "eager-1f1b", 4));
  CHECK_FALSE(StepEstimator::create({2, 2}, "zero-bubble", 4));
  CHECK_FALSE(StepEstimator::create({.colocated = true}, "1f1b", 4));
  CHECK_FALSE(StepEstimator::create({}, "no-such-schedule", 4));
}

TEST_CASE("estimates are what the schedule says", "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const ModulePipeline shape{draw(random, 1, 3), draw(random, 1, 3), draw(random, 0, 3) == 0,
                               draw(random, 0, 3) == 0};
    std::vector<ModuleWork> loads;
    for (int m = draw(random, 1, 8); m > 0; --m)
      loads.push_back({draw(random, 1, 9) * 1.0, draw(random, 1, 9) * 1.0});
    INFO("seed " << seed);
    for (const std::string schedule : {"1f1b", "split-1f1b", "gpipe", "dip", "three-phase"}) {
      INFO(schedule);
      const auto estimator =
          StepEstimator::create(shape, schedule, static_cast<std::int32_t>(loads.size()));
      REQUIRE(estimator);
      const auto graph = task_graph(module_pipeline(loads, shape), false);
      CHECK((*estimator)(loads) == Approx(make_schedule(graph, schedule).value().step_ms));
    }
  }
}

}  // namespace
}  // namespace troupe::scheduler
