#include "actors/coordination/coordinator.hpp"

#include <set>
#include <utility>

#include "scheduler/recovery/next_layout.hpp"

namespace troupe::actors {

bool Coordinator::is_at_work() const {
  return phase_ == JobPhase::applying || phase_ == JobPhase::training ||
         phase_ == JobPhase::collecting;
}

bool Coordinator::is_at_rest() const {
  const bool is_up = phase_ == JobPhase::training || phase_ == JobPhase::collecting;
  const bool is_still = is_halted_ || (is_up && !is_regrouping_);
  return is_still && loop.progress().step > 0 && !loop.is_decided();
}

void Coordinator::begin(StepLoop steps, EpochNumber generation) {
  phase_ = JobPhase::joining;
  loop = std::move(steps);
  members.go_on_from(generation);
}

void Coordinator::take_over(EpochNumber newest, StatePlacement placed,
                            const std::vector<NodeId>& lost) {
  phase_ = JobPhase::applying;
  is_regrouping_ = true;
  members.go_on_from(newest);
  members.place(std::move(placed));
  for (const NodeId node : lost) members.gone(node);
}

EpochNumber Coordinator::bring_up(const std::vector<DeviceSlot>& devices, StatePlacement want,
                                  bool is_late) {
  phase_ = JobPhase::applying;
  is_halted_ = false;
  is_settling_ = false;
  is_late_ = is_late;
  want_ = std::move(want);
  arriving_.reset();  // What was to come during a step that is given up does not.
  devices_ = devices;
  loop.forget_asked();
  return members.begin_generation();
}

bool Coordinator::fetched(NodeId node, EpochNumber generation) {
  if (phase_ != JobPhase::applying || generation != members.generation()) return false;
  if (!members.fetched(node)) return false;
  is_settling_ = true;
  if (is_late_) members.keep_only(want_);
  return true;
}

CameUp Coordinator::applied(NodeId node, EpochNumber generation) {
  if (phase_ != JobPhase::applying || generation != members.generation()) return CameUp::nothing;
  if (!members.applied(node)) return CameUp::nothing;
  is_settling_ = false;
  if (is_late_) {
    loop.forget_deals();  // Of pipelines that are planned anew.
    arriving_ = want_;
    return CameUp::late_state;
  }
  const bool is_first = members.placed().empty();
  members.place(want_);
  if (std::exchange(is_regrouping_, false)) {
    loop.forget_deals();
    return CameUp::regrouped;
  }
  if (is_first) return CameUp::first;
  loop.forget_deals();
  return CameUp::changed;
}

Move Coordinator::started() const {
  if (phase_ != JobPhase::training) return Move::wait;
  // A job that had ended goes on with nothing.
  return loop.is_last_planned() ? Move::collect : Move::look_on;
}

LossKind Coordinator::kind_of_loss(NodeId node) const {
  const Member::Phase member = members[node].phase;
  if (member == Member::Phase::gone) return LossKind::none;
  if (phase_ == JobPhase::ending) return LossKind::leaver;
  if (phase_ == JobPhase::gathering) return LossKind::gathered;
  if (member == Member::Phase::joined && phase_ != JobPhase::joining) return LossKind::newcomer;
  return LossKind::member;
}

const StatePlacement& Coordinator::held() const {
  return is_settling_ && !is_late_ ? want_ : members.placed();
}

StatePlacement Coordinator::left() const {
  StatePlacement there = held();
  for (Shard& shard : there)
    std::erase_if(shard.holders,
                  [this](const DeviceSlot& device) { return !members.is_there(device.node); });
  return there;
}

StatePlacement Coordinator::left_without(NodeId lost) const {
  StatePlacement there = left();
  scheduler::drop_holders(there, lost);
  return there;
}

Move Coordinator::lose(NodeId lost, bool is_taken) {
  members.place(left_without(lost));
  if (!is_taken) forget(lost);
  is_settling_ = false;
  is_regrouping_ = true;
  return phase_ == JobPhase::training && loop.is_decided() ? Move::finish : Move::regroup;
}

void Coordinator::halt() {
  members.place(StatePlacement(held()));
  phase_ = JobPhase::training;  // What nodes still say of a layout that was coming up is no news.
  is_halted_ = true;
  is_settling_ = false;
}

void Coordinator::forget(NodeId node) {
  members.gone(node);
  std::set<DeviceId> own;
  for (std::size_t i = 0; i < devices_.size(); ++i)
    if (devices_[i].node == node) own.insert(DeviceId{i});
  loop.without(own);
}

bool Coordinator::planned(std::shared_ptr<const engine::PlannedBatch> batch, double wait_ms) {
  if (phase_ != JobPhase::training || is_stopping_ || is_regrouping_) return false;
  if (batch->iteration.epoch_number != members.generation()) return false;
  loop.add(std::move(batch), devices_.size(), wait_ms);
  return true;
}

bool Coordinator::prepared(const engine::Prepared& report) {
  if (phase_ != JobPhase::training || !loop.prepared(report)) return false;
  // A job that stops saves what is done; nothing new begins to change it.
  return !is_stopping_ && !is_regrouping_;
}

std::optional<engine::StepVerdict> Coordinator::decide(std::int64_t step, double max_grad_norm) {
  auto verdict = loop.decide(step, max_grad_norm);
  if (verdict && arriving_) members.place(*std::exchange(arriving_, std::nullopt));
  return verdict;
}

bool Coordinator::device_finished(const engine::DeviceReport& report) {
  return phase_ == JobPhase::training && loop.device_finished(report);
}

Move Coordinator::finished() const {
  if (phase_ != JobPhase::training || is_halted_) return Move::wait;
  if (is_regrouping_) return Move::regroup;
  if (is_stopping_) return Move::wait;
  if (loop.is_idle()) return loop.is_last_planned() ? Move::collect : Move::look_on;
  return loop.under_way().front().is_empty() ? Move::close_empty : Move::look_on;
}

Move Coordinator::next(const Wishes& wishes) const {
  if (phase_ != JobPhase::training || loop.is_last_planned()) return Move::wait;
  if (is_stopping_ || is_regrouping_) return Move::wait;
  const Move roomy = loop.is_idle() ? Move::roomy_layout : Move::wait;
  // The step during which state comes runs in this layout, and no other; or there is none.
  if (is_arriving() && wishes.roomy_layout) return roomy;
  if (is_arriving()) return loop.is_idle() && !loop.is_asked() ? Move::plan : Move::wait;
  // Who joins or leaves does not wait for a plan that nobody will use.
  if (members.wants_change()) return loop.is_idle() ? Move::change_members : Move::wait;
  if (wishes.asked_layout) return loop.is_idle() ? Move::asked_layout : Move::wait;
  if (wishes.roomy_layout) return roomy;
  if (!loop.has_room()) return Move::wait;
  if (wishes.listed_layout) return loop.is_idle() ? Move::listed_layout : Move::wait;
  return Move::plan;
}

}  // namespace troupe::actors
