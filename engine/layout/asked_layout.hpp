// A layout that somebody asks a running job to take up: its plan, and whether it can train.
//
// Pure.

#pragma once

#include <set>
#include <vector>

#include "engine/setup/job_setup.hpp"
#include "engine/state/state_memory.hpp"
#include "runtime/vocabulary/hand_layout.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/recovery/relayout.hpp"

namespace troupe::engine {

/// The plan that `layout` makes on these nodes, with as many standby holders as the job's tolerance
/// asks for or these nodes allow; those of the present plan stay where they are still of use.
/// `rooms`: what devices have. REQUIRES: `layout` names no other node.
///
/// Errors: as `scheduler::place_by_hand`; infeasible: as `check_state_memory`.
Result<scheduler::Relayout> plan_asked_layout(const JobSetup& setup, const HandLayout& layout,
                                              const ParallelPlan& present,
                                              const std::set<NodeId>& nodes,
                                              const DeviceRooms& rooms);

/// Plans one step of these samples, cut in order, as training on `plan` would, and proves it sound.
/// REQUIRES: samples.
///
/// Errors: as `Microbatching::plan` (a sample that fits no device, say) and `PlanGuard::pass`.
Status rehearse(const JobSetup& setup, const ParallelPlan& plan, std::vector<SampleShape> samples);

/// The same; where samples in their order have no room they are cut by the job's own policy, as
/// training would, unless that is a function of a plug-in, which may take any time.
///
/// Errors: as `rehearse`.
Status rehearse_as_trained(const JobSetup& setup, const ParallelPlan& plan,
                           const std::vector<SampleShape>& samples);

}  // namespace troupe::engine
