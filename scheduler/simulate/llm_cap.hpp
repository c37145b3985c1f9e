// How large a microbatch of the llm may be, for its devices to have room for as many as go through
// its stages one behind the other, beside what encoders keep there.
//
// Pure.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/units.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::scheduler {

/// Per stage: of an encoder on a device of the llm the bytes that its largest microbatch keeps at
/// least while the llm computes. That is the mean, where the samples of a pipeline (`pipelines`:
/// indices, per pipeline) are cut into `microbatches` (>= 1) or fewer, without what is offloaded. 0
/// of all other stages, and in pipelines with several replicas of a group: which of these has what
/// is not known. REQUIRES: encoders work for the llm of their own pipeline alone.
std::vector<double> kept_by_encoders(const ParallelPlan& plan, const SimulationCosts& costs,
                                     const std::vector<std::vector<std::int32_t>>& pipelines,
                                     std::int64_t microbatches);

/// As `microbatch_rooms` where as many microbatches as stages follow (`stage_depths`) must fit, on
/// stages of the llm beside what encoders keep on their devices (`kept_by_encoders`; empty:
/// nothing).
std::vector<double> rooms_in_flight(const ParallelPlan& plan, const SimulationCosts& costs,
                                    Bytes device_memory,
                                    const std::vector<double>& encoders_keep = {});
/// The same of `microbatch_rooms` that are known.
std::vector<double> rooms_in_flight(const ParallelPlan& plan, std::vector<double> rooms,
                                    const std::vector<double>& encoders_keep);

/// Largest llm work of one microbatch, in the unit of `llm_ms`, which is the work of all `samples`:
/// on every stage of the llm replica it must keep within `rooms` (`rooms_in_flight`), which stages
/// on one device share. Bytes are taken as proportional to work. None: no stage keeps anything.
std::optional<double> llm_cap_ms(const ParallelPlan& plan, const SimulationCosts& costs,
                                 std::span<const double> rooms, ReplicaId replica,
                                 const std::vector<std::int32_t>& samples, double llm_ms);

}  // namespace troupe::scheduler
