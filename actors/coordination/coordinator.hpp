// What a job does next: whether it waits, trains, changes its layout or ends, as its nodes come and
// go and its steps are decided. The composition of who is in it (`Membership`) and of two-phase
// commit (`StepLoop`): which of their events count at which moment of the job.
//
// Pure: it is told what happened and which layouts were found, and says what follows; whoever owns
// it sends, measures time and plans. Single owner, not thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "actors/coordination/membership.hpp"
#include "actors/coordination/step_loop.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::actors {

/// gathering: a head takes over, and its nodes come. joining: nodes come to a job that begins.
/// applying: a layout comes up. collecting: the trained model comes to the head. ending: all were
/// told so.
enum class JobPhase : std::uint8_t {
  gathering,
  joining,
  applying,
  training,
  collecting,
  ending,
  ended
};

/// What follows from an event.
enum class Move : std::uint8_t {
  wait,            ///< Nothing, until something else happens.
  plan,            ///< Ask for the plan of the next step.
  look_on,         ///< Ask `next`, which says what stands between two steps.
  close_empty,     ///< Decide and finish the oldest step: all its samples were bad.
  finish,          ///< Finish the oldest step, on which no device works any more.
  change_members,  ///< A layout for those that come and without those that go.
  asked_layout,    ///< The layout that the owner asked for.
  roomy_layout,    ///< A layout that has a plan for the next batch, which has none on this one.
  listed_layout,   ///< The layout that the job file lists for this step.
  regroup,         ///< Go back to the last finished step, and bring up the layout that was found.
  collect          ///< All steps are done: collect the model.
};

/// Whom a job loses.
enum class LossKind : std::uint8_t {
  none,      ///< One that is gone already.
  leaver,    ///< One that was told to end, with all others.
  gathered,  ///< One of a head that was lost.
  newcomer,  ///< One that was not ready yet: nothing depends on it.
  member     ///< One that the job has to go on without, or ends.
};

/// What came up, once all nodes work in a new layout.
enum class CameUp : std::uint8_t {
  nothing,     ///< Not all do.
  first,       ///< The first one.
  changed,     ///< One that somebody asked for.
  regrouped,   ///< One of other nodes than before.
  late_state,  ///< One whose new holders get their state during its first step.
};

/// What others wish for between two steps.
struct Wishes {
  bool asked_layout = false;   ///< The owner asks for a layout.
  bool listed_layout = false;  ///< The job file lists one for the next step.
  bool roomy_layout = false;   ///< There is no plan for the next batch on this one.
};

class Coordinator {
 public:
  Membership members;
  StepLoop loop;

  JobPhase phase() const { return phase_; }
  /// It saves what is done, and ends; nothing new is decided.
  bool is_stopping() const { return is_stopping_; }
  /// Nodes were lost, join or leave, and the layout of those there are is not up yet.
  bool is_regrouping() const { return is_regrouping_; }
  bool is_over() const { return phase_ == JobPhase::ending || phase_ == JobPhase::ended; }
  /// Whether a layout is up or comes up.
  bool is_at_work() const;
  /// Whether a node that is lost may be done without.
  bool bears_losses() const { return is_at_work() && !is_stopping_; }
  /// Whether all devices hold the state of the last finished step, and will until they are told.
  bool is_at_rest() const;
  /// Whether state comes during a step that is not decided yet.
  bool is_arriving() const { return arriving_.has_value(); }

  void gather() { phase_ = JobPhase::gathering; }
  /// Nodes are waited for, to go on behind `steps` in a generation after this one.
  void begin(StepLoop steps, EpochNumber generation);
  /// Another head's nodes hold this state, but for those lost with it, and go on: they regroup.
  void take_over(EpochNumber newest, StatePlacement placed, const std::vector<NodeId>& lost);
  void stop() { is_stopping_ = true; }
  void end() { phase_ = JobPhase::ending; }
  void ended() { phase_ = JobPhase::ended; }

  /// A layout comes up on these devices, as a new generation, whose number it returns; what was
  /// under way of an older one is given up. State is to lie as `want`; `is_late`: where it does not
  /// yet, it comes during the first step.
  EpochNumber bring_up(const std::vector<DeviceSlot>& devices, StatePlacement want, bool is_late);
  /// A node has the state that the newest layout gives it. Returns whether all have, by this word:
  /// then all turn over to it, and until then nobody has lost anything.
  bool fetched(NodeId node, EpochNumber generation);
  /// A node works in it. What came up once all do; their state lies where it wants it.
  CameUp applied(NodeId node, EpochNumber generation);
  /// The layout that came up trains from now on. What follows is `started`.
  void train() { phase_ = JobPhase::training; }
  Move started() const;
  /// The model is collected.
  void collect() { phase_ = JobPhase::collecting; }

  LossKind kind_of_loss(NodeId node) const;
  /// Where state lies. Nodes that were told to turn over to a layout have what it wants there,
  /// whether they have done so or not; but for what arrives during its first step.
  const StatePlacement& held() const;
  /// The same at nodes that are there. Who was lost while the model is collected counts as a holder
  /// until it is known whether what it alone had has come; for a layout or a save that is gone.
  StatePlacement left() const;
  /// That, once another node is gone.
  StatePlacement left_without(NodeId lost) const;
  /// Goes on without this node, on a layout that was found. A step whose COMMIT is known is
  /// finished first, by all who are left: each of them has its sums.
  /// `is_taken`: it is gone already, and another process has its place, which stays.
  /// Returns `finish` (as soon as `loop` says that it is ended) or `regroup`.
  Move lose(NodeId lost, bool is_taken = false);
  /// No layout comes up: state stays where it lies, which is where `held` says, and can be saved.
  /// Until one is brought up after all.
  void halt();
  bool is_halted() const { return is_halted_; }
  /// Nodes come or go, and a layout was found: regroups.
  void regroup() { is_regrouping_ = true; }
  /// A node does not belong to the job any more: no step waits for its devices.
  void forget(NodeId node);

  /// The scheduler's plan of the next step. Returns whether it is used: not one of another layout.
  bool planned(std::shared_ptr<const engine::PlannedBatch> batch, double wait_ms);
  /// A device is PREPARED. Returns whether the step is to be decided now: all are, and nothing
  /// stands against it. Nobody decides while a loss is dealt with, or the job stops.
  bool prepared(const engine::Prepared& report);
  /// The word on a step, as `StepLoop::decide`. What came during it is where the layout wants it.
  std::optional<engine::StepVerdict> decide(std::int64_t step, double max_grad_norm);
  /// A device has finished a step. Returns whether that counts.
  bool device_finished(const engine::DeviceReport& report);
  /// Whether the oldest step is to be finished.
  bool has_ended_step() const { return phase_ == JobPhase::training && loop.is_ended(); }
  /// What follows once a step is finished: `regroup`, `collect`, `close_empty`, `look_on`, `wait`.
  Move finished() const;
  /// What stands before the next step: `plan`, once there is nothing else; a layout of any kind
  /// waits until no step is under way. Where one that it names is not taken up, it is to be asked
  /// again.
  Move next(const Wishes& wishes) const;

 private:
  JobPhase phase_ = JobPhase::joining;
  bool is_stopping_ = false;
  bool is_regrouping_ = false;
  bool is_halted_ = false;
  bool is_settling_ = false;  ///< All have fetched and were told to turn over.
  bool is_late_ = false;      ///< Of the newest layout: state comes during its first step.
  StatePlacement want_;       ///< Of the newest layout.
  std::optional<StatePlacement> arriving_;  ///< Where state lies once the running step is decided.
  std::vector<DeviceSlot> devices_;         ///< Of the newest layout.
};

}  // namespace troupe::actors
