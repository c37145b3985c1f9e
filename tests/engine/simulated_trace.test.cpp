#include "engine/iteration/simulated_trace.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runtime/observe/timeline.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::engine {
namespace {

using scheduler::testing::sample;
using scheduler::testing::text_llm;

struct Simulated {
  ParallelPlan plan;
  IterationPlan iteration;
  scheduler::SimulatedStep step;
};

// Text microbatches of one sample over a pipeline of one layer per stage; forward 1, backward 2.
Simulated simulate_text(int stages, int microbatches) {
  auto plan = scheduler::place_by_hand(text_llm(stages), {}, {stages, 1}).value();
  scheduler::IterationInput input;
  for (int i = 0; i < microbatches; ++i) input.samples.push_back(sample(0, 0, 10));
  input.microbatches = scheduler::assign_by_count(plan, microbatches, microbatches);
  auto iteration = scheduler::plan_iteration(plan, input).value();
  scheduler::SimulationCosts costs;
  costs.task_ms = [](StageId, const std::vector<std::int32_t>&, scheduler::TaskKind kind) {
    return kind == scheduler::TaskKind::backward ? 2.0 : 1.0;
  };
  scheduler::SimulationOptions options;
  options.record_timeline = true;
  auto step = scheduler::simulate(plan, iteration, costs, options).value();
  return {std::move(plan), std::move(iteration), std::move(step)};
}

TEST_CASE("a simulated step becomes events of the same shape as measured ones", "[engine]") {
  // 1F1B, two stages, two microbatches: stage 1 waits 1 for F0, then F0 1-2, B0 2-4, F1 4-5, B1
  // 5-7.
  const auto run = simulate_text(2, 2);
  const auto events = simulated_trace(run.iteration, run.step, 4);
  std::vector<std::int64_t> waits_ms;
  for (const auto& event : events)
    if (event.device == DeviceId{1} && event.action.kind == ActionKind::receive)
      waits_ms.push_back(event.duration_ns() / 1'000'000);
  CHECK(waits_ms == std::vector<std::int64_t>{1, 0});
  const auto& last = events.back();
  CHECK(last.device == DeviceId{1});
  CHECK(last.step == run.iteration.step);
}

TEST_CASE("every action of the plan is in the timeline once, with all arrows", "[engine]") {
  const auto run = simulate_text(5, 7);
  const auto events = simulated_trace(run.iteration, run.step, 4);
  const auto timeline = observe::make_timeline(events, observe::trace_names(run.plan));
  std::vector<std::size_t> count(run.iteration.actions.size()), planned;
  for (const auto& interval : timeline.intervals) ++count[static_cast<std::size_t>(interval.lane)];
  for (const auto& list : run.iteration.actions) planned.push_back(list.size());
  CHECK(count == planned);
  // Rows forth and gradients back over 4 cuts, 7 times.
  CHECK(timeline.links.size() == 2 * 4 * 7);
  for (std::size_t i = 1; i < timeline.intervals.size(); ++i) {
    const auto &a = timeline.intervals[i - 1], &b = timeline.intervals[i];
    if (a.lane == b.lane) CHECK(a.end_ms <= b.begin_ms);
  }
  CHECK(timeline.span_ms() == run.step.step_ms);
}

TEST_CASE("a step without a recorded timeline has no events", "[engine]") {
  const auto run = simulate_text(2, 2);
  auto step = run.step;
  step.events.clear();
  CHECK(simulated_trace(run.iteration, step, 4).empty());
}

}  // namespace
}  // namespace troupe::engine
