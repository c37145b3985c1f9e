// What the memory of a device allows: how large a microbatch of the llm may be, and how many
// microbatches a stage may have in flight.
//
// Pure.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::scheduler {

/// The costs with activations that count, of each part, the rows that come for it from other
/// stages: whoever runs it keeps them until its backward. What a teacher hands on may be more than
/// all else. `units`: samples, then pieces.
SimulationCosts with_arriving_rows(SimulationCosts costs, const ParallelPlan& plan,
                                   std::span<const SampleShape> units);

/// The costs with what encoders offload: of what a part keeps all but its outputs, from which its
/// backward begins. `units`: samples, then pieces.
SimulationCosts with_offloading(SimulationCosts costs, const ParallelPlan& plan,
                                std::span<const SampleShape> units);

/// Per stage: the bytes that state leaves of its device, which one microbatch may keep
/// (`memory_bounds`).
std::vector<double> microbatch_rooms(const ParallelPlan& plan, const SimulationCosts& costs,
                                     Bytes device_memory);

/// The same where as many microbatches as stages follow (`stage_depths`) must fit.
std::vector<double> rooms_in_flight(const ParallelPlan& plan, const SimulationCosts& costs,
                                    Bytes device_memory);

/// Largest llm work of one microbatch, in the unit of `llm_ms`, which is the work of all `samples`:
/// on every stage of the llm replica it must keep within `rooms` (`rooms_in_flight`). Bytes are
/// taken as proportional to work. None: no stage keeps anything.
std::optional<double> llm_cap_ms(const ParallelPlan& plan, const SimulationCosts& costs,
                                 std::span<const double> rooms, ReplicaId replica,
                                 const std::vector<std::int32_t>& samples, double llm_ms);

/// Of microbatches that each keep so many bytes, how many a stage may keep where `stages` stages of
/// a device share `room` bytes evenly; at least 1. Very many where nothing is kept.
std::int32_t kept_microbatches(double room, double stages, double microbatch_bytes);

/// Per stage: how many of its largest microbatch fit what state leaves of its device
/// (`kept_microbatches`). Of what is offloaded (`with_offloading`) one microbatch counts: others
/// are in host memory. Where parameters of encoders are there while the llm computes, the llm has
/// their room, in the bound above too.
///
/// Errors: infeasible: a microbatch alone is more than state leaves of the device; the message
/// names stage and microbatch.
Result<std::vector<std::int32_t>> memory_bounds(const ParallelPlan& plan,
                                                const SimulationCosts& costs, Bytes device_memory,
                                                const std::vector<MicrobatchList>& microbatches);

}  // namespace troupe::scheduler
