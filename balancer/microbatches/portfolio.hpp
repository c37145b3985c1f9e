// `policy = "auto"`: every policy's plan, costed by the caller's function, and the best one
// improved by local search within a budget of evaluations.
//
// Pure and deterministic for a given budget. The cost function is the simulator's, given by the
// caller: this folder does not know schedules.

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "balancer/microbatches/policies.hpp"

namespace troupe::balancer {

/// What the portfolio chose and from which policy it came.
struct PortfolioChoice {
  MicrobatchPlan plan;
  double cost = 0;
  std::string policy;  ///< The best member's name and K, as `deferral-chain, K=12`.
  std::int64_t evaluations = 0;
  double work = 0;            ///< As counted for `PolicyOptions::work_max`.
  std::int64_t left_out = 0;  ///< Members that were too much work for so many samples.
};

/// Stages x microbatches over all estimates: some seconds of one core.
inline constexpr std::int64_t kTaskVisitsMax = 20'000'000;

/// Costs the plan of every applicable policy with the user's K, with the effective K and with their
/// mean, the most elaborate policies first, and picks the least (ties: the first costed). Then
/// searches the sizes of microbatches (size_search.hpp): with an `estimate` by it, hundreds of
/// times per evaluation, dealing samples to what it finds and exchanging them
/// (sample_exchange.hpp), otherwise by dealing samples alone. One microbatch alone: swaps single
/// samples. Keeps what lowers the cost, and that alone: never worse than the best member that was
/// costed.
///
/// Members above `llm_cap_ms` are left out. `evaluations_max` counts calls of the cost function, at
/// least one; members come before local search.
///
/// Large inputs: members take half of `work_max` and the search what is left of it, both counted
/// from samples, microbatches and stages alone, so that the choice stays repeatable. Up to some
/// 100,000 samples nothing is left out; a million samples in 64 microbatches get three members,
/// all estimates and a few dealings, ten million the first member alone, which is always costed.
/// `left_out` counts the others. A plan is then no worse than the members that were costed.
///
/// Errors:
/// - invalid_argument: a bad workload or microbatches < 1.
/// - infeasible: no member keeps to the cap, or no member has a finite cost.
Result<PortfolioChoice> best_of_portfolio(std::span<const Workload> workloads,
                                          const PolicyOptions& options);

/// A pipeline in lock step, the default cost of `auto` when no simulator is given: in every slot
/// one encoder and one LLM microbatch run side by side and the slower one ends it; an LLM
/// microbatch takes the first slot after those of all its samples' encoder microbatches. Either
/// side's work is scaled to the mean of both, since the layout gives a module stages in proportion
/// to its work. Counts fill and drain, so it weighs few large microbatches against many.
/// O(samples).
double slot_time_ms(std::span<const Workload> workloads, const MicrobatchPlan& plan);

}  // namespace troupe::balancer
