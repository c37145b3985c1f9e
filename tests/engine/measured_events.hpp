// What a step would have measured, for tests of what is learned from it.

#pragma once

#include <functional>
#include <vector>

#include "engine/iteration/microbatching.hpp"
#include "runtime/observe/trace_event.hpp"

namespace troupe::engine {

/// An action of a stage that took so long.
inline observe::TraceEvent slice(ActionKind kind, std::int32_t stage, std::int64_t ms) {
  observe::TraceEvent event;
  event.action.kind = kind;
  event.action.stage = StageId{stage};
  event.begin_ns = 5'000'000;
  event.end_ns = event.begin_ns + ms * 1'000'000;
  return event;
}

/// Events of an iteration whose compute actions take what `task_ms` says. Only whole backwards are
/// known.
inline std::vector<observe::TraceEvent> measured_events(const ParallelPlan& plan,
                                                        const IterationPlan& iteration,
                                                        const scheduler::TaskCost& task_ms) {
  std::vector<observe::TraceEvent> events;
  for (const auto& actions : iteration.actions)
    for (const auto& action : actions) {
      auto kind = scheduler::TaskKind::forward;
      if (action.kind == ActionKind::backward)
        kind = scheduler::TaskKind::backward;
      else if (action.kind != ActionKind::forward)
        continue;
      const auto& part = samples_of(plan, iteration, action.stage, action.microbatch, action.part);
      observe::TraceEvent event;
      event.action = action;
      event.end_ns = static_cast<std::int64_t>(1e6 * task_ms(action.stage, part, kind));
      events.push_back(event);
    }
  return events;
}

/// The same where every compute action of a stage takes `factor(stage)` times what was predicted.
inline std::vector<observe::TraceEvent> measured_events(
    const ParallelPlan& plan, const PlanningCosts& known, const IterationPlan& iteration,
    const std::function<double(StageId)>& factor) {
  const auto costs =
      scheduler::predicted_costs(plan, known.model, iteration.samples, known.options).value();
  return measured_events(
      plan, iteration,
      [&](StageId stage, const std::vector<std::int32_t>& part, scheduler::TaskKind kind) {
        return factor(stage) * costs.task_ms(stage, part, kind);
      });
}

}  // namespace troupe::engine
