// What a job on machines that need not be here is for a replay of failures: pipeline templates from
// computed layer costs, and the bytes of its state.
//
// Pure; thread-safe. Every sample is as large as the job allows: `data.max_seq_len` tokens, one
// image of `data.max_pixels`, or in its square, per vision encoder, one window of 30 s per audio
// encoder. Costs are those of `computed_profiles`, without messages between stages and without the
// reduction.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/job/job.hpp"
#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/device_catalog.hpp"
#include "scheduler/recovery/recovery_layouts.hpp"

namespace troupe::app {

/// The most nodes at a time, devices of each, and what they are.
struct ReplayMachines {
  std::int64_t nodes = 1;             ///< >= 1.
  std::int64_t devices_per_node = 1;  ///< >= 1.
  scheduler::DeviceSpec device;
};

struct ReplayModelOptions {
  std::int64_t microbatch_size = 1;  ///< Samples; >= 1.
  double compute_share = 0.6;        ///< Of the peak rate, see `RooflineOptions`.
  bool recompute = false;  ///< Layers run forward again in backward; only their inputs are kept.
};

/// Templates up to `machines.nodes` nodes, for `fault_tolerance` of the job. State that is copied
/// or saved is parameters, moments and master copies; gradients count as memory only. Parameters
/// tied between layers count in the last of them.
///
/// `modules` are those of `graph` in its order, widths of projectors filled in.
///
/// Errors: invalid_argument: more than 10,000 nodes of 64 devices; as `make_templates`,
/// `CostModel::create`; infeasible: no number of nodes holds the model with the activations of as
/// many microbatches as its pipeline has stages.
Result<scheduler::RecoveryModel> recovery_model(const job::Job& job, const ModelGraph& graph,
                                                const std::vector<ModuleConfig>& modules,
                                                const ReplayMachines& machines,
                                                const ReplayModelOptions& options);

}  // namespace troupe::app
