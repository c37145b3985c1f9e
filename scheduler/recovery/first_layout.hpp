// The layout that a job begins with where nodes may be lost: pipelines of the templates from which
// losses and joins make them anew, where these are as good as what the search for a layout finds.
//
// Pure and seeded, as `auto_layout`.

#pragma once

#include "runtime/vocabulary/result.hpp"
#include "scheduler/layout/auto_layout.hpp"

namespace troupe::scheduler {

/// Share of a step that a layout of templates may take longer than the best one that was found.
inline constexpr double kWorthTemplates = 0.01;

/// `auto_layout`'s choice; where nodes may be lost (`fault_tolerance` > 0) instead of it the best
/// combination of templates on all nodes (Oobleck, dissertation 2.4.2), with one whole pipeline
/// more than nodes may be lost, unless it is predicted to take more than `kWorthTemplates` longer,
/// does not fit or leaves nodes without work. The last of the reasons says which it is and why.
///
/// Then spare nodes stand by for all that they have room for, which is part of the plan, and of its
/// step and memory; a reason says what they keep and what that costs.
///
/// Whole pipelines keep the promise without standby holders, and a pipeline that a loss breaks is
/// made from the set that it was cut by. Pins and layouts that are only planned (stages of several
/// devices) are left to the search. Cost: as `auto_layout`, `layout_templates` and `instantiate`,
/// and two steps on paper.
///
/// Errors: as `auto_layout`.
Result<AutoLayout> first_layout(const AutoLayoutRequest& request);

}  // namespace troupe::scheduler
