#include "scheduler/recovery/replay_job.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "scheduler/recovery/layout_choice.hpp"
#include "scheduler/recovery/replay_clock.hpp"
#include "scheduler/recovery/replayed_arrivals.hpp"
#include "scheduler/recovery/replayed_layout.hpp"
#include "scheduler/recovery/wait_choice.hpp"

namespace troupe::scheduler {

namespace {

Error refuse(std::string message, std::string where, std::string fix = {}) {
  return {Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

/// Steps that a job trains or has planned at a time: what a newcomer waits for.
constexpr int kStepsAhead = 2;

constexpr double kNever = std::numeric_limits<double>::infinity();

class JobReplay {
 public:
  explicit JobReplay(const JobReplayRequest& request)
      : request_(request),
        job_(request.job),
        costs_(request.costs),
        layout_(request.job),
        arrivals_(request.arrivals) {}

  Result<ReplayResult> run() {
    for (const auto node : request_.nodes)
      if (auto placed = come(node); !placed.ok()) return std::move(placed).error();
    newcomers_.clear();
    auto begun = lay_out();
    if (!begun.ok()) return std::move(begun).error();
    stopped_ = !begun.value();
    layout_.settle();
    for (const auto& event : request_.events) {
      if (event.time_ms >= request_.duration_ms) break;
      auto done = advance(event.time_ms);
      if (done.ok()) done = happen(event);
      if (!done.ok()) return std::move(done).error();
    }
    if (auto done = advance(request_.duration_ms); !done.ok()) return std::move(done).error();
    ReplayResult made = clock_.result(job_.global_batch, request_.duration_ms);
    made.events = std::move(events_);
    return made;
  }

 private:
  // --- Time passes. ---

  std::size_t idle() const {
    return stopped_ || waiting_ ? places_.size() : places_.size() - layout_.working();
  }

  NodesNow nodes_now() const { return {places_.size(), clock_.phases().empty() ? idle() : 0}; }

  bool is_few() const { return std::ssize(places_) < job_.nodes_min; }

  /// How long it still trains with too few nodes.
  double patience_ms() const {
    return is_few() ? few_since_ms_ + job_.wait_for_nodes_ms - clock_.now_ms() : kNever;
  }

  Status advance(double until_ms) {
    while (clock_.now_ms() < until_ms) {
      const double left = until_ms - clock_.now_ms();
      if (!clock_.phases().empty()) {
        if (const auto then = clock_.run_phase(left, nodes_now())) phase_ended(*then);
      } else if (stopped_) {
        clock_.stand_still(left, nodes_now());
      } else if (patience_ms() < 1e-9 * until_ms) {
        stop();
      } else if (waiting_) {
        if (auto done = wait(left); !done.ok()) return done;
      } else if (!newcomers_.empty() && !clock_.is_in_iteration() && steps_to_end_ <= 0) {
        if (auto done = welcome(); !done.ok()) return done;
      } else {
        train(std::min(left, patience_ms()));
      }
      clock_.round_up_to(until_ms);
    }
    return Done{};
  }

  void train(double left_ms) {
    double most = newcomers_.empty() ? kNever : 1;
    const auto every = costs_.checkpoint_iterations;
    if (every > 0) most = std::min(most, static_cast<double>(every - (clock_.committed() % every)));
    const auto ended = clock_.train(left_ms, layout_.step_ms(), most, nodes_now());
    if (ended == 0) return;
    layout_.step_ended();
    --steps_to_end_;
    if (every > 0 && clock_.committed() % every == 0) clock_.add(save());
  }

  void phase_ended(ReplayPhase::Then then) {
    if (then == ReplayPhase::Then::saved) clock_.saved();
    if (then == ReplayPhase::Then::ready) layout_.settle();
  }

  double quiet_ms() const { return expected_quiet_ms(node_changes_, clock_.now_ms()); }

  // --- Nodes come and go. ---

  std::set<NodeId> nodes_there() const {
    std::set<NodeId> nodes;
    for (const auto& [id, place] : places_) nodes.insert(place);
    return nodes;
  }

  static NodeId free_place(const std::set<NodeId>& taken) {
    NodeId place{0};
    while (taken.contains(place)) ++place.value;
    return place;
  }

  Status come(std::int64_t id) {
    if (places_.contains(id))
      return refuse("node " + std::to_string(id) + " joins but is already there", "events");
    const std::set<NodeId> taken = nodes_there();
    const NodeId place = free_place(taken);
    if (place.value >= job_.cluster.nodes)
      return refuse(std::to_string(taken.size() + 1) + " nodes at a time are more than the job's " +
                        std::to_string(job_.cluster.nodes) + " places",
                    "events", "raise cluster.nodes, or replay it for other machines (--cluster)");
    places_[id] = place;
    newcomers_.insert(place);
    return Done{};
  }

  Status happen(const NodeEvent& event) {
    for (const auto id : event.lost) {
      const auto found = places_.find(id);
      if (found == places_.end())
        return refuse("node " + std::to_string(id) + " is lost but not there", "events");
      newcomers_.erase(found->second);
      layout_.forget(found->second);
      places_.erase(found);
    }
    if (newcomers_.empty()) steps_to_end_ = steps_before_welcome();
    for (const auto id : event.joined)
      if (auto placed = come(id); !placed.ok()) return placed;
    few_since_ms_ = is_few() ? std::min(few_since_ms_, clock_.now_ms()) : kNever;
    lost_ = !event.lost.empty();
    if (stopped_) return resume();
    return lost_ ? recover() : Done{};
  }

  /// The step under way and the one that is planned already. While state comes nothing is planned
  /// ahead, and nothing is planned before a layout is up.
  int steps_before_welcome() const {
    if (!clock_.phases().empty()) return 0;
    const int ahead = layout_.is_arriving() ? 1 : kStepsAhead;
    return clock_.is_in_iteration() ? ahead : ahead - 1;
  }

  /// Goes on without those that were lost, and with all that are there.
  Status recover() {
    clock_.break_off();
    clock_.drop_phases();
    leave_wait();
    return layout_.is_orphaned() ? restart() : go_on(costs_.loss);
  }

  /// With those that are there, or with one on its way where that loses fewer samples.
  Status go_on(const ChangeCosts& costs) {
    auto next = layout_.without_lost(nodes_there(), quiet_ms());
    if (!next.ok()) return std::move(next).error();
    if (!next.value()) return restart();
    lost_at_ms_ = std::min(lost_at_ms_, clock_.now_ms());
    waiting_ = weigh_wait(*next.value(), clock_.now_ms() + costs.detect_ms);
    if (!waiting_) return take_up(*std::move(next.value()), costs);
    newcomers_.clear();  // All that are there go on with it: only who comes now ends the wait.
    phases_.detect_ms = costs_.loss.detect_ms;
    clock_.add({&TimeShares::detection_ms, costs.detect_ms});
    return Done{};
  }

  /// By what is known once the loss is noticed, `now_ms`. None: the job goes on with `next`.
  std::optional<ReplayedWait> weigh_wait(const NextLayout& next, double now_ms) {
    const auto comer = arrivals_.wait_from(now_ms);
    const std::set<NodeId> nodes = nodes_there();
    const NodeId place = free_place(nodes);
    const double waited_ms = now_ms - (lost_at_ms_ + costs_.loss.detect_ms);
    if (!comer || place.value >= job_.cluster.nodes ||
        waited_ms + comer->ready_ms > job_.wait_for_nodes_ms)
      return std::nullopt;
    const auto outlook = layout_.wait_outlook(next, nodes, place, comer->ready_ms, quiet_ms());
    return outlook && waiting_pays(*outlook) ? comer : std::nullopt;
  }

  /// Until somebody comes. That a wait pays no longer needs no look: one that paid pays until it is
  /// over.
  Status wait(double left_ms) {
    const double rest_ms = waiting_->over_ms - clock_.now_ms();
    if (!newcomers_.empty() || rest_ms <= 0) return end_wait();
    clock_.stand_still(std::min({left_ms, patience_ms(), rest_ms}), nodes_now());
    clock_.round_up_to(waiting_->over_ms);
    return Done{};
  }

  Status end_wait() {
    leave_wait();
    lost_ = true;
    ChangeCosts costs = costs_.loss;
    costs.detect_ms = 0;  // That is behind it.
    return go_on(costs);
  }

  void leave_wait() {
    if (waiting_) phases_.waited_ms += std::max(0.0, clock_.now_ms() - waiting_->begun_ms);
    waiting_.reset();
  }

  /// Before the next step is planned.
  Status welcome() {
    lost_ = false;
    const bool warmed = layout_.warming().has_value();
    NextLayout next;
    const auto answer = layout_.with_newcomers(nodes_there(), quiet_ms(), clock_.now_ms(), next);
    if (!answer.ok()) return answer.error();
    const ReplayPhase turnover{&TimeShares::reconfigure_ms, costs_.turnover_ms,
                               ReplayPhase::Then::ready};
    if (answer.value() == ReplayedLayout::Welcome::warms_up) {
      clock_.add(turnover);
      steps_to_end_ = 1;
      return Done{};
    }
    if (answer.value() == ReplayedLayout::Welcome::of_no_use) {
      if (warmed) clock_.add(turnover);  // Back to the layout without what came.
      newcomers_.clear();
      record(EventOutcome::unaffected);
      return Done{};
    }
    if (const auto& warming = layout_.warming()) {
      phases_.warm_up_ms = clock_.now_ms() - warming->begun_ms;
      phases_.warm_up_steps = warming->steps;
      phases_.warm_up_bytes = warming->bytes;
    }
    return take_up(std::move(next), costs_.join);
  }

  /// Brings up a layout in which all that are there have their part.
  Status take_up(NextLayout next, const ChangeCosts& costs) {
    EventPhases phases = phases_of(costs, layout_.moves_ms(next.moves));
    add_phases(phases, clock_);
    phases.detect_ms = std::max(phases.detect_ms, phases_.detect_ms);
    phases.waited_ms = phases_.waited_ms;
    phases.warm_up_ms = phases_.warm_up_ms;
    phases.warm_up_steps = phases_.warm_up_steps;
    phases.warm_up_bytes = phases_.warm_up_bytes;
    copied_bytes_ = next.moves.sent_bytes;
    newcomers_.clear();
    ++node_changes_;
    if (auto taken = layout_.take_up(std::move(next)); !taken.ok()) return taken;
    if (auto checked = check_length(); !checked.ok()) return checked;
    phases.replay_ms += layout_.step_ms();
    phases_ = phases;
    record(EventOutcome::reconfigured);
    return Done{};
  }

  // --- From nothing, or from a checkpoint. ---

  /// All nodes write or read the state at once, so many copies of it.
  double storage_ms(std::size_t copies) const {
    const double total = static_cast<double>(copies) * layout_.state_bytes();
    const auto nodes = static_cast<double>(std::max<std::size_t>(places_.size(), 1));
    double node_rate = job_.network_bytes_per_ms > 0 ? job_.network_bytes_per_ms : kNever;
    if (costs_.node_storage_bytes_per_ms > 0)
      node_rate = std::min(node_rate, costs_.node_storage_bytes_per_ms);
    return std::max(total / costs_.storage_bytes_per_ms, total / nodes / node_rate);
  }

  ReplayPhase save() const {
    return {&TimeShares::checkpoint_ms, storage_ms(1), ReplayPhase::Then::saved};
  }

  Status check_length() const {
    if (request_.duration_ms / layout_.step_ms() <= kReplayIterationsMax) return Done{};
    return refuse("more than 1e8 iterations of " + std::to_string(layout_.step_ms()) + " ms",
                  "duration_ms", "replay a shorter time");
  }

  /// The layout of those that are there, from nothing. False: there is none.
  Result<bool> lay_out() {
    newcomers_.clear();
    layout_.end();
    if (is_few()) return false;
    auto made = layout_.begin(nodes_there());
    if (made.ok() && made.value())
      if (auto checked = check_length(); !checked.ok()) return std::move(checked).error();
    return made;
  }

  Status restart() {
    clock_.roll_back();
    return resume();
  }

  /// By the last checkpoint, if there are enough nodes.
  Status resume() {
    const bool was_stopped = stopped_;
    // What is being saved while a job stops is saved to its end.
    if (was_stopped && is_few()) {
      newcomers_.clear();
      record(EventOutcome::waiting);
      return Done{};
    }
    auto made = lay_out();
    if (!made.ok()) return std::move(made).error();
    stopped_ = !made.value();
    if (stopped_) {
      record(was_stopped ? EventOutcome::waiting : EventOutcome::stopped);
      return Done{};
    }
    if (!was_stopped) {
      phases_.detect_ms = costs_.loss.detect_ms;
      clock_.add({&TimeShares::detection_ms, costs_.loss.detect_ms});
    }
    clock_.add({&TimeShares::reconfigure_ms, costs_.restart_ms});
    clock_.add({&TimeShares::copy_ms, clock_.has_saved() ? storage_ms(layout_.replicas()) : 0,
                ReplayPhase::Then::ready});
    record(EventOutcome::restarted);
    return Done{};
  }

  /// Too few nodes for too long: saves, and ends.
  void stop() {
    clock_.break_off();
    clock_.add(save());
    leave_wait();
    stopped_ = true;
    lost_ = true;
    layout_.end();
    record(EventOutcome::stopped);
  }

  void record(EventOutcome outcome) {
    EventRecord made;
    clock_.settle(made);
    made.outcome = outcome;
    made.lost = lost_;
    made.nodes = std::ssize(places_);
    made.idle = static_cast<std::int64_t>(idle());
    made.pipelines = layout_.pipelines();
    made.iteration_ms = layout_.step_ms();
    if (outcome != EventOutcome::unaffected)
      for (const auto& phase : clock_.phases()) made.recovery_ms += phase.ms;
    made.recovery_ms += std::max(0.0, clock_.now_ms() - lost_at_ms_);
    lost_at_ms_ = kNever;
    made.copied_bytes = std::exchange(copied_bytes_, 0);
    made.phases = std::exchange(phases_, {});
    events_.push_back(std::move(made));
  }

  const JobReplayRequest& request_;
  const ReplayedJob& job_;
  const RecoveryCosts& costs_;
  ReplayClock clock_;
  ReplayedLayout layout_;
  std::vector<EventRecord> events_;
  std::map<std::int64_t, NodeId> places_;  // Of nodes that are there.
  std::set<NodeId> newcomers_;             // Of them, who waits to be taken in.
  int steps_to_end_ = 0;                   // Before they are.
  bool stopped_ = false;
  ReplayedArrivals arrivals_;
  std::optional<ReplayedWait> waiting_;
  double few_since_ms_ = kNever;
  std::int64_t node_changes_ = 0;
  // Of the event at hand.
  bool lost_ = false;
  double lost_at_ms_ = kNever;  // The first of its losses.
  std::int64_t copied_bytes_ = 0;
  EventPhases phases_;
};

}  // namespace

Result<ReplayResult> replay_job(const JobReplayRequest& request) {
  if (auto checked = check_replay(request.duration_ms, request.events, request.costs);
      !checked.ok())
    return std::move(checked).error();
  return JobReplay(request).run();
}

}  // namespace troupe::scheduler
