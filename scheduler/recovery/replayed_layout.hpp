// The layout of a replayed job and where its state lies: what the supervisor of a running one keeps
// and decides by, without the time that it takes.
//
// Not thread-safe; a replay has one of its own.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/recovery/next_layout.hpp"
#include "scheduler/recovery/replay_job.hpp"
#include "scheduler/recovery/wait_choice.hpp"

namespace troupe::scheduler {

/// Newcomers take state over while the others train.
struct ReplayedWarmUp {
  double begun_ms = 0;
  double step_ms = 0;  ///< Of the last step before.
  std::int64_t steps = 0;
  std::int64_t bytes = 0;  ///< Between nodes.
};

class ReplayedLayout {
 public:
  /// `job` outlives it.
  explicit ReplayedLayout(const ReplayedJob& job) : job_(job) {}

  /// Of these nodes from nothing; false: there is none. Errors: as `step_ms` and `next_layout`.
  Result<bool> begin(const std::set<NodeId>& nodes);
  /// No layout, and nobody holds anything.
  void end();

  void forget(NodeId lost);
  /// Something has no holder any more.
  bool is_orphaned() const;

  /// What goes on with these nodes, some of which may be new; none: no layout works.
  Result<std::optional<NextLayout>> without_lost(const std::set<NodeId>& nodes, double quiet_ms);

  enum class Welcome : std::uint8_t {
    of_no_use,
    warms_up,  ///< The next layout on the way is taken up: a turnover, and a step.
    all_there  ///< `next` is to be taken up.
  };
  /// What newcomers among these nodes are for, before a step is planned.
  Result<Welcome> with_newcomers(const std::set<NodeId>& nodes, double quiet_ms, double now_ms,
                                 NextLayout& next);

  /// Both ways to go on from a loss: on `next` with `nodes` at once, or with `comes`, which is
  /// ready in `ready_ms`. None: as the free function of this name.
  std::optional<WaitOutlook> wait_outlook(const NextLayout& next, const std::set<NodeId>& nodes,
                                          NodeId comes, double ready_ms, double quiet_ms) const;

  /// The layout is being prepared: `settle` when it is up. What was coming during a step that has
  /// not ended never came.
  Status take_up(NextLayout next);
  void settle() { placed_ = want_; }
  /// A step has ended: what came during it is there.
  void step_ended();

  bool is_arriving() const { return arriving_.has_value(); }
  const std::optional<ReplayedWarmUp>& warming() const { return warming_; }
  double step_ms() const { return step_ms_; }       ///< 0: there is no layout.
  std::size_t working() const { return working_; }  ///< Nodes with a stage.
  double moves_ms(const StateMoves& moves) const;
  double state_bytes() const;  ///< Of the job's model, once.
  std::vector<std::int64_t> pipelines() const;
  std::size_t replicas() const { return present_.pipelines.size(); }

 private:
  const ParallelPlan& base() const { return warming_ ? base_ : present_; }
  ChangingJob changing(double quiet_ms) const;
  Status room_beside(const std::map<DeviceSlot, Bytes>& arriving) const;
  bool warm_up(const NextLayout& wanted, double now_ms);
  void give_up_warm_up();
  Status set_layout(ParallelPlan plan);
  Result<double> step_of(ParallelPlan plan);

  const ReplayedJob& job_;
  ParallelPlan present_;                    // At work, or being prepared.
  ParallelPlan base_;                       // The same without what warms up; read while it does.
  StatePlacement placed_;                   // Where state lies.
  StatePlacement want_;                     // The same once the layout is up.
  std::optional<StatePlacement> arriving_;  // The same once the step has ended.
  std::optional<ReplayedWarmUp> warming_;
  std::size_t working_ = 0;
  double step_ms_ = 0;
  double last_step_ms_ = 0;  // Of the last one that ended.
  std::vector<std::pair<ParallelPlan, double>> steps_;
};

}  // namespace troupe::scheduler
