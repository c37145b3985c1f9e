// Whether a job that has lost nodes goes on at once with those it has left, or waits for a node
// that is on its way: by the samples that either is predicted to lose until nodes change again.
//
// Going on trains without who comes while it opens its data, and while its state comes to it after
// that; then the job has two changes of layout behind it. Waiting trains nothing until it is there,
// and then has one. So it pays where steps are long against the wait, because who comes enters
// between two steps and takes its state over during others, or where state would be copied twice.
//
// Pure; thread-safe (`JoinTimes`: single owner); the same answer on every node.

#pragma once

#include <deque>
#include <optional>
#include <set>

#include "scheduler/recovery/next_layout.hpp"

namespace troupe::scheduler {

/// Both ways to go on, from now on. All >= 0.
struct WaitOutlook {
  double without_per_ms = 0;   ///< Samples a ms of the layout without who comes.
  double with_per_ms = 0;      ///< Of the one with it.
  double ready_ms = 0;         ///< Until it is ready.
  double copy_without_ms = 0;  ///< Until the layout without it trains, were it taken up now.
  double copy_with_ms = 0;     ///< Until the one with it does, once it is ready.
  double warm_ms = 0;          ///< From there on, in which the others would train without it.
  double stall_ms = 0;         ///< In which nobody trains, because it enters later.
  double horizon_ms = 0;       ///< Until nodes change again.
};

/// Samples that the faster of both layouts would train in `horizon_ms` if it trained all along, and
/// the job does not where it goes on at once.
double lost_going_on(const WaitOutlook& outlook);

/// The same where it waits.
double lost_waiting(const WaitOutlook& outlook);

/// Whether it loses fewer samples where it waits. Not where it loses as many.
bool waiting_pays(const WaitOutlook& outlook);

/// The layout that the job would go on with at once. What it refers to outlives the calls.
struct GoingOn {
  const ParallelPlan& plan;
  const StateMoves& moves;
  const StatePlacement& want;  ///< Where state lies once it has moved.
  std::set<NodeId> nodes;      ///< That are there.
};

/// Of a job that has lost nodes and that `comes` joins, which is ready in `ready_ms`. Costs two
/// searches for a layout: what it would be with `comes` from the start, and what would be made of
/// `going_on` once that is there, as `next_layout` and `next_warm_up` have it. Neither is made
/// where waiting is worse whatever they find: with no more nodes than trained before, by the rate
/// of then and the size of the state; the outlook then has that rate, and a copy of a node's share.
///
/// None where nothing is known of the network, of the step before or of what layers take, where no
/// layout works with it, or where it would have no stage: for who stands by nobody waits.
std::optional<WaitOutlook> wait_outlook(const ChangingJob& job, const GoingOn& going_on,
                                        NodeId comes, double ready_ms);

/// What the last joins took, from the welcome until the node had opened its data and was ready.
class JoinTimes {
 public:
  void add(double ms);

  /// When a node is ready that was welcomed so long ago: a quarter later than the slowest of the
  /// last eight, so that one like it is not given up a moment too soon. None: no node has joined
  /// yet, or it takes longer than that, so that nothing is known of it.
  std::optional<double> ready_in_ms(double elapsed_ms) const;

 private:
  std::deque<double> last_ms_;
};

}  // namespace troupe::scheduler
