#include "engine/iteration/planning_budget.hpp"

#include <algorithm>
#include <iterator>

#include "balancer/microbatches/policies.hpp"

namespace troupe::engine {

namespace {

constexpr double kPlanningShare = 0.025;
constexpr double kPlanningMsMin = 45;
constexpr double kPlanningMsMax = 500;
constexpr double kReplicaMsMin = 3;

// Units of `balancer::PolicyWork`: a millisecond's; per sample and stage, and per stage and
// microbatch of a plan that is costed.
constexpr double kWorkPerMs = 10'000;
constexpr double kSampleStageWork = 2;
constexpr double kTaskWork = 45;

// A whole plan has actions, which are ordered, and simulated: so many times what costing takes.
constexpr double kWholePlan = 4;

// Where deferring has to pay, plans are costed with and without before one is whole.
constexpr double kCostingsOfDeferral = 3;

double planning_ms(double step_ms) {
  return std::clamp(kPlanningShare * step_ms, kPlanningMsMin, kPlanningMsMax);
}

/// Of a policy's plan of a whole step.
double whole_plan_work(const balancer::PolicyWork& work, const PlanSize& size) {
  const auto& [per_sample, per_group, per_sample_and_group] = work;
  const double costings = kWholePlan + (per_group > 0 ? kCostingsOfDeferral : 0);
  return per_sample * size.samples + per_group * size.llms * size.microbatches +
         per_sample_and_group * size.samples * size.microbatches + costings * costing_work(size);
}

}  // namespace

double costing_work(const PlanSize& size) {
  return kSampleStageWork * size.samples * size.stages / size.llms +
         kTaskWork * size.stages * size.microbatches;
}

double portfolio_work(double step_ms, double llms, bool is_compared) {
  const double ms = planning_ms(step_ms) / (is_compared ? 2 : 1);
  return kWorkPerMs * std::max(kReplicaMsMin, ms / llms);
}

std::vector<std::string> compared_policies(double step_ms, const PlanSize& size,
                                           std::int64_t evaluations) {
  const double work_max = kWorkPerMs * planning_ms(step_ms) / 2;
  std::vector<std::string> names;
  double work = 0;
  const auto& all = balancer::policies();
  for (auto policy = all.rbegin(); policy != all.rend(); ++policy) {
    const double own = whole_plan_work(policy->work, size);
    const bool is_one_too_many = std::ssize(names) + 1 >= evaluations;
    if (policy->name == "auto" || is_one_too_many || work + own > work_max) continue;
    work += own;
    names.push_back(policy->name);
  }
  return names;
}

}  // namespace troupe::engine
