// What a layer costs a device that holds a shard of it (tensor parallel) or of its rows (context
// parallel): compute of the shard's shapes is measured here, collectives are modelled from the
// measured speed of the transport. Every profile made here is labelled `modelled`.
//
// Single-threaded but for LibTorch's operator threads; the caller sets those.

#pragma once

#include <vector>

#include "engine/profiling/profile_layers.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/profile.hpp"

namespace troupe::engine {

/// One matrix of a layer and how tensor parallelism splits it.
struct ShardedMatrix {
  std::int64_t out = 0, in = 0;  ///< Of the whole layer.
  std::int64_t shard_out = 0, shard_in = 0;
  bool joins = false;  ///< Split by columns of its input: the shards' results are summed.
};

/// The matrices of a kind: those that read the rows between layers keep their outputs apart (heads,
/// inner columns, vocabulary), those behind them sum up. First layers are not split, but for the
/// llm's embedding, which multiplies nothing.
///
/// Errors: infeasible: heads, or the width behind them, are no multiple of tp; the fix names the
/// degrees that are.
Result<std::vector<ShardedMatrix>> sharded_matrices(const JobSetup& setup, const LayerKind& kind,
                                                    std::int32_t tp);

/// Whether every kind of the model can be split so.
/// Errors: as `sharded_matrices`; infeasible: cp is no power of two.
Status check_degrees(const JobSetup& setup, scheduler::Parallelism degrees);

/// Whether the modules of each stage can be split over its grid.
/// Errors: as `check_degrees`, of the layout's key.
Status check_grids(const JobSetup& setup, const ParallelPlan& plan);

/// The cost of a kind on one of tp x cp devices, from `whole`, its measured profile on one.
///
/// Linear part: `whole` at tokens / cp, with its matrices exchanged for those of the shard, both
/// measured here. Attention: the kernel on heads / tp; with cp on tokens / cp, once for each block
/// that a device sees (half of them where it is causal and the rows are dealt evenly). Collectives:
/// a ring all-reduce of the rows behind each pair of matrices, forward and backward; with cp the
/// keys and values go round once forward and, with their gradients, once backward.
/// How quiet it was is noted with `watch`, which pays for repetitions.
/// Cost: a few times that of `whole` at its larger sizes.
///
/// Errors: as `sharded_matrices`; infeasible: cp is no power of two; internal: LibTorch's text.
Result<scheduler::LayerProfile> profile_shard(const JobSetup& setup, const LayerKind& kind,
                                              const scheduler::LayerProfile& whole,
                                              scheduler::Parallelism degrees,
                                              const scheduler::LinkSpeed& link, QuietWatch& watch);

}  // namespace troupe::engine
