// Steps of a stage that stays where it is, and of one whose state moves between them: to a device
// that completes its work late, by a thread of its own, and back. What a place held is overwritten
// when the state has left it.
//
// Calls code of the user's; what that throws while a stage is made goes on.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/contract/stage_bench.hpp"
#include "engine/execution/device.hpp"

namespace troupe::engine {

/// A device whose work runs late, on another thread than the caller's, with as many threads for
/// LibTorch's operators: bits follow it. Host memory is no number before work has completed.
std::unique_ptr<Device> late_device();

/// One step of the optimizer, as an executor takes it: a parameter that several layers of the
/// stage use gets the sum of their gradients, and moves once. `step`: from 1. In work.
void take_step(const StageBench& bench, StageId id, StageProgram& stage, std::int64_t step);

/// A round behind a step of the optimizer.
struct MovedRound {
  std::string to;  ///< Where the state is since that step, in words.
  StageOutcome stayed, moved;
};

/// Two rounds, behind the first step and behind the second. `stage`: on `state`, whose values are
/// those of the moved state in the end, after two more steps.
/// Errors: as `StageBench::round`, `copy` and `make`, with the words where the state has moved.
Result<std::vector<MovedRound>> moved_rounds(const StageBench& bench, StageId id,
                                             const StageRows& inputs,
                                             std::unique_ptr<StageProgram> stage,
                                             const StateStore& state);

}  // namespace troupe::engine
