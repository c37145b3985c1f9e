// The next batch has no plan on the layout that is up: its largest microbatch has no room there,
// say. Another layout of the same nodes may have some; else what the steps before left is saved. A
// part of the supervisor's actor; every function runs in it.

#pragma once

#include "actors/link/shared_values.hpp"
#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// The scheduler has no plan for it. What is under way is finished first (`Move::roomy_layout`). Of
/// a layout that another one replaces it means nothing: there the batch is planned anew; nor of a
/// job that stops before it.
void batch_refused(SupervisorSelf self, const RefusedBatchPtr& refused);

/// Between two steps: brings up another layout that has a plan for the batch (rehearsed, with room
/// for its state beside the present one): the one that the job began with, or one of those that
/// `scheduler::next_layout` knows of these nodes when it looks further; none on which the same
/// batch was refused before. It stays for the batches after.
///
/// Where there is none the job ends, once its nodes have saved the last finished step: with 75
/// where the layout that it begins with has a plan and only lacks nodes, else by the planner's
/// error, with the sample that has least room. So it does at once before a first step is done: the
/// job file asks for what cannot be, and there is nothing to lose.
/// REQUIRES: one is refused; no step is under way.
void take_up_roomy_layout(SupervisorSelf self);

}  // namespace troupe::actors
