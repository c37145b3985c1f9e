// Other ways to cut the batch of a check, and what a stage made in one of them held against what it
// made of each sample alone: no cut changes what is trained.
//
// Pure.

#pragma once

#include <cstdint>
#include <vector>

#include "engine/contract/stage_round.hpp"
#include "engine/execution/packing.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// How the samples of a batch form microbatches.
enum class Cut : std::uint8_t {
  planned,  ///< Two microbatches of one part, the same ones for encoders and for the llm.
  alone,    ///< One for each sample.
  /// Encoders run a microbatch in two parts. The second one's samples are in a later microbatch of
  /// the llm, which has rows of another one of the encoders' besides (Entrain section 4.5).
  deferred
};

/// The samples of an iteration in another cut, per replica of the plan. None: there is no such cut,
/// because the model has no encoder or fewer than two samples have media.
/// REQUIRES: one pipeline with one replica of each group.
std::vector<MicrobatchList> microbatches_in(Cut cut, const ParallelPlan& plan,
                                            const IterationPlan& iteration);

/// The rows of each sample in a message.
std::vector<RowSpan> spans_of(const ParallelPlan& plan, const IterationPlan& iteration,
                              const Message& message);

/// What a stage made in a cut. Both outlive this.
struct CutOutcome {
  const IterationPlan& iteration;
  const StageOutcome& outcome;
};

/// As `difference`, sample by sample: of rows, of gradients where both have them, of losses, and of
/// sums over the batch (gradients of parameters, what layers add to the loss). `alone`: of each
/// sample in a microbatch of its own. Infinite where the other one has no loss of a sample, or too
/// many.
double difference_by_sample(const ParallelPlan& plan, StageId id, const CutOutcome& alone,
                            const CutOutcome& other);

}  // namespace troupe::engine
