// Batches that an encoder pads to their longest sample, as OrchMLLM's encoder of sounds does
// (section 8, "Input preprocessing"), which Troupe does not do: what they take, and the deal that
// suits them.
//
// Pure and deterministic. Layouts have one replica of every group on each rank, of one stage.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/iteration/iteration_graph.hpp"

namespace troupe::bench {

/// A part of the group takes what as many samples as have rows for its encoder would take, were
/// each as long as the longest of them; all others what `packed` says. Attention is padded, too.
///
/// `plan` and `samples` outlive it. REQUIRES: the group's first module is its encoder.
scheduler::TaskCost padded_cost(const ParallelPlan& plan, ModuleGroupId group,
                                std::span<const SampleShape> samples, scheduler::TaskCost packed);

/// What the group computes for paddings in a step, forward and backward, over all ranks: no work
/// that counts. REQUIRES: all of the group trains, so that each part has a backward.
double padding_ms(const ParallelPlan& plan, ModuleGroupId group,
                  std::span<const MicrobatchList> microbatches, const scheduler::TaskCost& padded,
                  const scheduler::TaskCost& packed);

/// Per rank its samples for an encoder that pads, so that the largest padded batch is as small as
/// can be (OrchMLLM, algorithm 2). `drawn`: per rank what it drew; what has no rows for the encoder
/// stays there. Errors: as `balancer::post_balance`.
Result<std::vector<std::vector<std::int32_t>>> deal_for_paddings(
    ModuleId encoder, std::span<const SampleShape> samples,
    std::span<const std::vector<std::int32_t>> drawn);

}  // namespace troupe::bench
