// Why `auto_layout` chose what it chose, in words: the best against the best of each other kind.
//
// Pure. Helper of auto_layout.cpp.

#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/layout_candidates.hpp"

namespace troupe::scheduler {

/// A candidate and what the simulator said of it.
struct ScoredLayout {
  LayoutCandidate candidate;
  PlacedCandidate placed;
  PredictedStep step;
  bool fits = true;  ///< Into the memory of every device.
};

/// Devices that a layout occupies.
std::int32_t devices_of(const ScoredLayout& scored);

/// Reasons for the first of `scored`, which all have one number of replicas for all modules, or all
/// numbers of their own; `others` are those of the other kind, and may be none.
/// REQUIRES: each begins with its best, the first of `scored` fits.
std::vector<LayoutReason> layout_reasons(const AutoLayoutRequest& request,
                                         const std::vector<ScoredLayout>& scored,
                                         const std::vector<ScoredLayout>& others);

/// The best of both lists whose encoders stand otherwise beside the llm than those of the first of
/// `scored`: one that fits, if there is one. Null where none does, and for a model without
/// encoders.
const ScoredLayout* other_placement(const std::vector<ScoredLayout>& scored,
                                    const std::vector<ScoredLayout>& others);

/// The error where no scored layout fits: how much the least demanding one needs.
Error memory_error(const AutoLayoutRequest& request, const std::vector<ScoredLayout>& scored);

}  // namespace troupe::scheduler
