// What the states of a stage (`GroupState`) say and do beside updates on the device: copies of
// gradients, hashes, moments that are in host memory but for their update.
//
// Calls code of the user's; what that throws while a stage is made goes on.

#pragma once

#include <string>
#include <vector>

#include "engine/contract/stage_bench.hpp"

namespace troupe::engine {

/// A promise of states, and how a stage is held to it.
struct StatePromise {
  std::string name, fix;
  /// Tries stages that are made anew. `state`: what one of them is on; behind it the values and
  /// moments of some steps more.
  /// Errors: as `StageBench::round`, `copy` and `make`; internal: the promise is broken, with the
  /// call and the group.
  Status (*hold)(const StageBench& bench, StageId id, const StageRows& inputs,
                 const StateStore& state);
};

/// Those of a stage, in the order of `check_contract`; of moments only where plans may have some of
/// its own in host memory. REQUIRES: something of it trains.
std::vector<StatePromise> state_promises(const StageBench& bench, StageId id);

}  // namespace troupe::engine
