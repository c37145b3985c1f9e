// Other ways to cut the batch of a check, and what a stage made in one of them held against what it
// made of each sample alone: no cut changes what is trained.
//
// Pure.

#pragma once

#include <cstdint>
#include <vector>

#include "engine/contract/stage_round.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/sample_pieces.hpp"

namespace troupe::engine {

/// How the samples of a batch form microbatches.
enum class Cut : std::uint8_t {
  planned,  ///< Two microbatches of one part, the same ones for encoders and for the llm.
  alone,    ///< One for each sample.
  /// Encoders run a microbatch in two parts. The second one's samples are in a later microbatch of
  /// the llm, which has rows of another one of the encoders' besides (Entrain section 4.5).
  deferred,
  /// Encoders take samples with several items for one of them in two pieces each (`SampleUnits`),
  /// which stand where their sample would.
  pieces,
  /// The same, but the second ones stand in the microbatch before, where there is one.
  pieces_apart
};

/// The pieces in which encoders take samples in a cut: the first half of a sample's items for each
/// encoder, and the others. None in cuts of whole samples; none of a sample with an item that has
/// no rows; and none for encoders of a group with a teacher, which reads whole samples.
std::vector<SamplePiece> pieces_in(Cut cut, const ParallelPlan& plan,
                                   const IterationPlan& iteration);

/// The samples of an iteration in another cut, per replica of the plan, with `pieces_in` behind
/// them. None: there is no such cut, because the model has no encoder, fewer than two samples have
/// media, or there are no pieces. REQUIRES: one pipeline with one replica of each group, and the
/// iteration is in the planned cut.
std::vector<MicrobatchList> microbatches_in(Cut cut, const ParallelPlan& plan,
                                            const IterationPlan& iteration);

/// Rows of one sample in a message: all that it has there, or those of a piece.
struct SampleRows {
  std::int32_t sample = -1;  ///< Of the iteration; no piece.
  std::int64_t begin = 0;    ///< In the message.
  std::int64_t rows = 0;     ///< > 0.
  std::int64_t before = 0;   ///< Rows of the sample before these, where it is whole.
  std::int64_t all = 0;      ///< Its rows where it is whole.
};

/// The rows of each sample, or piece of one, in a message; in their order.
std::vector<SampleRows> rows_in(const ParallelPlan& plan, const IterationPlan& iteration,
                                const Message& message);

/// What a stage made in a cut. Both outlive this.
struct CutOutcome {
  const IterationPlan& iteration;
  const StageOutcome& outcome;
};

/// As `difference`, sample by sample, of which pieces are put together: of rows, of gradients where
/// both have them, of losses, and of sums over the batch (gradients of parameters, what layers add
/// to the loss). `alone`: of each sample in a microbatch of its own. Infinite where the other one
/// has no loss of a sample, or too many.
double difference_by_sample(const ParallelPlan& plan, StageId id, const CutOutcome& alone,
                            const CutOutcome& other);

}  // namespace troupe::engine
