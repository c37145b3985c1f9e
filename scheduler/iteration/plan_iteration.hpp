// Plans one iteration: which rows move where, and what every device does in which order.
//
// Pure. The engine and the simulator execute the result; `check_plan.hpp` proves it sound.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_pieces.hpp"
#include "scheduler/iteration/iteration_graph.hpp"
#include "scheduler/iteration/message_routes.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/iteration/schedules.hpp"

namespace troupe::scheduler {

/// Cuts `count` samples from `begin` on into at most `microbatches` microbatches of one part; sizes
/// differ by at most one, larger ones first. Of fewer samples each is a microbatch.
/// REQUIRES: count >= 0, microbatches >= 1.
MicrobatchList cut_by_count(std::int32_t begin, std::int32_t count, std::int32_t microbatches);

/// Cuts samples 0..sample_count-1 into contiguous runs, one per llm replica, whose sizes differ by
/// at most one, larger ones first, and each run by `cut_by_count`. A replica may get none. Encoders
/// get the same microbatches, dealt by their number of samples (deal_microbatches.hpp).
///
/// REQUIRES: sample_count >= 0, microbatches >= 1.
std::vector<MicrobatchList> assign_by_count(const ParallelPlan& plan, std::int32_t sample_count,
                                            std::int32_t microbatches);

/// What an iteration is planned from.
struct IterationInput {
  std::int64_t step = 1;             ///< Optimizer step, from 1.
  EpochNumber epoch_number = 0;      ///< Configuration the plan is for.
  std::vector<SampleShape> samples;  ///< In training order.
  /// Per replica of the plan, as `IterationPlan::microbatches`; a sample's parts in different
  /// groups may belong to different pipelines.
  std::vector<MicrobatchList> microbatches;
  Schedule schedule;
  /// Per stage, microbatches that may be in flight; empty, or 0 for a stage: as the schedule likes.
  std::vector<std::int32_t> max_in_flight;
  /// What to say of a stage that would need `needed` microbatches in flight where its bound is
  /// less; none: that `max_in_flight` is too small.
  std::function<Error(StageId stage, std::int32_t needed,
                      const std::vector<MicrobatchList>& microbatches)>
      refuse_bound = {};
  /// Predicted times; none: a forward is 1, a backward 2, a message 0. They decide what a device
  /// with several stages, or in a schedule that is not strict, does first.
  TaskCost task_cost;
  MessageCost message_cost;
  std::vector<SamplePiece> pieces = {};  ///< As `IterationPlan::pieces`; some may be in no part.
  bool offload_encoders = false;         ///< What encoders keep is in host memory meanwhile.
  RouteRules routes = {};                ///< Of rows between module groups.
  /// Of these samples, and pieces behind them, for who plans them several times; null: made here.
  std::shared_ptr<const RowFlow> flow = {};
  /// The same samples and pieces themselves, and they may be more than `pieces`; they outlive the
  /// call. Null: made here, with a copy of all shapes where there are pieces.
  const SampleUnits* units = nullptr;
};

/// Plans the iteration.
///
/// Messages carry only samples that have rows; none is empty. A message has a backward where
/// something trainable lies before it in a module that carries rows of one of its samples. A stage
/// runs forward where it has rows, and backward where it trains something with rows or passes a
/// gradient on. Receives stand right before the action that needs them, sends right after the one
/// that makes them.
///
/// Rows between module groups take the route of their boundary (message_routes.hpp). A relay stands
/// on its device where its rows are predicted to be there (relays.hpp).
///
/// What a stage reads of samples whose source its node does not see (`SampleShape::seen_by`) comes
/// from the node that decodes them (deliveries.hpp): sends stand before all else, receives right
/// before the forward.
///
/// Where encoders offload, `offload` and `fetch` stand as offload_actions.hpp says.
///
/// A group's `reduce_send` stands behind the last backward of the device's stages that use it (and
/// what that backward sends), beside whatever compute is left; calls to NCCL are entered in one
/// order everywhere (sum_actions.hpp). After its compute a device finishes
/// the step: its `reduce_partial`s, its `reduce`s, its `reduce_relay`s, then its `reduce_receive`s,
/// each in group order, `commit`, and the updates (update_actions.hpp). A device acts once for a
/// group, however many uses it has (gradient_sum.hpp); what it does for one without a use names no
/// stage. What each of these kinds waits for is sent in an earlier one, so no layout can deadlock
/// here.
///
/// Cost: O(actions * log(stages per device)).
///
/// Errors:
/// - invalid_argument: a replica count, sample index or schedule name that is wrong, an empty part
///   or microbatch, a sample without or with two places, or without llm tokens; a piece of items
///   that are not there, or pieces that leave items out, have some twice, or are for the llm; a
///   sample that nobody decodes for a stage whose node does not see it.
/// - infeasible: `max_in_flight` is too small for the schedule, or what `refuse_bound` says.
Result<IterationPlan> plan_iteration(const ParallelPlan& plan, IterationInput input);

/// The same of samples that stay where they are, in the place of `input.samples`: the plan comes
/// without them. For who makes several plans of many samples, each of which is a copy.
Result<IterationPlan> plan_iteration(const ParallelPlan& plan, std::span<const SampleShape> samples,
                                     IterationInput input);

}  // namespace troupe::scheduler
