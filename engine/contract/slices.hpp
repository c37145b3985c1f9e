// What a stage makes on the whole plan of a batch, and on the slice of it that its node gets in a
// job: the same bits, though in the slice samples have other numbers, messages other places, and
// much of the batch is not there.
//
// Calls code of the user's; what that throws beside a round goes on.

#pragma once

#include "engine/contract/stage_bench.hpp"

namespace troupe::engine {

/// A round on each, by the same stage on the same rows and gradients.
struct SlicedRounds {
  StageOutcome whole, slice;
};

/// Of a stage made anew for the batch of `StageBench::doubled`.
/// Errors: as there, and as `StageBench::state`, `make` and `round`.
Result<SlicedRounds> sliced_rounds(const StageBench& bench, StageId id);

}  // namespace troupe::engine
