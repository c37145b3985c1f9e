// From a profile to the two executors: what every task of an iteration will take and hold, for the
// planner (`IterationInput::task_cost`, `message_cost`) and for the simulator, and what each sample
// weighs, for the balancer.
//
// Pure. Whatever depends on a sample alone is summed once, so that one `SimulationCosts` serves any
// number of candidate plans of the same samples: a task costs O(samples of its part x kinds of
// layer in its stage).

#pragma once

#include <span>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/cost/cost_model.hpp"
#include "scheduler/cost/sample_costs.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::scheduler {

/// How the predicted machine works, besides its layers.
struct PredictionOptions {
  Dtype dtype = Dtype::fp32;  ///< Of parameters and of the rows between stages. Gradients are
                              ///< added up in their own (`gradient_bytes_per_element`).
  DeviceSpeeds speeds;        ///< As the profile says; zeros: only layers take time.
};

/// Per stage: bytes of parameters, gradients and optimizer on each of its ranks, and what its kind
/// holds besides (`LayerSpec::held_bytes`), whatever the samples. Of groups whose moments are in
/// host memory without these.
std::vector<double> stage_state_bytes(const ParallelPlan& plan, const PredictionOptions& options);

/// Per device: the same of what it keeps without a stage (`ParallelPlan::standbys`).
std::vector<double> standby_state_bytes(const ParallelPlan& plan, const PredictionOptions& options);

/// What a device has in host memory: moments and masters, but for their update.
struct HostState {
  double bytes = 0;
  double largest_bytes = 0;  ///< Of one group: what is on the device at a time.
  double parameters = 0;     ///< Besides: copies of parameters, which are on the device in turn.
};

/// Per stage: parameters that are in host memory while the llm computes, on each of its ranks;
/// zeros where they stay.
std::vector<StageParameters> stage_parameters_in_host(const ParallelPlan& plan,
                                                      const PredictionOptions& options);

/// Per device; one that holds a group by several stages has it once.
std::vector<HostState> host_states(const ParallelPlan& plan, const PredictionOptions& options);

/// Predicted milliseconds of one sample in all encoder-side modules (projectors included) and in
/// the llm. Frozen-aware: a backward counts only what is needed.
///
/// Curves have a constant (launching kernels, reading weights) that a microbatch pays once, however
/// many samples it packs. It is left out here, so that the sum over a microbatch's samples differs
/// from the predicted task only by a constant that every microbatch has.
struct SampleWork {
  double encoder_forward_ms = 0;
  double encoder_total_ms = 0;  ///< Forward and backward.
  double llm_forward_ms = 0;
  double llm_total_ms = 0;

  friend bool operator==(const SampleWork&, const SampleWork&) = default;
};

/// Work of each sample. Cost: O(samples + shapes x kinds of layer).
///
/// Errors:
/// - not_found: no profile at one of `parallelisms`.
Result<std::vector<SampleWork>> sample_workloads(const CostModel& model,
                                                 std::span<const SampleShape> samples,
                                                 std::span<const Parallelism> parallelisms = {});
/// The same of the samples that `sums` was made of.
Result<std::vector<SampleWork>> sample_workloads(SampleSums& sums,
                                                 std::span<const Parallelism> parallelisms = {});

/// What links and sums take on a machine of such speeds, by elements of this type; nothing else
/// takes time or memory until somebody says otherwise.
SimulationCosts link_and_sum_costs(const PredictionOptions& options);

/// Times and sizes of the tasks of any iteration of `plan` over `samples` (an index in a part is an
/// index here). Copies what it needs; the functions may be called from several threads.
///
/// The llm's last layer (norm and head) is charged for trained tokens alone, as the engine computes
/// no other row. A run costs nothing for samples without rows for it, and an input gradient is
/// charged only where something trainable lies before it in a module with rows of the part's
/// samples. Activations of layers without a backward count as 0.
///
/// Errors:
/// - not_found: no profile at the degrees of a stage.
Result<SimulationCosts> predicted_costs(const ParallelPlan& plan, const CostModel& model,
                                        std::span<const SampleShape> samples,
                                        const PredictionOptions& options = {});

/// The same from what samples cost at the degrees of all stages.
SimulationCosts predicted_costs(const ParallelPlan& plan, const SampleCosts& samples,
                                const PredictionOptions& options);

/// The same for the parts of these microbatches alone, per pipeline of the plan: each part is
/// summed once for a stage, however often it is asked for. REQUIRES: as `plan_iteration` of
/// microbatches.
SimulationCosts predicted_costs(const ParallelPlan& plan, const SampleCosts& samples,
                                const std::vector<MicrobatchList>& microbatches,
                                const PredictionOptions& options);

/// These costs, whose tasks take what the same samples say, for the parts of these microbatches
/// alone, each summed once as above. What else they say stays. REQUIRES: as above.
SimulationCosts with_summed_parts(SimulationCosts costs, const ParallelPlan& plan,
                                  const SampleCosts& samples,
                                  const std::vector<MicrobatchList>& microbatches);

/// Milliseconds of elements on a free link, for `RouteRules::link_ms`.
LinkCost link_costs(const SimulationCosts& costs);

/// Milliseconds of one message on free links, by its route (forward), for
/// `IterationInput::message_cost`. `plan` outlives the function.
MessageCost message_costs(const ParallelPlan& plan, const SimulationCosts& costs);

}  // namespace troupe::scheduler
