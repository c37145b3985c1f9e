// What a plan has one stage do in an iteration: the parts that it runs, and the messages that begin
// or end there.
//
// Pure.

#pragma once

#include <map>
#include <set>
#include <vector>

#include "engine/execution/stage_program.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// The part at an end of a message.
inline PartKey part_of(const MessageEnd& end) { return {end.microbatch, end.part}; }

/// A stage's share of an iteration.
struct StageTraffic {
  std::vector<PartKey> parts;   ///< That it runs, ascending.
  std::set<PartKey> backward;   ///< Of these, those that go backward.
  std::set<PartKey> offloaded;  ///< Of these, those that are in host memory for a while.
  /// Messages by their part, in the order of the plan.
  std::map<PartKey, std::vector<MessageId>> incoming, outgoing;
};

/// REQUIRES: the iteration is of this plan, whole or a slice for the stage's node.
StageTraffic traffic_of(const ParallelPlan& plan, const IterationPlan& iteration, StageId id);

}  // namespace troupe::engine
