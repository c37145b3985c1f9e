// All microbatch policies that a job can name: the built-in ones of
// balancer/microbatches/policies.hpp, and those that a program or plug-in adds.
//
// A policy of one's own decides, for the samples of one llm replica, which run together on either
// side of the encoder-LLM boundary. It never touches training: what it returns is checked here, and
// the plan made from it by `scheduler::check`.

#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "balancer/microbatches/policies.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::policies {

using balancer::MicrobatchPlan;
using balancer::PolicyOptions;
using balancer::Workload;

/// `workloads`: predicted milliseconds of each sample. The plan has the same number of microbatches
/// on both sides, at most `options.microbatches`, in execution order. Each sample stands once on
/// either side. Where its llm microbatch is not that of its encoder, rows wait for one of them:
/// those of a later llm microbatch are held, and an earlier one begins when its last encoder is
/// done. No llm microbatch has more than `options.llm_cap_ms` of its samples' `llm_ms`, where that
/// is given: what the memory of the llm's devices has room for.
///
/// A function of its arguments alone, and thread-safe: the same step may be planned again after a
/// loss, and must come out the same. Random choices come from `options.seed`.
using PlanMicrobatches = std::function<Result<MicrobatchPlan>(std::span<const Workload> workloads,
                                                              const PolicyOptions& options)>;

/// A microbatch policy.
struct Policy {
  std::string name;  ///< As `balancer.policy` says it: small letters, digits, `-` and `_`.
  PlanMicrobatches plan;
  bool searches = false;  ///< Goes by `evaluations_max`, so that `balancer.evaluations` has effect.
};

/// Adds a policy for the rest of the process. Call it before a job is read. Thread-safe.
/// Errors: invalid_argument: a name that is taken or not spelled so, or no function.
Status register_policy(Policy policy);

/// Built-in ones first, then in the order in which they came.
std::vector<std::string> policy_names();

/// Whether a policy looks at other plans until `evaluations_max` is spent; false for unknown ones.
bool searches(std::string_view policy);

/// Plans one replica's microbatches, by a built-in policy or an added one. `deferred` and `pairs`
/// are filled in for added ones, and their groups sorted.
///
/// Errors: as `balancer::assign_microbatches`; invalid_argument: an added policy throws, or returns
/// what breaks the rules above: names the policy, the sample and the microbatch; infeasible: it
/// goes above `llm_cap_ms`; an error of its own, with its name before it.
Result<MicrobatchPlan> run_policy(std::string_view policy, std::span<const Workload> workloads,
                                  const PolicyOptions& options);

}  // namespace troupe::policies
