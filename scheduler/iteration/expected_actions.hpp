// What must happen in an iteration and what needs what, derived from layout, samples and messages
// alone.
//
// Pure. The checker compares it with the lists of a plan.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "scheduler/iteration/redistribution.hpp"

namespace troupe::scheduler {

/// An action on the device whose list it must stand in.
struct SitedAction {
  Action action;
  std::int32_t device = 0;

  friend auto operator<=>(const SitedAction&, const SitedAction&) = default;
};

/// Actions, and waits as indices into them.
struct ExpectedActions {
  std::vector<SitedAction> actions;                          ///< Sorted.
  std::vector<std::pair<std::int32_t, std::int32_t>> needs;  ///< (action, what it needs).
  /// Compute of one part on a grid whose devices run several lists: none begins before all.
  std::vector<std::vector<std::int32_t>> rendezvous;
};

/// Parts whose backward the lists of a plan split: one of its halves is there for them.
using SplitParts = std::vector<MessageEnd>;  ///< Sorted.

/// Parts of encoders that lists offload or fetch.
using OffloadedParts = std::vector<MessageEnd>;  ///< Sorted.

/// Derives them. A part listed in `offloaded`, of an encoder and with a backward, has `offload`,
/// behind its forward, and `fetch`, behind that and before its backward. One listed in `split` has
/// `backward_input` and, where its stage trains something with its rows, `backward_weight`; another
/// one has `backward`.
///
/// Waits: compute for its rows and gradients, sends for compute, receives for sends; reductions for
/// the last backward of their stage and for what other holders send them (gradient_sum.hpp);
/// `commit` for the compute and the reductions of its device and, as it ends everywhere at once,
/// for everything that stands before any other `commit` (not listed in `needs`); `optimizer_step`
/// for `commit`. Of a group whose moments are in host memory each holder has `fetch_state`, behind
/// `commit`, an `optimizer_step` of its own behind that, and `offload_state` behind it. A standby
/// holder gets every chunk of its groups and updates in a step of its
/// device. Where the devices of a grid run several lists, its actions stand in each of them;
/// receives wait for the sends of all. Where rows pass through a device, its relay waits for the
/// sends, and receives for the relay.
///
/// REQUIRES: sound microbatches; messages between existing stages and parts.
ExpectedActions expected_actions(const ParallelPlan& plan, const IterationPlan& iteration,
                                 const RowFlow& flow, const SplitParts& split,
                                 const OffloadedParts& offloaded);

}  // namespace troupe::scheduler
