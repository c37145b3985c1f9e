// Which steps of a job are planned, PREPARED by whom, decided and finished: two-phase commit of one
// step after the other, and how far the job has come by it.
//
// Pure: nothing is sent, and there is no clock. Single owner, not thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/iteration/batch_planner.hpp"
#include "engine/iteration/prepared_votes.hpp"
#include "engine/iteration/skipped_steps.hpp"
#include "engine/iteration/step_note.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::actors {

/// A step that was planned and is not finished.
struct RunningStep {
  std::shared_ptr<const engine::PlannedBatch> batch;
  engine::PreparedVotes votes;
  std::size_t device_count = 0;  ///< Of its layout.
  std::optional<engine::StepOutcome> outcome;
  std::vector<engine::DeviceReport> reports;
  TokenCount tokens_before = 0;
  double wait_ms = 0;              ///< Devices were idle for so long before it was sent.
  std::set<DeviceId> waiting_for;  ///< Devices that have not reported yet, PREPARED or their end.
  engine::StepNote note = {};      ///< Once there is an outcome.
  Status counted = Done{};         ///< Whether a job may go on after it.

  /// Whether all its samples were bad: no device works on it.
  bool is_empty() const { return batch->iteration.samples.empty(); }
};

class StepLoop {
 public:
  /// Steps that are planned and not finished, at most: one runs, one waits in the devices' queues.
  static constexpr std::size_t kAhead = 2;

  /// Of a job that has not begun.
  StepLoop() = default;

  /// Goes on behind the steps of `before`. `skipped`: with the counts of these steps.
  StepLoop(JobProgress before, engine::TrainingLength length, engine::SkippedSteps skipped);

  /// What finished steps came to, but for bad samples and skipped steps.
  const JobProgress& progress() const { return progress_; }
  /// The job after its last finished step, whole.
  JobProgress progress_now(EpochNumber generation) const;
  /// Number of the job's steps; 0: only the tokens decide, or it has not begun.
  std::int64_t total_steps() const { return length_ ? length_->steps() : 0; }
  /// Finished, or under way.
  std::int64_t planned_steps() const { return progress_.step + std::ssize(steps_); }
  /// Whether the job's last step is planned, or done.
  bool is_last_planned() const { return is_last_planned_; }
  std::int64_t skipped_steps() const { return skipped_ ? skipped_->count() : 0; }
  /// Distinct samples that were found bad.
  std::int64_t bad_samples() const { return static_cast<std::int64_t>(bad_ids_.size()); }

  /// Steps under way, the oldest first; at most `kAhead`.
  const std::deque<RunningStep>& under_way() const { return steps_; }
  bool is_idle() const { return steps_.empty(); }
  /// Whether a step was decided that is not finished. The only one: the next one is decided later.
  bool is_decided() const { return !steps_.empty() && steps_.front().outcome.has_value(); }

  /// A plan was asked for, and has not come.
  bool is_asked() const { return is_asked_; }
  void ask() { is_asked_ = true; }
  /// Whatever was asked for is of another layout, and will not be used.
  void forget_asked() { is_asked_ = false; }
  /// Whether devices have room for one more step than is under way or was asked for.
  bool has_room() const { return !is_asked_ && steps_.size() < kAhead; }

  /// The plan of the next step, for so many devices, which have been idle for `wait_ms`.
  /// REQUIRES: the batch follows the newest one; it is of the layout that is up.
  void add(std::shared_ptr<const engine::PlannedBatch> batch, std::size_t device_count,
           double wait_ms);

  /// A device is PREPARED. Returns whether all of that step are, by this report: then, and only
  /// then, it may be decided. Reports of another generation, of a step that is not under way, or
  /// repeated ones count for nothing.
  bool prepared(const engine::Prepared& report);

  /// COMMIT or DISCARD of a step under way: the word for its devices; none where it is empty, which
  /// is discarded. Clips to `max_grad_norm`; 0: does not.
  /// REQUIRES: all its devices are PREPARED or it is empty; steps before it are finished.
  std::optional<engine::StepVerdict> decide(std::int64_t step, double max_grad_norm);

  /// A device has finished a step. Returns whether that counts: as for `prepared`.
  bool device_finished(const engine::DeviceReport& report);

  /// These devices are gone with their node: no step waits for them.
  void without(const std::set<DeviceId>& devices);

  /// Whether the oldest step is decided and no device works on it any more.
  bool is_ended() const;

  /// The oldest step is done, and counts from now on. REQUIRES: it is decided.
  RunningStep finish();

  /// Back to the last finished step: nothing that was planned beyond it counts, nor what was asked.
  void rewind();

  /// Pipelines are others: what the newest batches dealt to them says nothing any more.
  void forget_deals() { progress_.deals.clear(); }

 private:
  RunningStep* find(std::int64_t step);
  void note(RunningStep& step);

  JobProgress progress_;
  std::optional<engine::TrainingLength> length_;
  std::optional<engine::SkippedSteps> skipped_;
  std::deque<RunningStep> steps_;
  bool is_asked_ = false;
  bool is_last_planned_ = false;
  TokenCount planned_tokens_ = 0;
  std::map<std::string, std::int64_t> bad_ids_;  ///< And the batch in which each was found.
  std::vector<BadSampleNote> untold_bad_;        ///< Of decided steps that no device ran.
};

}  // namespace troupe::actors
