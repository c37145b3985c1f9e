#include "engine/iteration/plan_guard.hpp"

#include <chrono>
#include <string>

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
  const auto begin = std::chrono::steady_clock::now();
  const auto faults = scheduler::check(plan_, iteration);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  check_ms_ = last_ms_ = elapsed.count();
  if (faults.empty()) return Done{};
  const auto& first = faults.front();
  return Error{Errc::internal,
               "the plan of step " + std::to_string(iteration.step) + " is unsound (" +
                   std::to_string(faults.size()) + " faults): " + first.action + ": " + first.why,
               {},
               "a defect of the planner: please report it with the job file and the log"};
}

}  // namespace troupe::engine
