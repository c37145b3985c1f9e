#include "scheduler/recovery/replay_failures.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "scheduler/recovery/replay_clock.hpp"

namespace troupe::scheduler {

namespace {

using NodeSet = std::set<std::int64_t>;

Error refuse(std::string message, std::string where, std::string fix = {}) {
  return {Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

NodeSet nodes_of(const std::vector<RankList>& pipelines) {
  NodeSet nodes;
  for (const auto& pipeline : pipelines) nodes.insert(pipeline.begin(), pipeline.end());
  return nodes;
}

class Replay {
 public:
  explicit Replay(const ReplayRequest& request)
      : request_(request), model_(request.model), costs_(request.costs) {}

  Result<ReplayResult> run() {
    alive_ = NodeSet(request_.nodes.begin(), request_.nodes.end());
    if (alive_.size() != request_.nodes.size()) return refuse("a node is named twice", "nodes");
    auto begun = find_layout();
    if (!begun.ok()) return begun.error();
    stopped_ = !begun.value();
    held_ = layout_.pipelines;
    for (const auto& event : request_.events) {
      if (event.time_ms >= request_.duration_ms) break;
      auto done = advance(event.time_ms);
      if (done.ok()) done = happen(event);
      if (!done.ok()) return done.error();
    }
    const auto done = advance(request_.duration_ms);
    if (!done.ok()) return done.error();
    return finish();
  }

 private:
  bool live() const { return request_.mode == RecoveryMode::live; }

  ReplayResult finish() {
    ReplayResult made = clock_.result(model_.global_batch, request_.duration_ms);
    made.events = std::move(events_);
    return made;
  }

  // --- Time passes. ---

  NodesNow nodes_now() const {
    if (!clock_.phases().empty()) return {alive_.size(), 0};
    return {alive_.size(), stopped_ ? alive_.size() : layout_.idle.size()};
  }

  Status advance(double until_ms) {
    while (clock_.now_ms() < until_ms) {
      const double left = until_ms - clock_.now_ms();
      if (!clock_.phases().empty()) {
        if (const auto then = clock_.run_phase(left, nodes_now())) phase_ended(*then);
      } else if (stopped_) {
        clock_.stand_still(left, nodes_now());
      } else if (join_waits_ && !clock_.is_in_iteration()) {
        const auto done = welcome();
        if (!done.ok()) return done;
      } else {
        train(left);
      }
      clock_.round_up_to(until_ms);
    }
    return Done{};
  }

  void phase_ended(ReplayPhase::Then then) {
    if (then == ReplayPhase::Then::saved) {
      clock_.saved();
      if (stopped_) held_.clear();  // The processes end.
    }
    if (then == ReplayPhase::Then::ready) {
      held_ = layout_.pipelines;
      left_.clear();
    }
  }

  // Whole iterations as far as nothing is due before, or a piece of one.
  void train(double left) {
    double most = join_waits_ ? 1 : std::numeric_limits<double>::infinity();
    const auto every = costs_.checkpoint_iterations;
    if (every > 0) most = std::min(most, static_cast<double>(every - (clock_.committed() % every)));
    const auto ended = clock_.train(left, layout_.iteration_ms, most, nodes_now());
    if (every > 0 && ended > 0 && clock_.committed() % every == 0) clock_.add(save());
  }

  // Of a node that saves or loads.
  double node_rate() const {
    const double own = costs_.node_storage_bytes_per_ms;
    return own > 0 ? std::min(own, costs_.link_bytes_per_ms) : costs_.link_bytes_per_ms;
  }

  ReplayPhase save() const {
    const auto total = static_cast<double>(state_bytes(model_));
    const double share =
        layout_.pipelines.empty()
            ? total / static_cast<double>(std::max<std::size_t>(alive_.size(), 1))
            : static_cast<double>(largest_node_bytes(model_, layout_.pipelines[0].size()));
    return {&TimeShares::checkpoint_ms,
            std::max(total / costs_.storage_bytes_per_ms, share / node_rate()),
            ReplayPhase::Then::saved};
  }

  // --- Nodes come and go. ---

  Status happen(const NodeEvent& event) {
    bool hit = false;
    const auto working = nodes_of(layout_.pipelines);
    const auto holding = nodes_of(held_);
    for (const auto node : event.lost) {
      if (alive_.erase(node) == 0)
        return refuse("node " + std::to_string(node) + " is lost but not there", "events");
      hit = hit || working.contains(node) || (!clock_.phases().empty() && holding.contains(node));
      if (holding.contains(node)) left_.insert(node);
      std::erase(layout_.idle, node);
    }
    for (const auto node : event.joined) {
      if (!alive_.insert(node).second)
        return refuse("node " + std::to_string(node) + " joins but is already there", "events");
      if (!stopped_ && !hit) layout_.idle.push_back(node);
    }
    if (stopped_ || hit) return recover(!event.lost.empty());
    if (!event.joined.empty()) join_waits_ = true;
    lost_ = true;
    if (event.joined.empty()) record(EventOutcome::unaffected);
    return Done{};
  }

  // The layout for the nodes that are alive, from nothing; false: there is none.
  Result<bool> find_layout() {
    layout_ = {};
    const RankList nodes(alive_.begin(), alive_.end());
    if (live()) {
      auto made = combined_layout(model_, nodes);
      if (!made.ok() && made.error().code != Errc::infeasible) return made.error();
      if (!made.ok()) return false;
      layout_ = std::move(made).value();
    } else {
      auto made = uniform_layout(model_, nodes);
      if (!made) return false;
      layout_ = std::move(*made);
    }
    return check_length();
  }

  Result<bool> check_length() const {
    if (request_.duration_ms / layout_.iteration_ms <= kReplayIterationsMax) return true;
    return refuse("more than 1e8 iterations of " + std::to_string(layout_.iteration_ms) + " ms",
                  "duration_ms", "replay a shorter time");
  }

  // Begins a recovery anew, whatever was under way.
  Status recover(bool lost) {
    lost_ = lost;
    clock_.break_off();
    clock_.drop_phases();
    join_waits_ = false;
    const bool was_stopped = stopped_;
    if (!live() || !state_is_held()) {
      clock_.roll_back();
      held_.clear();
    }
    if (!held_.empty()) {
      const auto done = change_live(lost);
      if (!done.ok()) return done.error();
      if (done.value()) return Done{};
      // Too few nodes: what the survivors hold is saved.
      layout_ = {};
      if (lost && !was_stopped) detect();
      clock_.add(save());
      stopped_ = true;
      record(EventOutcome::stopped);
      return Done{};
    }
    return restart(lost, was_stopped);
  }

  Status restart(bool lost, bool was_stopped) {
    const auto found = find_layout();
    if (!found.ok()) return found.error();
    stopped_ = !found.value();
    if (stopped_) {
      record(was_stopped ? EventOutcome::waiting : EventOutcome::stopped);
      return Done{};
    }
    if (lost && !was_stopped) detect();
    clock_.add({&TimeShares::reconfigure_ms, costs_.restart_ms});
    clock_.add(load());
    record(EventOutcome::restarted);
    return Done{};
  }

  void detect() {
    phases_.detect_ms = costs_.loss.detect_ms;
    clock_.add({&TimeShares::detection_ms, costs_.loss.detect_ms});
  }

  // Every pipeline reads the whole state; a job that never saved has nothing to read.
  ReplayPhase load() {
    const double total =
        static_cast<double>(state_bytes(model_)) * static_cast<double>(layout_.pipelines.size());
    const auto largest =
        static_cast<double>(largest_node_bytes(model_, layout_.pipelines[0].size()));
    const bool saved = clock_.has_saved();
    if (saved) copied_bytes_ = static_cast<std::int64_t>(total);
    return {&TimeShares::copy_ms,
            saved ? std::max(total / costs_.storage_bytes_per_ms, largest / node_rate()) : 0,
            ReplayPhase::Then::ready};
  }

  // Nodes that joined, at the end of an iteration.
  Status welcome() {
    join_waits_ = false;
    lost_ = false;
    if (live()) {
      const auto done = change_live(false);
      if (!done.ok()) return done.error();
      if (!done.value()) record(EventOutcome::unaffected);
      return Done{};
    }
    const auto better = uniform_layout(model_, RankList(alive_.begin(), alive_.end()));
    if (!better || better->iteration_ms >= layout_.iteration_ms) {
      record(EventOutcome::unaffected);
      return Done{};
    }
    if (clock_.has_unsaved()) clock_.add(save());
    return restart(false, false);
  }

  bool state_is_held() const {
    if (held_.empty()) return false;
    std::vector<bool> found(model_.layer_bytes.size(), false);
    std::size_t needed = 0;
    for (const auto& pipeline : held_)
      for (const auto& made : model_.templates.templates) {
        if (static_cast<std::size_t>(made.node_count) != pipeline.size()) continue;
        for (const auto& stage : made.stages) {
          needed = std::max(needed, static_cast<std::size_t>(stage.layers.end));
          if (left_.contains(pipeline[static_cast<std::size_t>(stage.node)])) continue;
          std::fill(found.begin() + stage.layers.begin, found.begin() + stage.layers.end, true);
        }
      }
    return std::all_of(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(needed),
                       [](bool one) { return one; });
  }

  WhatIfRequest change() const {
    WhatIfRequest made{model_.templates,    model_.layer_bytes,     held_, model_.fault_tolerance,
                       model_.global_batch, model_.microbatch_size, {},    {}};
    made.copy_search_steps = kReplayCopySearchSteps;
    const auto holding = nodes_of(held_);
    made.lost.assign(left_.begin(), left_.end());
    for (const auto node : alive_)
      if (!holding.contains(node) || left_.contains(node)) made.joined.push_back(node);
    return made;
  }

  // Reconfiguration from live state. False: nothing to do, or (after a loss) too few nodes.
  Result<bool> change_live(bool lost) {
    const auto request = change();
    NodeLayout next;
    auto made = what_if(request);
    if (made.ok()) {
      next = {made.value().after.pipelines, {}, made.value().after.iteration_ms};
    } else {
      // A pipeline without template, or fewer microbatches than pipelines: lay out anew.
      if (made.error().code != Errc::infeasible) return made.error();
      auto combined = combined_layout(model_, RankList(alive_.begin(), alive_.end()));
      if (!combined.ok() && combined.error().code != Errc::infeasible) return combined.error();
      if (!combined.ok()) return false;
      next = std::move(combined).value();
      if (next.pipelines == held_ && left_.empty()) return false;
      made = change_pipelines(request, next.pipelines);
      if (!made.ok()) return made.error();
    }
    layout_ = std::move(next);
    stopped_ = false;
    const auto& copies = made.value().copies;
    for (const auto& copy : copies.copies)
      copied_bytes_ += model_.layer_bytes[static_cast<std::size_t>(copy.item)];
    phases_ = phases_of(lost ? costs_.loss : costs_.join,
                        static_cast<double>(largest_transfer(copies, model_.layer_bytes)) /
                            costs_.link_bytes_per_ms);
    add_phases(phases_, clock_);
    phases_.replay_ms += layout_.iteration_ms;
    record(EventOutcome::reconfigured);
    return check_length();
  }

  void record(EventOutcome outcome) {
    EventRecord made;
    clock_.settle(made);
    made.outcome = outcome;
    made.nodes = static_cast<std::int64_t>(alive_.size());
    made.idle = static_cast<std::int64_t>(stopped_ ? alive_.size() : layout_.idle.size());
    for (const auto& pipeline : layout_.pipelines)
      made.pipelines.push_back(static_cast<std::int64_t>(pipeline.size()));
    made.iteration_ms = layout_.iteration_ms;
    if (outcome != EventOutcome::unaffected)
      for (const auto& phase : clock_.phases()) made.recovery_ms += phase.ms;
    made.copied_bytes = std::exchange(copied_bytes_, 0);
    made.phases = std::exchange(phases_, {});
    made.lost = lost_;
    events_.push_back(std::move(made));
  }

  const ReplayRequest& request_;
  const RecoveryModel& model_;
  const RecoveryCosts& costs_;
  ReplayClock clock_;
  std::vector<EventRecord> events_;
  NodeSet alive_;
  NodeLayout layout_;           // At work, or being prepared; empty while stopped.
  std::vector<RankList> held_;  // Pipelines whose nodes hold the state; empty: nobody does.
  NodeSet left_;                // Of them, nodes that left since.
  bool stopped_ = false;
  bool join_waits_ = false;  // Nodes joined; they are taken in when the iteration ends.
  // Of the event at hand.
  std::int64_t copied_bytes_ = 0;
  EventPhases phases_;
  bool lost_ = false;
};

}  // namespace

Result<ReplayResult> replay_failures(const ReplayRequest& request) {
  if (auto checked = check_replay(request); !checked.ok()) return checked.error();
  return Replay(request).run();
}

}  // namespace troupe::scheduler
