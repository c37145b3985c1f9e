// What the memory of a device allows: how many microbatches a stage may have in flight.
//
// Pure.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_pieces.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::scheduler {

/// The costs with activations that count, of each part, the rows that come for it from other
/// stages: whoever runs it keeps them until its backward. What a teacher hands on may be more than
/// all else. `flow`: of all units. `plan` outlives the costs.
SimulationCosts with_arriving_rows(SimulationCosts costs, const ParallelPlan& plan,
                                   std::shared_ptr<const RowFlow> flow);

/// Elements of the rows behind the first `layers` layers of a module that want a gradient, of a
/// part: what stays of it on the device where a run ends there, whatever is offloaded. `flow`: of
/// all units.
double wanted_elements(const ModelGraph& model, const RowFlow& flow, ModuleId module,
                       std::int32_t layers, std::span<const std::int32_t> part);

/// The costs with what encoders offload: of what a part keeps all but its outputs, from which its
/// backward begins (`wanted_elements` of each run). `flow`, `plan`: as above.
SimulationCosts with_offloading(SimulationCosts costs, const ParallelPlan& plan,
                                std::shared_ptr<const RowFlow> flow);

/// Per stage: the bytes that state leaves of its device, which one microbatch may keep
/// (`memory_bounds`).
std::vector<double> microbatch_rooms(const ParallelPlan& plan, const SimulationCosts& costs,
                                     Bytes device_memory);

/// The same, outside phases, of encoders beside an llm that was cut already: less the largest
/// microbatch of each stage of the llm on the device, which is there at the same time. That other
/// encoders are there too is not counted. `microbatches`: per replica; those of the llm count.
std::vector<double> rooms_beside_llm(const ParallelPlan& plan, const SimulationCosts& costs,
                                     Bytes device_memory,
                                     const std::vector<MicrobatchList>& microbatches);

/// Per stage: how many of its largest microbatch it may keep of what state leaves of its device; at
/// least 1. Of what is offloaded (`with_offloading`) one microbatch counts: others are in host
/// memory. Where parameters of encoders are there while the llm computes, the llm has their room,
/// in its cap too (llm_cap.hpp).
///
/// In schedules of phases encoders and llm divide the room so that the llm takes least time
/// (`divide_room`), which has room for windows that cannot be cut further (`window_sets`): samples
/// deferred to a later microbatch of the llm make them wider, and encoders that have a microbatch
/// of it in different places of their lists. An encoder that has room for all its microbatches may
/// keep as many as the longest list has, and makes no window of others narrower. Elsewhere all
/// stages of a device share it evenly, but that one whose largest microbatch is more than that has
/// room for one, and the others share the rest: it is not known how much sooner a step ends with
/// more in flight on one of them.
///
/// Rows that wait for the llm until it has been through a window count with each of the window's
/// microbatches, or the gradients that come for encoders. On devices of the llm alone they bound
/// the windows of the encoders that they come from; where nothing goes back to these, no window
/// makes them wait, and the llm keeps fewer in flight beside all rows of the step. `flow`: of
/// `units`; the rows are among what `costs` has the llm keep (`with_arriving_rows`).
///
/// Errors: infeasible: a microbatch alone is more than state leaves of the device; the message
/// names stage and microbatch. Outside phases also where the stages of a device have no room for
/// the largest of each together, as a microbatch is in encoder and llm at once; it names the
/// device.
Result<std::vector<std::int32_t>> memory_bounds(const ParallelPlan& plan,
                                                const SimulationCosts& costs, Bytes device_memory,
                                                const std::vector<MicrobatchList>& microbatches,
                                                const Schedule& schedule, const RowFlow& flow,
                                                const SampleUnits& units);

/// Says of a stage whose bound by memory (`memory_bounds`, of the same arguments) is less than the
/// `needed` microbatches that any order of these has in flight: what they keep, and what its device
/// has. infeasible; bounds of a user's own would only hide that memory is short.
Error short_of_memory(const ParallelPlan& plan, const SimulationCosts& costs, Bytes device_memory,
                      const std::vector<MicrobatchList>& microbatches, const Schedule& schedule,
                      StageId stage, std::int32_t needed);

}  // namespace troupe::scheduler
