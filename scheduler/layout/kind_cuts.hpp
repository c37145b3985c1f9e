// Entries of a layout that the planner makes, cut where one stage would have layers of two kinds of
// stages of the user's own, which nothing can run (engine/execution/stage_kinds.hpp).
//
// Pure.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/vocabulary/hand_layout.hpp"
#include "runtime/vocabulary/model_graph.hpp"

namespace troupe::scheduler {

/// An entry as the fewest entries whose layers have one kind each, on the same devices, its runs in
/// order. A device then has a stage of each, as one that has encoders and the llm.
///
/// `kinds`: per module the number of the kind that runs its layers, 0: whichever has the rest of a
/// stage; empty: all 0, and the entry stays as it is. REQUIRES: modules of the model.
std::vector<HandStage> cut_by_kinds(const ModelGraph& model, const std::vector<std::int32_t>& kinds,
                                    HandStage entry);

}  // namespace troupe::scheduler
