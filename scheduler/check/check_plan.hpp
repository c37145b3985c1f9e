// Proves an `IterationPlan` sound before anything executes it, or says what is wrong with it.
//
// Pure. Knows nothing of how plans are made: it derives what must happen from the samples, the
// microbatches and the layout, and compares.

#pragma once

#include <string>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "scheduler/check/fault.hpp"

namespace troupe::scheduler {

/// All faults of a plan; empty means sound. First what is wrong with its shape or messages, then
/// missing, duplicate and unknown actions, then order, then memory.
///
/// Proves: each stage has a device for each rank, no two of them the same and all of one node; each
/// sample stands once on each side and the loss is divided by all trained tokens; each
/// message joins two ends that share its samples and no row that must move is left out; rows
/// between module groups take the route of their boundary, through its one relay or none; content
/// comes once to each stage that reads it on a node that does not see it, from the one that decodes
/// it; every send has its receive; every forward, backward, reduction, commit and optimizer step
/// that the samples call for is there once, on its own device; what an encoder's part has offloaded
/// is fetched, both once; moments that are in host memory come before their update and go back
/// behind it, of one group at a time; parameters of encoders that are in host memory are there
/// while the llm computes, and on the device for their own stage; everything is there when it is
/// needed; the blocking actions (`receive*`, `reduce*` except `reduce_send`, `commit`) cannot wait
/// for each other in a circle, nor calls to NCCL, which a device runs in the order in which it
/// enters them; and `max_in_flight` holds.
///
/// What a fault makes wait is not reported again as a deadlock.
///
/// Cost: O(n log n) for n = actions + samples x layers.
std::vector<Fault> check(const ParallelPlan& plan, const IterationPlan& iteration);

/// An action as people read it.
std::string describe(const ParallelPlan& plan, const Action& action);

}  // namespace troupe::scheduler
