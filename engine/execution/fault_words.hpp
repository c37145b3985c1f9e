// Where a fault was, in the words that all errors of stages have.
//
// Pure.

#pragma once

#include <string>
#include <vector>

#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// What is said of work in which a stage has been for so long that nobody waits for it any more.
inline constexpr const char* kNeverReturns = "the work does not return";

/// `stage 2 (vision layers 0 to 1, llm layers 0 to 3)`. REQUIRES: the plan has it.
std::string stage_with_layers(const ParallelPlan& plan, StageId id);

/// ` for samples 'a', 'b' of microbatch 3`, three samples at most; ` of microbatch 3` for none.
std::string part_words(const std::vector<std::string>& sample_ids, MicrobatchId microbatch);

}  // namespace troupe::engine
