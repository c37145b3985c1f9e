// Which degrees of tensor and context parallelism a layout may have: one pair for the llm, one for
// everything before it. Helper of auto_layout.cpp.
//
// Pure.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/layout.hpp"
#include "scheduler/layout/layout_score.hpp"

namespace troupe::scheduler {

/// The search knows degrees for all encoders and projectors together, and for the llm.
enum class Side : std::uint8_t { encoder, llm };

/// True if a pin does not exclude these degrees.
bool allows(const ModulePins& pins, Parallelism degrees);

/// Degrees that fit a node, ascending, for which every module of a side has a profile and that no
/// pin of the side excludes. Empty for a side whose pins exclude each other.
std::vector<Parallelism> side_degrees(const AutoLayoutRequest& request, Side side);

/// What `search_layout` is asked where it looks for degrees: everything before the llm as one
/// module, then the llm, and a sample that is the mean. On the same devices rows between the two
/// count. None: a side has no degrees with a profile.
std::optional<LayoutInput> degree_problem(const AutoLayoutRequest& request, LayoutScorer& scorer,
                                          Placement placement);

/// Degrees per module, one entry per choice: each pair that both sides may have, the same for all
/// modules; and, for a cluster that is only planned for, what the layout search (`layout.hpp`)
/// finds with degrees of its own for encoders and llm, also on the same devices where they may
/// share some. Where that leaves fewer than two, also the smallest ones of each side. REQUIRES:
/// `check_request` accepts the request. Never empty.
std::vector<std::vector<Parallelism>> degree_choices(const AutoLayoutRequest& request,
                                                     LayoutScorer& scorer);

}  // namespace troupe::scheduler
