// Microbatch policies by name: what `balancer.policy` in a job file and `"policy"` in
// `troupe solve` choose from.
//
// Pure and deterministic: same workloads, options and cost function, same plan on every node.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "balancer/loads/workload.hpp"

namespace troupe::balancer {

/// What a plan costs, in milliseconds or any other unit; smaller is better. Infinity or NaN: the
/// plan cannot run. Must depend on the plan alone. The caller gives it, usually the simulator.
using PlanCost = std::function<double(const MicrobatchPlan& plan)>;

/// What microbatches of these loads cost in order of execution, samples aside, both sides of one
/// microbatch being the same samples. In the unit of `PlanCost`.
using LoadsCost = std::function<double(std::span<const Workload> microbatches)>;
/// What a policy may go by beside the samples.
struct PolicyOptions {
  std::int64_t microbatches = 1;     ///< The user's K; >= 1. Some policies use fewer.
  std::uint64_t seed = 0;            ///< `random` and searches.
  std::int64_t pipeline_stages = 2;  ///< Stages of the pipeline; `disttrain` keeps its tail.
  /// Largest LLM load of one microbatch in milliseconds; stands for memory. None: unbounded.
  std::optional<double> llm_cap_ms = std::nullopt;
  /// K_eff of all replicas together, >= 1, where their encoders share out the work of all of them;
  /// a policy that goes by K_eff takes this one, or K where it is less. None: that of its samples.
  std::optional<std::int64_t> shared_microbatches = std::nullopt;
  /// Plans that `auto` may cost, and exchanges that a search may look at (times 1000).
  std::int64_t evaluations_max = 200;
  /// Work of `auto`, in the units of `PolicyWork`: where samples or microbatches are so many that
  /// this would not do, it leaves out members and trials, the dear ones first. The default is some
  /// seconds of one core.
  double work_max = 40e6;
  /// Of one call of `cost`, in the same units. 0: as simulating even stages takes.
  double costing_work = 0;
  /// What `auto` minimises (none: `slot_time_ms` of portfolio.hpp). With it the improved deferring
  /// policies defer, and use fewer microbatches, only where that is cheaper.
  PlanCost cost = nullptr;
  /// `cost` from loads alone. With it `auto` weighs sizes of microbatches before it
  /// deals samples to them, which costs so little that it can look at many more. None: it deals
  /// samples for every size it weighs.
  LoadsCost estimate = nullptr;
};

/// What a plan takes to make, in units of about a tenth of a microsecond.
struct PolicyWork {
  double per_sample = 1;
  double per_group = 0;
  double per_sample_and_group = 0;
};

/// A policy as listed for users.
struct PolicyInfo {
  std::string name;
  std::string summary;  ///< One sentence with its source.
  PolicyWork work;
  bool searches = false;  ///< Looks at other plans until `evaluations_max` is spent.
};

/// All policies, `auto` last.
const std::vector<PolicyInfo>& policies();

/// Their names, for messages and checks.
std::vector<std::string> policy_names();

/// Whether a plan keeps within `llm_cap_ms`. Errors: infeasible: not so; names the policy.
Status check_llm_cap(std::string_view policy, std::span<const Workload> workloads,
                     const MicrobatchPlan& plan, const PolicyOptions& options);

/// Plans one replica's microbatches. Both sides of the plan hold every sample once.
///
/// Errors:
/// - not_found: no such policy; names the nearest one.
/// - invalid_argument: a bad workload, or microbatches < 1.
/// - infeasible: every plan of this policy breaks `llm_cap_ms`.
Result<MicrobatchPlan> assign_microbatches(std::string_view policy,
                                           std::span<const Workload> workloads,
                                           const PolicyOptions& options);

}  // namespace troupe::balancer
