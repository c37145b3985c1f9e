// The time of a replay: what it is spent on, and which iterations count in the end. Knows no
// layouts and no nodes but their number.
//
// Not thread-safe; a replay has one of its own.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "scheduler/recovery/replay_failures.hpp"

namespace troupe::scheduler {

/// One thing the job does instead of training.
struct ReplayPhase {
  double TimeShares::*share;
  double ms = 0;
  enum class Then : std::uint8_t { nothing, saved, ready } then = Then::nothing;
};

/// The phases of a change whose busiest node moves bytes for `moves_ms`; `replay_ms` is what the
/// first step takes beyond a usual one.
inline EventPhases phases_of(const ChangeCosts& costs, double moves_ms) {
  EventPhases phases;
  phases.detect_ms = costs.detect_ms;
  phases.decide_ms = costs.decide_ms;
  phases.copy_ms = costs.copy_ms + (costs.is_copy_whole ? 0 : moves_ms);
  phases.rebuild_ms = costs.rebuild_ms;
  phases.replay_ms = costs.first_step_ms;
  return phases;
}

/// Nodes that are alive, and those of them that do nothing.
struct NodesNow {
  std::size_t alive = 0;
  std::size_t idle = 0;
};

class ReplayClock {
 public:
  double now_ms() const { return now_ms_; }
  bool is_in_iteration() const { return partial_ms_ > 0; }
  std::int64_t committed() const { return committed_; }
  bool has_saved() const { return checkpointed_ > 0 || committed_ > 0; }
  bool has_unsaved() const { return committed_ > checkpointed_; }
  const std::deque<ReplayPhase>& phases() const { return phases_; }

  void add(const ReplayPhase& phase) { phases_.push_back(phase); }
  void drop_phases() { phases_.clear(); }

  /// Rounding must not leave a rest that is too small to add.
  void round_up_to(double until_ms) {
    if (until_ms - now_ms_ < 1e-9 * until_ms) now_ms_ = until_ms;
  }

  void stand_still(double ms, NodesNow nodes) {
    pass(ms, nodes);
    time_.stopped_ms += ms;
  }

  /// The first phase, for `left_ms` at most. Returns what follows once it has ended.
  std::optional<ReplayPhase::Then> run_phase(double left_ms, NodesNow nodes) {
    ReplayPhase& phase = phases_.front();
    const double ms = std::min(left_ms, phase.ms);
    pass(ms, nodes);
    time_.*phase.share += ms;
    phase.ms -= ms;
    if (phase.ms > 0) return std::nullopt;
    const auto then = phase.then;
    phases_.pop_front();
    return then;
  }

  /// Whole iterations as far as `left_ms` reaches, `most` of them, or a piece of one. Returns how
  /// many ended.
  std::int64_t train(double left_ms, double iteration_ms, double most, NodesNow nodes) {
    const double first = iteration_ms - partial_ms_;
    if (left_ms < first) {
      partial_ms_ += left_ms;
      time_.training_ms += left_ms;
      pass(left_ms, nodes);
      return 0;
    }
    const double count = std::min(most, 1 + std::floor((left_ms - first) / iteration_ms));
    const double ms = first + (count - 1) * iteration_ms;
    partial_ms_ = 0;
    time_.training_ms += ms;
    since_checkpoint_ms_ += count * iteration_ms;
    committed_ += static_cast<std::int64_t>(count);
    pass(ms, nodes);
    return static_cast<std::int64_t>(count);
  }

  void saved() {
    checkpointed_ = committed_;
    since_checkpoint_ms_ = 0;
  }

  /// The iteration under way is lost.
  void break_off() {
    lose(partial_ms_);
    partial_ms_ = 0;
  }

  /// All since the last checkpoint is lost.
  void roll_back() {
    lose(std::exchange(since_checkpoint_ms_, 0));
    lost_iterations_ = committed_ - checkpointed_;
    repeated_ += lost_iterations_;
    committed_ = checkpointed_;
  }

  /// Puts what was lost since the last record into this one.
  void settle(EventRecord& record) {
    record.time_ms = now_ms_;
    record.lost_work_ms = std::exchange(lost_work_ms_, 0);
    record.lost_iterations = std::exchange(lost_iterations_, 0);
  }

  /// All but the events. `global_batch`: samples of an iteration.
  ReplayResult result(std::int64_t global_batch, double duration_ms) const {
    ReplayResult made;
    made.iterations = committed_;
    made.repeated_iterations = repeated_;
    made.samples = committed_ * global_batch;
    made.samples_per_s = static_cast<double>(made.samples) / (duration_ms / 1000);
    made.idle_share = node_ms_ > 0 ? idle_node_ms_ / node_ms_ : 0;
    made.time = time_;
    return made;
  }

 private:
  void pass(double ms, NodesNow nodes) {
    node_ms_ += static_cast<double>(nodes.alive) * ms;
    idle_node_ms_ += static_cast<double>(nodes.idle) * ms;
    now_ms_ += ms;
  }

  void lose(double ms) {
    time_.training_ms -= ms;
    time_.lost_work_ms += ms;
    lost_work_ms_ += ms;
  }

  TimeShares time_;
  std::deque<ReplayPhase> phases_;  // Before training goes on.
  double now_ms_ = 0, partial_ms_ = 0, since_checkpoint_ms_ = 0;
  double node_ms_ = 0, idle_node_ms_ = 0;
  std::int64_t committed_ = 0, checkpointed_ = 0, repeated_ = 0;
  // Of the event at hand.
  double lost_work_ms_ = 0;
  std::int64_t lost_iterations_ = 0;
};

/// Puts the phases of `phases_of` before what comes next.
inline void add_phases(const EventPhases& phases, ReplayClock& clock) {
  clock.add({&TimeShares::detection_ms, phases.detect_ms});
  clock.add({&TimeShares::reconfigure_ms, phases.decide_ms + phases.rebuild_ms + phases.replay_ms});
  clock.add({&TimeShares::copy_ms, phases.copy_ms, ReplayPhase::Then::ready});
}

}  // namespace troupe::scheduler
