// One stage by itself: a round of forwards and backwards on rows and gradients that were recorded,
// as its executor would run them, on any device whose tensors lie in host memory.
//
// Single owner; calls code of the user's, whose exceptions are errors here.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/execution/device.hpp"
#include "engine/execution/sample_store.hpp"
#include "engine/execution/stage_program.hpp"
#include "engine/execution/stage_traffic.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// What comes to a stage and what it gives, by message; of its groups the gradients.
struct StageRows {
  std::map<MessageId, at::Tensor> rows;       ///< [rows, width].
  std::map<MessageId, at::Tensor> gradients;  ///< Of the same.
};

/// What a round made.
struct StageOutcome {
  StageRows sent;
  std::vector<at::Tensor> groups;  ///< Flat, in the order of the plan's groups and uses.
  std::vector<double> losses;      ///< Of parts, then what layers add.
  Bytes left;                      ///< `activations()` at the end.

  /// Sum of the losses as the step has it.
  double loss = 0;
  std::map<PartKey, double> part_losses;  ///< Before their division.
  std::map<std::string, double> added;    ///< What layers add, by its name: of all parts.
};

/// How a round runs.
struct RoundOptions {
  bool is_split = false;         ///< Input gradients first, weight gradients at the end.
  bool is_last_first = false;    ///< Backwards from the last part on.
  bool is_forward_only = false;  ///< Ends without a backward, by `abandon`: no gradients.
  /// Ends behind the first backward, by `abandon`, with other parts in flight; where it is split,
  /// with weight gradients owed.
  bool is_given_up = false;
  /// What a part keeps is in host memory between its forward and its backward. REQUIRES: actions of
  /// the iteration say so, and it is not split.
  bool is_offloaded = false;
  /// On which the stage runs, call by call; it outlives the round. Null: on a host, by the caller's
  /// thread.
  Device* device = nullptr;
};

/// Runs a piece of work on a device and waits until it has completed.
/// Errors: what it returns; internal: it throws; the device's.
Status in_work(Device& device, const Device::Work& work);

/// Runs a round. `inputs`: rows of all incoming messages, gradients of all outgoing ones that have
/// a backward; they come to the device, and what the stage gives leaves it, by host memory.
///
/// Errors: what the stage says or throws, with the call and the part (`forward of microbatch 1`);
/// internal: rows of another size than the message's, or numbers that are not finite; `activations`
/// that do not follow what is offloaded, or other bytes back than went.
Result<StageOutcome> run_round(StageProgram& stage, const ParallelPlan& plan,
                               const IterationPlan& iteration, const SampleStore& samples,
                               StageId id, const StageRows& inputs, const RoundOptions& options);

/// Whether they are equal to the bit, place by place.
bool same_bits(const StageOutcome& a, const StageOutcome& b);

/// The larger one; infinite where either is not a number, which std::max would pass over.
double larger(double a, double b);

/// Largest difference over the largest value of the same tensor of `a` (of a small one: over a
/// millionth of the largest value of all). Infinite where one has more of anything, or a
/// value that is no finite number.
double difference(const StageOutcome& a, const StageOutcome& b);
/// The same of tensors, place by place. REQUIRES: those of a place have the same size.
double difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

/// A number as breaches have it, of six digits.
std::string number_words(double value);
/// What follows on what differs: ` differs by 0.5 of the largest value`.
std::string difference_words(double difference);

}  // namespace troupe::engine
