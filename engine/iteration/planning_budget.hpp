// How much planning a step is worth: a fortieth of it, 45 ms at least and 500 ms at most, since it
// is planned beside the step before.
//
// Pure. Work is counted, never timed, so that every run of a job plans alike: in the units of
// `balancer::PolicyWork`, of which a millisecond has ten thousand.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::engine {

/// What a plan is made of.
struct PlanSize {
  double samples = 0;
  double stages = 0;        ///< Of all replicas.
  double llms = 1;          ///< Replicas of the llm, which share the samples out; >= 1.
  double microbatches = 1;  ///< Of each of them.
};

/// Of costing one plan by the order of its tasks.
double costing_work(const PlanSize& size);

/// What `auto` may do for each of so many llm replicas of a step of about so long; half of it where
/// it then compares whole plans (`compared_policies`). Never less than for 3 ms.
double portfolio_work(double step_ms, double llms, bool is_compared);

/// The policies whose plans of a whole step may be ordered and simulated, to be compared with a
/// first one: all but `auto`, the most elaborate first, as far as half of what planning may take
/// goes and `evaluations` plans, the first one included. A policy that would be too much work is
/// left out.
std::vector<std::string> compared_policies(double step_ms, const PlanSize& size,
                                           std::int64_t evaluations);

}  // namespace troupe::engine
