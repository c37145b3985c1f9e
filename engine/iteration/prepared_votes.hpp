// Collects what devices report about a step and decides it: the supervisor's arithmetic.
//
// Pure; owned by one thread. The reference runs use the same functions, so that losses, norms and
// clip factors agree to the bit.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/iteration/reports.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// What a step came to, once every device is PREPARED.
struct StepOutcome {
  Decision decision;
  double loss = 0;       ///< Sum of token losses over trained tokens of the whole batch.
  double grad_norm = 0;  ///< Global norm before clipping.
  /// What layers added to the loss beside it, by name.
  std::map<std::string, double> auxiliary;
  std::vector<std::string> nonfinite_samples;  ///< Ids, in training order of their parts.
};

struct StepPolicy {
  double learning_rate = 0;  ///< Of this step, before module scales.
  double max_grad_norm = 0;  ///< 0: no clipping.
};

/// Sum of part losses in (pipeline, microbatch, part) order, divided once by the trained tokens.
double total_loss(std::vector<PartLoss> losses, TokenCount trained_tokens);

/// By name, each in the order of stages, microbatches and parts.
std::map<std::string, double> auxiliary_totals(std::vector<PartAuxiliary> parts);

/// COMMIT where losses and every group's norm are finite; DISCARD otherwise, with the reason.
StepOutcome decide_step(std::int64_t step, TokenCount trained_tokens, std::vector<PartLoss> losses,
                        std::vector<PartAuxiliary> auxiliary, std::span<const GroupNorm> norms,
                        const StepPolicy& policy);

/// Waits for PREPARED of every device of one step.
class PreparedVotes {
 public:
  PreparedVotes(std::int64_t step, EpochNumber epoch_number, std::size_t device_count);

  /// Takes a device's report. Returns false for one that is stale, of another step, or a repeat.
  bool add(const Prepared& prepared);

  bool complete() const { return devices_.size() == device_count_; }
  std::int64_t step() const { return step_; }

  /// REQUIRES: complete. Norms are added in the order of groups and their chunks.
  StepOutcome outcome(TokenCount trained_tokens, const StepPolicy& policy) const;

 private:
  std::int64_t step_;
  EpochNumber epoch_number_;
  std::size_t device_count_;
  std::set<DeviceId> devices_;
  std::vector<PartLoss> losses_;
  std::vector<PartAuxiliary> auxiliary_;
  std::vector<GroupNorm> norms_;
};

}  // namespace troupe::engine
