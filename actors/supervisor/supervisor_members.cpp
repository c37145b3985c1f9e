#include "actors/supervisor/supervisor_members.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "actors/link/refusal.hpp"
#include "actors/node/peers.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_gather_joins.hpp"
#include "actors/supervisor/supervisor_layout.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_recovery.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_speeds.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "actors/supervisor/supervisor_wait.hpp"
#include "actors/supervisor/supervisor_warm_up.hpp"
#include "runtime/vocabulary/first_line.hpp"
#include "scheduler/layout/layout_request.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = JobPhase;

/// Exit code of a job whose nodes were told to end, and that has nothing to resume from.
constexpr std::int32_t kTold = 1;

/// Launchers tell the processes of a job one after the other.
constexpr auto kToldTogether = std::chrono::milliseconds(500);

caf::error refuse(Self self, const NodeHello& hello, const Error& why) {
  self->state.resources->logger.warning("refused " + hello.host + " (pid " +
                                        std::to_string(hello.pid) + "): " + why.message);
  return refuse_with(why);
}

/// There is no place for it, or not the one that it wants. One that somebody has may be free soon,
/// when its loss is noticed: who starts nodes tries again at exit code 1, and not at 2.
Error no_place(std::int32_t wanted, std::size_t count) {
  if (wanted < 0)
    return {Errc::cancelled,
            "all nodes that are not the head's own have joined already",
            {},
            "raise cluster.nodes where the job is to have more"};
  const std::string fix = "take a free id below " + std::to_string(count) +
                          ", or leave --node out: any free one is given";
  const bool is_there = std::cmp_less(wanted, count);
  return {is_there ? Errc::cancelled : Errc::invalid_argument,
          "node " + std::to_string(wanted) + (is_there ? " has joined already" : " does not exist"),
          "--node", fix};
}

/// A place that a process of the head's own is about to take is for nobody else: that one would be
/// refused, and with it the job.
bool is_for_heads_own(const SupervisorState& state, const NodeHello& hello) {
  const NodeId place{hello.wanted_node};
  return !hello.is_heads_own && state.job.members.has(place) && is_own_place(state, place) &&
         state.job.members[place].phase == Member::Phase::missing;
}

Error kept_for_heads_own(std::int32_t wanted, std::int32_t local, std::size_t count) {
  const bool are_others = std::cmp_less(local, count);
  return {Errc::invalid_argument,
          "node " + std::to_string(wanted) + " is one of those that the head starts itself " +
              "(cluster.local_nodes = " + std::to_string(local) + ")",
          "--node",
          are_others ? "leave --node out, or take a free id from " + std::to_string(local) +
                           " to " + std::to_string(count - 1)
                     : "raise cluster.nodes where the job is to have more, and leave --node out"};
}

/// Whether a node works by the same code on the same data as the head.
Status same_work(const SupervisorState& state, const NodeReady& ready) {
  const std::string who = describe(state.job.members, ready.node);
  // First: another format would read other data.
  if (auto same = engine::same_plugins(state.resources->plugins, ready.plugins, who); !same.ok())
    return same;
  auto same = engine::same_stage_kinds(state.resources->stage_kinds, ready.stage_kinds, who);
  return same.ok() ? engine::same_data(state.resources->data, ready.data, who) : same;
}

/// It is here while the job runs: connects the head to it.
Status take_note_of(Self self, const NodeReady& ready) {
  auto& state = self->state;
  if (auto same = same_work(state, ready); !same.ok()) return same;
  return connect_to(*state.resources->transport, ready);
}

/// What it has said of its machine, where it has.
void tell_of_means(const SupervisorState& state, const NodeReady& ready) {
  if (ready.device_memory == 0) return;
  state.resources->logger.info(describe(state.job.members, ready.node) + " has " +
                               scheduler::byte_text(static_cast<double>(ready.device_memory)) +
                               " for each of its devices, were it alone on its machine");
}

/// It has a place, but not what the job needs: its process says so as it says what is wrong with
/// its own machine. Those of the head share its terminal, where it says so itself; who came in the
/// place of one of them does not.
void send_away(Self self, NodeId node, const Error& why) {
  if (!self->state.links[node.index()].is_heads_own)
    send_to_node(self, node, stop_atom::value, why);
}

/// What was wished for cannot be: newcomers wait for work, and who wants to leave stays, or takes
/// the job with it.
void give_up_change(Self self, const Error& error) {
  auto& state = self->state;
  const auto& newcomers = state.job.members.newcomers();
  if (!newcomers.empty())
    state.resources->logger.warning(who_text({newcomers.begin(), newcomers.end()}) +
                                    " joined and waits for work: " + error.message);
  state.job.members.place_newcomers();
  const auto leavers = state.job.members.keep_leaving();
  const auto told = std::ranges::find_if(leavers, [](const auto& l) { return l.second.by_signal; });
  if (told != leavers.end())
    return begin_stop(self, told->second.why + " at " + describe(state.job.members, told->first),
                      kTold);
  keep_in_job(self, leavers, to_string(error));
}

}  // namespace

bool is_own_place(const SupervisorState& state, NodeId node) {
  return node.value < state.resources->setup.job.cluster.local_nodes;
}

void give_up_own_places(SupervisorState& state, const std::string& what) {
  const Phase phase = state.job.phase();
  bool is_free = false;
  for (std::size_t i = 0; i < state.job.members.size(); ++i) {
    const NodeId place{i};
    const bool is_awaited =
        is_own_place(state, place) && state.job.members[place].phase == Member::Phase::missing;
    if (is_awaited && (phase == Phase::applying || phase == Phase::training)) {
      state.job.members.gone(place);
      is_free = true;
    }
  }
  if (is_free) state.resources->logger.warning(what + "; its place is free");
}

caf::result<NodeWelcome> join(Self self, const NodeHello& hello) {
  if (self->state.gathering || !hello.holding.empty()) return join_gathered(self, hello);
  auto answer = take_in(self, hello, self->current_sender());
  if (auto* welcome = std::get_if<NodeWelcome>(&answer)) return std::move(*welcome);
  return std::get<caf::error>(std::move(answer));
}

std::variant<NodeWelcome, caf::error> take_in(Self self, const NodeHello& hello,
                                              const caf::strong_actor_ptr& sender) {
  auto& state = self->state;
  const std::string& build = state.resources->build;
  if (hello.build != build)
    return refuse(self, hello,
                  {Errc::unavailable,
                   "it is build " + hello.build + " of troupe, the job runs " + build,
                   {},
                   "build the same sources on every machine: one commit, and any local edits of "
                   "it (troupe --version)"});
  if (state.how.again > 0)  // It comes again, and finds the next head.
    return refuse_with({Errc::cancelled, "the job begins again", {}, {}});
  if (state.job.is_over() || state.job.is_stopping())
    return refuse(self, hello,
                  {Errc::cancelled,
                   "the job ends: " + (state.job.is_stopping() ? state.stopping.what
                                                               : first_line(state.how.message)),
                   {},
                   "start the job again, and then its nodes"});
  const std::int32_t local = state.resources->setup.job.cluster.local_nodes;
  if (is_for_heads_own(state, hello))
    return refuse(self, hello,
                  kept_for_heads_own(hello.wanted_node, local, state.job.members.size()));
  const auto id = state.job.members.free_place(hello.wanted_node, local);
  if (!id) return refuse(self, hello, no_place(hello.wanted_node, state.job.members.size()));
  state.job.members.join(*id, hello.host, hello.pid, now(self));
  state.links[id->index()] = {sender, {}, {}};
  state.links[id->index()].is_heads_own = hello.is_heads_own;
  self->monitor(sender);
  return welcome_to(state, *id);
}

void node_ready(Self self, const NodeReady& ready) {
  auto& state = self->state;
  if (state.job.members[ready.node].phase != Member::Phase::joined) return;
  if (state.job.is_over()) return;
  if (state.job.phase() != Phase::joining)
    if (auto noted = take_note_of(self, ready); !noted.ok()) {
      send_away(self, ready.node, noted.error());
      return newcomer_lost(self, ready.node, noted.error().message);
    }
  state.joins.add(milliseconds_between(state.job.members[ready.node].since, now(self)));
  state.job.members.ready(ready.node, state.job.phase() != Phase::joining);
  NodeReady& kept = state.links[ready.node.index()].ready;
  kept = ready;
  kept.data = {};  // Its peers need its address alone.
  kept.plugins = {};
  kept.stage_kinds = {};
  state.resources->logger.info(describe(state.job.members, ready.node) + " joined");
  tell_of_means(state, ready);
  take_speed(state, ready);
  if (state.job.phase() != Phase::joining) return;
  if (auto same = same_work(state, ready); !same.ok()) {
    send_away(self, ready.node, same.error());  // The others hear one line of it.
    return fail(self, same.error());
  }
  engine::learn_sizes(state.resources->data, ready.data);
  if (state.job.members.present().size() == state.job.members.size()) begin_job(self);
}

void newcomer_lost(Self self, NodeId id, const std::string& why) {
  auto& state = self->state;
  state.resources->logger.warning(describe(state.job.members, id) + " did not join: " + why);
  forget_node(self, id, why);
}

void watch_newcomers(Self self) {
  auto& state = self->state;
  if (state.job.phase() == Phase::joining || state.job.phase() == Phase::gathering) return;
  const double timeout_s = state.resources->setup.job.cluster.open_timeout_s;
  for (const NodeId node : state.job.members.late(now(self), seconds(timeout_s))) {
    const std::string why =
        "it has not opened its data and devices within " + seconds_text(timeout_s);
    send_away(self, node,
              {Errc::timed_out, why, "cluster.open_timeout_s",
               "look at the load and the disks of this machine, or raise cluster.open_timeout_s"});
    newcomer_lost(self, node, why + " (cluster.open_timeout_s)");
  }
}

namespace {

/// Why nobody can leave at this moment of the job; none: somebody can.
std::optional<Error> no_time_to_leave(const SupervisorState& state) {
  const auto told = [](const std::string& why, const std::string& fix) {
    return Error{Errc::unavailable, why, "drain", fix};
  };
  if (state.job.is_stopping() || state.job.is_over())
    return told("the job ends", "none needed: its nodes end with it");
  switch (state.job.phase()) {
    case Phase::gathering:
      return told("the head still gathers the nodes of the one before it",
                  "ask again once troupe ctl RUN status says that the job trains");
    case Phase::joining:
      return told(
          "the job has not begun",
          "ask again once it trains, or send SIGTERM to the process of a node that somebody "
          "started: it leaves, and its place is free again");
    case Phase::applying:
    case Phase::training:
      if (!state.job.loop.is_last_planned()) return std::nullopt;
      break;
    case Phase::collecting:
    case Phase::ending:
    case Phase::ended: break;
  }
  return told("the job trains no further step", "none needed: its nodes end with it soon");
}

}  // namespace

std::string too_few_behind_leavers(const SupervisorState& state) {
  const job::Job& job = state.resources->setup.job;
  const std::size_t left = state.job.members.staying().size();
  if (!std::cmp_less(left, job.cluster.min_nodes)) return "";
  return "then " + std::to_string(left) + " of at least " + std::to_string(job.cluster.min_nodes) +
         " nodes (cluster.min_nodes) are left: the job waits " +
         seconds_text(job.recovery.wait_for_nodes_s) +
         " for others (recovery.wait_for_nodes_s), then saves and ends";
}

Status drain(Self self, NodeId id, const std::string& why, bool by_signal) {
  auto& state = self->state;
  if (auto refused = no_time_to_leave(state)) return *std::move(refused);
  if (!state.job.members.is_there(id))
    return Error{Errc::not_found, "there is no node " + std::to_string(id.value) + " in the job",
                 "drain", "troupe ctl RUN status names those there are"};
  if (!state.job.members.takes_part(id)) {
    newcomer_lost(self, id, why);
    return Done{};
  }
  need_templates(state);
  Regrouping trial;
  // It goes once the layout that is coming up has.
  trial.left =
      state.job.phase() == Phase::applying ? state.change.want : state.job.members.placed();
  auto stay = state.job.members.staying();
  stay.erase(id);
  if (auto possible = plan_regrouping(state, stay, trial); !possible.ok()) return possible;
  if (!trial.room.ok() && !by_signal) return trial.room;
  state.job.members.leave(id, Leaving{why, now(self), by_signal});
  send_to_node(self, id, leave_atom::value, why);
  const std::string leaves =
      describe(state.job.members, id) + " leaves before the next step: " + why;
  const std::string few = too_few_behind_leavers(state);
  const std::string doubts = tight_words(trial) + (few.empty() ? "" : "; " + few);
  state.resources->logger.log(doubts.empty() ? observe::LogLevel::info : observe::LogLevel::warning,
                              leaves + doubts);
  return Done{};
}

void node_told_to_end(Self self, NodeId node, const std::string& why) {
  auto& state = self->state;
  if (state.job.members.told_to_end(node, why))
    self->delayed_send(self, kToldTogether, leave_atom::value);
}

namespace {

/// Whether the others hold all that this node does, and could do its work.
bool can_do_without(const SupervisorState& state, NodeId node) {
  Regrouping trial;
  trial.left = state.job.left_without(node);
  auto others = state.job.members.staying();
  others.erase(node);
  return plan_regrouping(state, others, trial).ok();
}

/// No step follows in which another node could do its work: it has the time that one has to leave.
void leave_with_the_job(Self self, NodeId node, const std::string& why) {
  auto& state = self->state;
  send_to_node(self, node, leave_atom::value, why);
  state.resources->logger.info(
      describe(state.job.members, node) + " was " + why +
      "; the job is all but done, and the node leaves with it" +
      (can_do_without(state, node) ? "" : ": until then it cannot be done without"));
}

}  // namespace

void settle_told_nodes(Self self) {
  auto& state = self->state;
  const ToldToEnd told = state.job.members.settle_told();
  const auto stop_all = [&](NodeId node, const std::string& why) {
    if (!state.job.is_stopping())
      begin_stop(self, why + " at " + describe(state.job.members, node), kTold);
  };
  const bool is_joining = state.job.phase() == Phase::joining;
  for (const auto& [node, why] : told.nodes) {
    // Where few have come, one may be most of them.
    if (told.is_for_all && !(is_joining && told.nodes.size() == 1)) return stop_all(node, why);
    if (is_joining) {
      state.resources->logger.warning(describe(state.job.members, node) + " was " + why +
                                      " before the job began; its place is free");
      forget_node(self, node, "");
      continue;
    }
    if (state.job.loop.is_last_planned() || state.job.phase() == Phase::collecting) {
      leave_with_the_job(self, node, why);
      continue;
    }
    if (!drain(self, node, why, true).ok()) return stop_all(node, why);
  }
}

bool change_members(Self self) {
  auto& state = self->state;
  Regrouping regrouping;
  regrouping.left = state.job.members.placed();
  regrouping.noticed = now(self);
  for (const auto& [node, leave] : state.job.members.leaving()) {
    regrouping.drained.push_back(node);
    regrouping.reasons[node] = "node " + std::to_string(node.value) + " leaves: " + leave.why;
  }
  add_newcomers(state, regrouping);
  auto decided = plan_regrouping(state, state.job.members.staying(), regrouping);
  // A process that ends in any case waits for no room: as behind a loss.
  if (decided.ok() && !state.job.members.takes_state_away()) decided = regrouping.room;
  if (!decided.ok()) {
    give_up_change(self, decided.error());
    return give_up_warm_up(self);
  }
  if (regrouping.plan == trained_layout(state) && regrouping.drained.empty()) {
    give_up_change(self, {Errc::infeasible,
                          "no layout needs it now; it steps in for one that is "
                          "lost",
                          {},
                          {}});
    return give_up_warm_up(self);
  }
  if (warm_up(self, regrouping)) return true;
  regrouping.warmed = state.warming;
  if (regrouping.warmed) regrouping.warmed->ended = regrouping.noticed;
  state.regrouping = std::move(regrouping);
  state.job.regroup();
  regroup(self);
  return true;
}

}  // namespace troupe::actors
