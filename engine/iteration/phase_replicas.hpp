// How replicas of a phase differ: how fast they were measured to be, and how many rows they have
// room for.
//
// Pure and deterministic. Helper of microbatching and phase_exchange.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "balancer/loads/first_to_finish.hpp"
#include "engine/iteration/phase_exchange.hpp"
#include "engine/learning/cost_correction.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::engine {

/// The samples of a batch that tell how fast replicas of a group are, and how their stages share
/// its work: the first ones with work there, 256 at most. `works`: `PhaseWork::samples`.
std::vector<std::int32_t> asked_samples(std::span<const double> works);

/// Lets the shares of replicas follow their measured speeds, by what a few samples take there
/// (`asked_samples`, `CostCorrection::slowdown`). What is known of a shape counts where it was
/// measured alone: others learn it when they get one.
void follow_speeds(const ParallelPlan& plan, const CostCorrection& correction,
                   const StageShares& shares, std::vector<PhaseWork>& phases);

/// Fills in what units of each encoder's group take of `rooms`, the bytes that stages have for one
/// microbatch (`scheduler::microbatch_rooms`, `rooms_beside_llm`), on the stage where that is most.
/// Taken to add up, which bytes of the profile do within a few percent, upwards where the batch as
/// a whole keeps more: `scheduler::memory_bounds` has the last word on a plan. Where something is
/// offloaded also what stays.
///
/// `costs`: with rows that arrive. Cost: O(units x stages of replicas that differ).
void bound_rooms(const ParallelPlan& plan, const scheduler::SimulationCosts& costs,
                 const std::vector<double>& rooms, std::vector<PhaseWork>& phases);

/// A unit that is dealt, and the round that it is in.
struct RoundUnit {
  std::int32_t unit = 0;
  std::size_t round = 0;
  std::size_t kept = 0;  ///< Units of a replica with the same number here are there together.
};

/// Changes `chosen`, the replica of each unit, so that what a replica keeps together has room there
/// (`balancer::fit_rooms`), as if nothing of it were offloaded. `loads`: without the units, which
/// are added.
///
/// Errors: infeasible: no such deal was found; the message names a replica, the round, its rows
/// there and how many it has room for.
/// Cost: as `fit_rooms`, and O(replicas x numbers of `kept`).
/// REQUIRES: `PhaseWork::room_shares`; units with work; numbers from 0 on.
Status fit_units(const ParallelPlan& plan, ModuleGroupId group, const PhaseWork& work,
                 std::span<const RoundUnit> units, balancer::FirstToFinish<double>& loads,
                 std::vector<std::size_t>& chosen);

}  // namespace troupe::engine
