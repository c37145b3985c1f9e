#include "actors/node/node_head.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <thread>
#include <utility>

#include "actors/link/refusal.hpp"

namespace troupe::actors {

namespace {

using Self = NodeSelf;

/// A head that gathers answers at once; one that hangs is as good as lost.
constexpr std::chrono::seconds kAnswerTimeout{60};

/// Times `cluster.heartbeat_timeout_s` that the head's own nodes wait for one that is only silent.
constexpr double kAsleep = 20;

constexpr std::chrono::milliseconds kSearchInterval{300};

constexpr std::chrono::seconds kTurn{6};

/// A head that was found hears so often that this node is to come.
constexpr std::chrono::seconds kSayInterval{1};

/// And while it answers that it waits, this node gives it so much longer.
constexpr std::chrono::seconds kWaitedFor{5};

/// A node that is told to end gives another head this long: machines that are taken away stay for
/// 30 s and more.
constexpr std::chrono::seconds kLastChance{5};

/// For a head that only saves: to start, to gather the nodes, and to find that another has begun.
constexpr std::chrono::seconds kSaveTime{30};

/// Whether all state of a first layout has come from others. Who gave it may have heard that all
/// turn over, and has dropped it.
bool has_fetched(const NodeState& state) {
  const auto& moves = state.configuration.moves;
  return !state.executors.empty() && state.fetched.size() == state.executors.size() &&
         std::any_of(moves.begin(), moves.end(), [&](const StateMove& move) {
           return !move.is_from_seed() && move.to.node == state.resources->node;
         });
}

bool has_state(const NodeState& state) {
  return state.is_open && (state.resources->epoch_number > 0 || has_fetched(state));
}

/// Whether the head's process started this node, as the next one's starts one of its own. Its place
/// says nothing: somebody may have come there behind one that was lost.
bool is_local(const NodeState& state) { return state.start.hello.is_heads_own; }

/// Whether there is anything to wait for: a head that takes up what this node has; without state,
/// one that is only silent, or lets this node join anew.
bool may_wait(const NodeState& state, bool is_gone) {
  return state.is_open && state.start.find_head &&
         state.resources->setup.job.cluster.head_timeout_s > 0 &&
         (has_state(state) || !is_gone || !is_local(state));
}

/// Whether the head may go on by itself, as one that was stopped (Ctrl-Z): on one machine the
/// connection ends with its process. Over a network one that stands tells nothing of a cut cable;
/// but a node that still opens its data keeps nobody waiting, and a head that begins without it is
/// busy just then.
bool may_wake(const NodeState& state, bool is_gone) {
  return !is_gone && (state.start.hello.is_heads_own || !state.is_open);
}

/// Whether no step that was decided is still being finished.
bool is_at_rest(const NodeState& state) {
  return state.verdicts.empty() || state.verdicts.back().note.step <= state.progress.step;
}

/// One of all that wait speaks for those on its machine.
bool is_first(const NodeState& state) {
  const auto& nodes = state.configuration.nodes;
  return std::all_of(nodes.begin(), nodes.end(),
                     [&](const NodeReady& node) { return node.node >= state.welcome->node; });
}

/// Nodes end their waiting one after the other, so that one of them starts a head that saves and
/// the others find it.
Duration turn_of(const NodeState& state) {
  const auto& nodes = state.configuration.nodes;
  const auto before = std::count_if(nodes.begin(), nodes.end(), [&](const NodeReady& node) {
    return node.node < state.welcome->node;
  });
  return std::min<Duration>(before * kTurn, kSaveTime);
}

/// Whether a head that only saves can be started here.
bool may_save(const NodeState& state) { return state.start.save_as_head && has_state(state); }

/// Whether a signal asked the process to end.
bool is_told(const NodeState& state) {
  return !state.leaves.empty() && state.leaves.front().by_signal;
}

/// Its process is to end: it has the time that one has to leave, and saves before that.
void wait_less(Self self) {
  auto& state = self->state;
  if (state.start.on_drain) state.start.on_drain();
  if (state.lost_head->saves) return;
  Time& until = state.lost_head->until;
  until = std::min(until, self->clock().now() + kLastChance + turn_of(state) / 2);
}

/// Looks for a head on a thread of its own, until one is found or the search is called off. After a
/// pause: the one that was found just now may be of no use.
void search(Self self) {
  auto& lost = *self->state.lost_head;
  self->spawn<caf::detached>(
      [find = self->state.start.find_head, called_off = lost.called_off,
       node = caf::actor_cast<NodeActor>(self)](caf::event_based_actor* seeker) {
        while (!*called_off) {
          std::this_thread::sleep_for(kSearchInterval);
          if (const auto found = find()) return seeker->send(node, join_atom::value, found);
        }
      });
}

/// Ends the search for a head. Returns whether that one is still to hear of a signal.
bool call_off(NodeState& state) {
  if (!state.lost_head) return false;
  const bool is_untold = state.lost_head->is_untold;
  *state.lost_head->called_off = true;
  state.lost_head.reset();
  return is_untold;
}

NodeHolding holding_of(const NodeState& state) {
  const NodeResources& resources = *state.resources;
  NodeHolding holding;
  holding.ready = state.ready;
  holding.epoch_number = resources.epoch_number;
  holding.newest_epoch = state.configuration.epoch_number;
  if (holding.newest_epoch > holding.epoch_number && state.fetched.size() == state.executors.size())
    holding.fetched_epoch = holding.newest_epoch;
  holding.save_number = resources.save_number;
  holding.plan = state.plan;
  holding.arriving = state.arriving;
  for (const auto& [device, executor] : state.executors) holding.devices.push_back(device);
  holding.progress = state.progress;
  holding.verdicts.assign(state.verdicts.begin(), state.verdicts.end());
  holding.leaves = state.leaves;
  return holding;
}

void taken_over(Self self, const caf::strong_actor_ptr& found, const NodeWelcome& welcome) {
  auto& state = self->state;
  if (state.lost_head && welcome.incarnation < state.welcome->incarnation) {
    state.lost_head->asked = nullptr;  // One that was replaced, and wakes: it orders nothing here.
    return search(self);
  }
  const bool is_untold = call_off(state);
  state.supervisor = caf::actor_cast<SupervisorActor>(found);
  state.welcome->incarnation = welcome.incarnation;
  state.welcome->heartbeat_interval_s = welcome.heartbeat_interval_s;
  state.welcome->heartbeat_timeout_s = welcome.heartbeat_timeout_s;
  state.welcome->read_timeout_s = welcome.read_timeout_s;
  state.welcome->stall_timeout_s = welcome.stall_timeout_s;
  state.silence = {};
  if (state.start.on_head) state.start.on_head(state.supervisor, state.welcome->node);
  if (is_untold) ask_to_leave(self);
}

/// A head that has gone on without this node lets it join anew, and one that refuses with what is
/// to be done has no place for it. One of another job, or one that does not answer, is not the one
/// that is looked for.
void not_taken(Self self, const caf::strong_actor_ptr& asked, const caf::error& error) {
  auto& state = self->state;
  if (!state.lost_head || state.lost_head->asked != asked) return;
  if (auto why = sent_anew_in(error))
    return end_node(self, {kResumable, *std::move(why), true, {}, 1});
  if (auto why = refusal_in(error); why && !why->fix.empty()) {
    why->message = "node " + std::to_string(state.welcome->node.value) + " ends: " + why->message;
    return end_node(self, {exit_code(*why), to_string(*why)});
  }
  state.lost_head->asked = nullptr;
  search(self);
}

NodeHello hello_of(const NodeState& state) {
  NodeHello hello = state.start.hello;
  hello.wanted_node = state.welcome->node.value;
  hello.holding = {holding_of(state)};
  hello.run_id = state.welcome->run_id;
  hello.incarnation = state.welcome->incarnation;
  return hello;
}

/// A head that was found would go on without nodes of which it hears nothing. It takes none whose
/// holding shows that a decided step is still being finished.
void say_it_comes(Self self) {
  LostHead& lost = *self->state.lost_head;
  if (!lost.says.due(self->clock().now(), kSayInterval)) return;
  self->request(caf::actor_cast<SupervisorActor>(lost.found), kAnswerTimeout, join_atom::value,
                hello_of(self->state))
      .then([](const NodeWelcome&) {},
            [self](const caf::error& error) {
              auto& state = self->state;
              if (!state.lost_head || !refusal_in(error)) return;
              state.lost_head->until =
                  std::max(state.lost_head->until, self->clock().now() + kWaitedFor);
            });
}

/// Shows a head that was found what this node holds, once that does not change any more.
void ask(Self self) {
  auto& state = self->state;
  if (!state.lost_head || !state.lost_head->found || state.lost_head->asked) return;
  if (!is_at_rest(state)) return say_it_comes(self);  // `step_finished` asks again.
  const auto found = std::exchange(state.lost_head->found, nullptr);
  state.lost_head->asked = found;
  state.lost_head->is_untold = false;
  self->request(caf::actor_cast<SupervisorActor>(found), kAnswerTimeout, join_atom::value,
                hello_of(state))
      .then([self, found](const NodeWelcome& welcome) { taken_over(self, found, welcome); },
            [self, found](const caf::error& error) { not_taken(self, found, error); });
}

}  // namespace

void ask_to_leave(Self self) {
  const auto& state = self->state;
  self->send(state.supervisor, failed_atom::value, state.welcome->node,
             Error{Errc::cancelled,
                   state.leaves.front().why,
                   {},
                   "start the job again; it needs every node"});
}

void note_verdict(NodeState& state, const engine::StepVerdict& verdict) {
  if (!state.verdicts.empty() && state.verdicts.back().note.step >= verdict.note.step) return;
  state.arriving.clear();
  state.copies.end();
  state.verdicts.push_back(verdict);
  if (state.verdicts.size() > kVerdictsKept) state.verdicts.pop_front();
}

void note_leave(NodeState& state, const std::string& why) {
  // A signal ends this process whatever the head makes of it.
  if (is_told(state)) {
    if (!why.empty() && state.start.on_drain) state.start.on_drain();
    return;
  }
  state.leaves.clear();
  if (!why.empty()) state.leaves.push_back({why, false});
}

void step_finished(Self self, std::int64_t step) {
  auto& state = self->state;
  const auto found =
      std::find_if(state.verdicts.begin(), state.verdicts.end(),
                   [step](const auto& verdict) { return verdict.note.step == step; });
  if (found == state.verdicts.end()) return;
  engine::apply_note(state.progress, found->note);
  ask(self);
}

void connection_ended(Self self, const caf::actor_addr& source) {
  auto& state = self->state;
  const std::string why = "the connection to the supervisor was lost";
  if (!state.welcome) return end_node(self, {1, why});
  if (source == state.supervisor.address()) head_lost(self, why, true);
  // One that dies may be found once more before it has gone, and then answers nothing.
  if (!state.lost_head) return;
  LostHead& lost = *state.lost_head;
  const auto& other = lost.asked ? lost.asked : lost.found;
  if (!other || caf::actor_cast<caf::actor_addr>(other) != source) return;
  lost.asked = lost.found = nullptr;
  search(self);
}

namespace {

/// The job wants no other head, or what it wants is not known before the data are open.
void let_it_wake(Self self, const std::string& why) {
  auto& state = self->state;
  const double patience_s = kAsleep * state.welcome->heartbeat_timeout_s;
  state.lost_head.emplace();
  state.lost_head->until = self->clock().now() + seconds(patience_s);
  state.lost_head->why = why;
  state.lost_head->is_asleep = true;
  if (state.start.tell_of_loss)
    state.start.tell_of_loss(
        why + "; its nodes wait " + seconds_text(patience_s) + " for it to go on",
        has_state(state) && is_first(state));
}

}  // namespace

void head_lost(Self self, const std::string& why, bool is_gone) {
  auto& state = self->state;
  const bool waits = may_wait(state, is_gone);
  if (!waits && !may_wake(state, is_gone))
    return end_node(self,
                    {1, "node " + std::to_string(state.welcome->node.value) + " ends: " + why});
  // Its data may be open by now: then there is the next head to wait for.
  if (state.lost_head && !(waits && state.lost_head->is_asleep)) {
    state.lost_head->is_gone |= is_gone;
    return;
  }
  if (!waits) return let_it_wake(self, why);
  const double timeout_s = state.resources->setup.job.cluster.head_timeout_s;
  state.lost_head.emplace();
  state.lost_head->until = self->clock().now() + seconds(timeout_s) + turn_of(state);
  state.lost_head->why = why;
  state.lost_head->is_gone = is_gone;
  if (is_told(state) && may_save(state)) wait_less(self);
  const std::string what =
      has_state(state) ? "its nodes keep the state of step " + std::to_string(state.progress.step) +
                             " for " + seconds_text(timeout_s) + ": troupe train --resume " +
                             state.welcome->run_folder + " goes on"
                       : "this node, which has no state yet, waits " + seconds_text(timeout_s) +
                             " for it or for the next one";
  if (state.start.tell_of_loss)
    state.start.tell_of_loss(why + "; " + what, has_state(state) && is_first(state));
  search(self);
}

void head_is_back(Self self) {
  auto& state = self->state;
  if (!state.lost_head || state.lost_head->asked) return;
  if (call_off(state)) ask_to_leave(self);
}

void head_found(Self self, const caf::strong_actor_ptr& found) {
  auto& state = self->state;
  if (!state.lost_head || !found) return;
  const auto own = caf::actor_cast<caf::strong_actor_ptr>(state.supervisor);
  // The one that is only silent goes on by itself, or is replaced.
  if (found == own && (!state.lost_head->is_gone || !has_state(state))) return search(self);
  if (!has_state(state)) return end_node(self, {kResumable, state.lost_head->why, true, {}, 1});
  state.lost_head->found = found;
  self->monitor(found);  // An answer that was under way when it died does not come.
  ask(self);
}

bool stays_to_save(Self self, std::int32_t signal, const std::string& why) {
  auto& state = self->state;
  LostHead& lost = *state.lost_head;
  if (signal != SIGTERM || lost.is_asleep || !may_save(state) || is_told(state)) return false;
  state.leaves = {{why, true}};
  lost.is_untold = true;
  wait_less(self);
  if (state.start.tell_of_loss && !lost.saves)
    state.start.tell_of_loss(why + "; unless another head comes within " +
                                 seconds_text(kLastChance.count()) +
                                 ", all that nodes hold is saved",
                             is_first(state));
  return true;
}

void watch_for_head(Self self) {
  auto& state = self->state;
  ask(self);
  if (!state.lost_head || self->clock().now() <= state.lost_head->until) return;
  const std::string text =
      "node " + std::to_string(state.welcome->node.value) + " ends: " + state.lost_head->why;
  if (state.lost_head->is_asleep)
    return end_node(self, {1, text + ", and it did not go on within " +
                                  seconds_text(kAsleep * state.welcome->heartbeat_timeout_s)});
  if (!state.lost_head->saves && may_save(state)) {
    state.lost_head->saves = true;
    state.lost_head->until += kSaveTime;
    state.start.save_as_head();
    return;
  }
  const double timeout_s = state.resources->setup.job.cluster.head_timeout_s;
  end_node(self, {1, text + ", and no other head came within " + seconds_text(timeout_s) +
                         " (cluster.head_timeout_s)"});
}

bool counts(Self self) {
  const auto& sender = self->current_sender();
  if (!sender || sender->node() == self->node()) return true;
  const auto& state = self->state;
  if (state.lost_head && state.lost_head->asked) return false;
  return sender->node() == state.supervisor.node();
}

}  // namespace troupe::actors
