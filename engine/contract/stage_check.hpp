// One stage held against all its promises.
//
// Runs code of the user's on the caller's thread; what it throws is a breach.

#pragma once

#include "engine/contract/contract.hpp"

namespace troupe::engine {

/// Tries a stage of a bench, promise by promise in the order of `check_contract`, and puts into the
/// verdict what was kept and what was broken. `halves`: the model as `StageBench::halved` has it;
/// null: no module is cut.
void check_stage(const StageBench& bench, StageId id, const StageBench* halves,
                 const ContractOptions& options, StageVerdict& verdict);

}  // namespace troupe::engine
