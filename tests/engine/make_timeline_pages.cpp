// Writes timelines of simulated steps for the browser test: FOLDER/timeline-STAGES.html and .json.
//
//   make_timeline_pages FOLDER STAGES MICROBATCHES SCHEDULE

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>

#include "engine/iteration/simulated_trace.hpp"
#include "runtime/observe/timeline_page.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::engine {
namespace {

// Uneven on purpose: microbatches differ by up to 2x, so that the picture has gaps.
scheduler::SimulationCosts uneven_costs() {
  scheduler::SimulationCosts costs;
  costs.task_ms = [](StageId stage, const std::vector<std::int32_t>& samples,
                     scheduler::TaskKind kind) {
    const double sample = samples.empty() ? 0 : samples.front();
    const double size = 4 + 2 * std::sin(1.7 * sample) + 0.5 * std::cos(0.9 * stage.value);
    return kind == scheduler::TaskKind::backward ? 2 * size : size;
  };
  costs.optimizer_ms = [](StageId) { return 3.0; };
  costs.network = {0.02, 1};
  return costs;
}

Status write_pages(const std::string& folder, int stages, int microbatches,
                   const std::string& schedule) {
  const auto plan = scheduler::place_by_hand(scheduler::testing::text_llm(stages), {}, {stages, 1});
  if (!plan.ok()) return plan.error();
  scheduler::IterationInput input;
  input.schedule = schedule;
  for (int i = 0; i < microbatches; ++i)
    input.samples.push_back(scheduler::testing::sample(0, 0, 100));
  input.microbatches = scheduler::assign_by_count(plan.value(), microbatches, microbatches);
  const auto iteration = scheduler::plan_iteration(plan.value(), input);
  if (!iteration.ok()) return iteration.error();
  scheduler::SimulationOptions options;
  options.record_timeline = true;
  const auto step = simulate(plan.value(), iteration.value(), uneven_costs(), options);
  if (!step.ok()) return step.error();
  const auto events = simulated_trace(iteration.value(), step.value(), 4);
  const auto names = observe::trace_names(plan.value());
  for (const auto* suffix : {".html", ".json"}) {
    const auto path = folder + "/timeline-" + std::to_string(stages) + suffix;
    const auto title = std::to_string(stages) + " stages, " + std::to_string(microbatches) +
                       " microbatches, " + schedule + ", simulated";
    if (auto written = observe::write_timeline_file(path, title, events, names); !written.ok())
      return written;
  }
  std::cout << events.size() << '\n';
  return Done{};
}

}  // namespace
}  // namespace troupe::engine

int main(int count, char** words) {
  if (count != 5) {
    std::cerr << "usage: make_timeline_pages FOLDER STAGES MICROBATCHES SCHEDULE\n";
    return 2;
  }
  const auto written =
      troupe::engine::write_pages(words[1], std::atoi(words[2]), std::atoi(words[3]), words[4]);
  if (written.ok()) return 0;
  std::cerr << to_string(written.error()) << '\n';
  return 1;
}
