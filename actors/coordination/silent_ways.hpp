// Between which nodes a message is lost though both live and nobody hears of an error: a cut cable,
// a switch or a rule that drops packets.
//
// Pure: what nodes say of their waits is handed in, and nothing is sent.

#pragma once

#include <span>
#include <vector>

#include "engine/iteration/reports.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::actors {

/// A way on which a message was sent that has not come.
struct SilentWay {
  NodeId from;
  NodeId to;
  double seconds = 0;  ///< It has been on its way for so long, or longer.

  friend bool operator==(const SilentWay&, const SilentWay&) = default;
};

/// The ways on which nothing seems to come any more, each once, by the longest of its messages;
/// ascending by the lower and the higher node. None before one of them has been silent for
/// `bound_s` (> 0); with it those of half of that time: who has lost its network shows on one way
/// after the other, as its peers come to need something of it.
///
/// `waits`: what devices said last, those of other steps than the iteration's count for nothing. A
/// message counts as sent where its sender waits behind the action that sends it: since then at the
/// latest, so that it is on its way for the shorter of the two waits. Who says nothing, because it
/// computes, and who itself waits for a third one before it can send, has lost nothing.
/// Cost: waits x messages x actions of a list.
std::vector<SilentWay> silent_ways(const ParallelPlan& plan, const IterationPlan& iteration,
                                   std::span<const engine::LongWait> waits, double bound_s);

/// The same where it is known of each way for how long it has been silent. Those from a node to
/// itself count for nothing. Cost: linear in ways, but for the order.
std::vector<SilentWay> due_ways(std::span<const SilentWay> known, double bound_s);

}  // namespace troupe::actors
