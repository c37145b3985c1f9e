// Which replica runs which microbatch, where module groups have numbers of replicas of their own.
//
// Pure and deterministic.

#pragma once

#include <functional>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"

namespace troupe::scheduler {

/// How the samples of one llm replica are cut for encoders and for the llm.
struct ReplicaCut {
  MicrobatchList encoder;
  MicrobatchList llm;
};

/// What a microbatch takes on a replica; any unit.
using MicrobatchLoad = std::function<double(ReplicaId replica, const Microbatch& microbatch)>;

/// Gives the replicas of a pipeline their microbatches: each llm replica the cut made for it, and
/// each other group the encoder microbatches of all cuts. A group of as many replicas as the llm's
/// keeps the cuts apart, so that rows may stay on a device. Otherwise microbatches are dealt in the
/// order in which they are needed, the k-th ones of all llm replicas before the next ones, each to
/// the replica with the least load so far (ties: the lower one).
///
/// REQUIRES: `cuts` in the order of the pipeline's llm replicas, one for each; in `microbatches`
/// a list per replica of the plan, which is added to.
void deal_microbatches(const ParallelPlan& plan, PipelineId pipeline, std::vector<ReplicaCut> cuts,
                       const MicrobatchLoad& load, std::vector<MicrobatchList>& microbatches);

/// The replicas of a pipeline by module group, each list in the order of replicas.
std::vector<std::vector<ReplicaId>> replicas_by_group(const ParallelPlan& plan,
                                                      PipelineId pipeline);

}  // namespace troupe::scheduler
