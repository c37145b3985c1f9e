#include "engine/iteration/plan_guard.hpp"

#include <string>

#include "runtime/observe/trace_event.hpp"
#include "scheduler/check/check_plan.hpp"

namespace troupe::engine {

bool PlanGuard::is_due(double step_ms) const {
  return seen_ % kCheckedEvery == 0 || step_ms <= 0 || last_ms_ <= kShareMax * step_ms;
}

Status PlanGuard::pass(const IterationPlan& iteration, double step_ms) {
  const bool due = is_due(step_ms);
  ++seen_;
  check_ms_ = 0;
  if (!due) return Done{};
  // Of this thread: what another program takes in between says nothing of the next check.
  const auto begin_ns = observe::thread_cpu_ns();
  const auto faults = scheduler::check(plan_, iteration);
  check_ms_ = last_ms_ = 1e-6 * static_cast<double>(observe::thread_cpu_ns() - begin_ns);
  if (faults.empty()) return Done{};
  const auto& first = faults.front();
  return Error{Errc::internal,
               "the plan of step " + std::to_string(iteration.step) + " is unsound (" +
                   std::to_string(faults.size()) + " faults): " + first.action + ": " + first.why,
               {},
               "a defect of the planner: please report it with the job file and the log"};
}

}  // namespace troupe::engine
