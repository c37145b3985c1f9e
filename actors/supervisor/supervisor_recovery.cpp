#include "actors/supervisor/supervisor_recovery.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/supervisor/saved_parts.hpp"
#include "actors/supervisor/supervisor_collect.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_last_save.hpp"
#include "actors/supervisor/supervisor_processes.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "actors/supervisor/supervisor_steps.hpp"
#include "actors/supervisor/supervisor_wait.hpp"
#include "actors/supervisor/supervisor_wait_choice.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = JobPhase;

std::set<NodeId> without(std::set<NodeId> nodes, NodeId lost) {
  nodes.erase(lost);
  return nodes;
}

/// What a change that begins with this loss is for beside it: where none is under way, nodes that
/// were lost while the model was collected, of which no event tells yet.
Regrouping begun_before(const SupervisorState& state, NodeId lost) {
  const bool is_untold = !state.regrouping.lost.empty();
  Regrouping regrouping;
  if (state.job.is_regrouping() || is_untold) regrouping = state.regrouping;
  regrouping.left = state.job.left_without(lost);
  return regrouping;
}

/// Exit code where what is left cannot be saved after all.
constexpr std::int32_t kCannotGoOn = 1;

}  // namespace

void add_loss(const SupervisorState& state, Regrouping& regrouping, NodeId lost,
              const std::string& what, Time noticed) {
  if (regrouping.lost.empty() && !regrouping.is_takeover) {
    const Time first = state.job.members.suspected_since(lost).value_or(noticed);
    regrouping.noticed = noticed;
    regrouping.detect_ms = milliseconds_between(first, noticed);
  }
  regrouping.left = state.job.left_without(lost);
  if (std::ranges::find(regrouping.lost, lost) != regrouping.lost.end())
    return;  // While the model was collected, which did not come whole.
  regrouping.lost.push_back(lost);
  regrouping.why_lost += (regrouping.why_lost.empty() ? "" : "; ") + what;
  std::erase(regrouping.joined, lost);
  std::erase(regrouping.drained, lost);
}

std::string tight_words(const Regrouping& regrouping) {
  return regrouping.room.ok() ? ""
                              : "; memory may not do while its next layout comes up: " +
                                    regrouping.room.error().message;
}

void add_newcomers(const SupervisorState& state, Regrouping& regrouping) {
  for (const NodeId node : state.job.members.newcomers()) {
    if (state.job.members.leaving().contains(node)) continue;  // That it goes is all to tell.
    if (std::find(regrouping.joined.begin(), regrouping.joined.end(), node) ==
        regrouping.joined.end())
      regrouping.joined.push_back(node);
    regrouping.reasons[node] = describe(state.job.members, node) + " joined";
  }
}

Status recover(Self self, NodeId lost, const std::string& what, bool is_taken) {
  auto& state = self->state;
  if (!state.job.bears_losses()) return Error{Errc::unavailable, "the job has not begun", {}, {}};
  const Time noticed = now(self);
  Regrouping regrouping = begun_before(state, lost);
  const auto others = [&](const std::set<NodeId>& nodes) {
    return is_taken ? nodes : without(nodes, lost);
  };
  need_templates(state);
  auto decided = plan_regrouping(state, others(state.job.members.staying()), regrouping);
  if (!decided.ok() &&
      !state.job.members.leaving().empty()) {  // Who wanted to leave is needed now.
    decided = plan_regrouping(state, others(state.job.members.present()), regrouping);
    if (decided.ok()) {
      // Who was told to end by a signal leaves before the next step, or the job saves and stops.
      keep_in_job(self, state.job.members.keep_asked(), "no layout works without it: " + what);
      regrouping.drained.clear();
    }
  }
  if (!decided.ok()) return decided;
  add_newcomers(state, regrouping);
  add_loss(state, regrouping, lost, what, noticed);
  WaitVerdict verdict = weigh_wait(state, regrouping, others(state.job.members.staying()), noticed);
  const bool waits = verdict.wait.has_value();
  state.resources->logger.warning(
      what +
      (waits ? "; the job waits before it goes on without it" : "; the job goes on without it") +
      tight_words(regrouping) + verdict.words);
  const Move move = state.job.lose(lost, is_taken);
  if (!is_taken) let_go_of_node(self, lost, what);
  state.regrouping = std::move(regrouping);
  state.lost_while_collected.clear();  // The next layout does without them, too.
  settle_wait(self, std::move(verdict.wait), move);
  give_up_save(self, what);
  // Who is left finishes a step whose COMMIT is known; the last one to do so makes it go on.
  if (move == Move::finish)
    finish_ended_steps(self);
  else if (!waits)
    regroup(self);
  return Done{};
}

std::string unsaved_without(const SupervisorState& state, NodeId lost) {
  return is_whole(state.job.left_without(lost)) ? "" : "what is left is no whole model";
}

void lose_while_stopping(Self self, NodeId lost, const std::string& what, bool is_taken) {
  auto& state = self->state;
  add_loss(state, state.regrouping, lost, what, now(self));
  auto left = state.regrouping.left;
  const WorthSaving worth = worth_saving(state, left);
  state.stopping.unsaved = unsaved_without(state, lost);
  add_orphans(state.job.held(), left, state.stopping.orphans);
  if (!is_taken) forget_node(self, lost, what);
  if (worth == WorthSaving::nothing) return end_stopped(self);
  state.resources->logger.warning(what + (worth == WorthSaving::whole
                                              ? "; the others save what they have"
                                              : "; the others save what they have though " +
                                                    check_holders(state, left).error().message));
  state.job.halt();  // One that comes up may want a place for the lost one.
  state.job.members.place(std::move(left));
  tell_of_losses(self);
  state.stopping.failed_step = 0;
  if (is_awaited_by_save(state, lost)) give_up_save(self, what);
  finish_ended_steps(self);  // Who is left may have been waiting for it alone.
  if (!state.saves.running) go_on_stopping(self);
}

bool end_with_what_is_left(Self self, NodeId lost, const std::string& what, const std::string& why,
                           bool is_taken) {
  const auto& state = self->state;
  const WorthSaving worth = worth_saving(state, state.job.left_without(lost));
  if (state.job.loop.progress().step == 0 || worth == WorthSaving::nothing) return false;
  const bool begins_again =
      worth == WorthSaving::whole && state.saves.last_step > 0 && is_own_process(state, lost);
  decide_stop(self, what, kCannotGoOn);
  self->state.stopping.what += why;
  self->state.stopping.begins_again = begins_again;
  lose_while_stopping(self, lost, what, is_taken);
  return true;
}

std::optional<std::string> go_on_without(Self self, NodeId lost, const std::string& what,
                                         bool is_taken) {
  const auto goes_on = recover(self, lost, what, is_taken);
  if (goes_on.ok()) return std::nullopt;
  if (goes_on.error().code == Errc::unavailable) return std::string();
  if (wait_for_nodes(self, lost, what, goes_on.error(), is_taken)) return std::nullopt;
  const std::string hindrance = "; it cannot be done without: " + goes_on.error().message;
  if (end_with_what_is_left(self, lost, what, hindrance, is_taken)) return std::nullopt;
  add_loss(self->state, self->state.regrouping, lost, what, now(self));
  const bool is_saved = self->state.saves.last_step > 0;
  return hindrance + (is_saved ? "" : "; there is no checkpoint to resume from");
}

void do_without_holder(Self self, NodeId lost, const std::string& what) {
  auto& state = self->state;
  add_loss(state, state.regrouping, lost, what, now(self));
  auto left = state.regrouping.left;
  if (is_whole(left)) state.job.members.place(std::move(left));
  std::erase_if(state.devices, [lost](const DeviceSlot& device) { return device.node == lost; });
  // The transport sees itself that a process has ended, behind all that it had sent. Of one that is
  // stopped, or cut off, the recorder would wait for what does not come.
  if (state.job.members[lost].is_silent) let_go_of_node(self, lost, what);
  if (is_awaited_by_save(state, lost)) give_up_save(self, what);
}

void peer_missed(Self self, NodeId reporter, NodeId peer, EpochNumber epoch_number,
                 const std::string& how, NoWay why) {
  auto& state = self->state;
  if (epoch_number != state.job.members.generation()) return;
  const auto is_head = [&](NodeId node) { return node.index() == state.job.members.size(); };
  if (is_head(reporter) || is_head(peer))
    return head_missed(self, is_head(peer) ? reporter : peer,
                       "it does not reach the head for tensors: " + how, why,
                       /*was_there=*/is_head(peer));
  if (!state.job.members.miss(reporter, peer, why)) return;
  // Either may be the lost one.
  for (const NodeId node : {reporter, peer}) state.job.members.suspect(node, now(self));
  expect_reason(self, {Errc::transport_failed,
                       "node " + std::to_string(reporter.value) + " lost its connection to node " +
                           std::to_string(peer.value) + " (" + how + ")",
                       {},
                       {}});
}

namespace {

/// The words of a transport, which knows peers by their numbers alone, with host and process.
std::string with_hosts(const SupervisorState& state, const std::string& text) {
  constexpr std::string_view kPeer = "peer ";
  const auto begin = text.find(kPeer);
  if (begin == std::string::npos) return text;
  std::size_t id = 0;
  const char* const number = text.data() + begin + kPeer.size();
  const auto [end, fault] = std::from_chars(number, text.data() + text.size(), id);
  const std::size_t head = state.job.members.size();
  if (fault != std::errc{} || id > head) return text;
  return text.substr(0, begin) +
         (id == head ? "the head" : describe(state.job.members, NodeId{id})) + end;
}

/// What was said of a way between two nodes: in brackets behind both (`peer_missed`). Empty: these
/// are words of something else.
std::string said_of_way(const std::string& text) {
  const auto begin = text.find(" (");
  if (begin == std::string::npos || !text.starts_with("node ") || !text.ends_with(')')) return "";
  return text.substr(begin + 2, text.size() - begin - 3);
}

/// The end of a job whose nodes all answer, though some do not reach each other. `hindrance`: why
/// none of them could be done without; empty where that could not be tried.
Error broken_way(const SupervisorState& state, const Error& error, const std::string& hindrance) {
  Error told = error;
  told.message = with_hosts(state, error.message);
  if (!state.job.members.missed().empty()) {
    const auto& [peer, reporters] = *state.job.members.missed().begin();
    const NodeId reporter = *reporters.begin();
    told.where.clear();
    told.message = describe(state.job.members, reporter) + " lost its connection to " +
                   describe(state.job.members, peer) + ", and both answer the head";
  }
  if (!hindrance.empty()) told.message += "; going on without one of them was tried: " + hindrance;
  if (const std::string said = said_of_way(error.message); !said.empty())
    told.message += "; what is known of the way: " + with_hosts(state, said);
  if (told.fix.empty())
    told.fix =
        "look at the network between these machines, and name the interface for tensors "
        "(cluster.data_interface), then start the job again";
  return told;
}

/// Does without nodes that have no way to the head, where others have one. Returns whether the job
/// goes on without one of them. `hindrance`: why not without another.
bool lose_cut_off(Self self, std::string& hindrance) {
  auto& state = self->state;
  if (state.job.members.is_head_cut_off()) return false;
  const auto cut_off = state.job.members.cut_off();  // Who is lost is taken out of it.
  bool goes_on = false;
  for (const auto& [node, how] : cut_off) {
    const auto lost = recover(self, node, describe(state.job.members, node) + " was lost: " + how);
    if (lost.ok()) {
      state.job.members.fell_silent(node);  // Its process answers, and was told to end.
      goes_on = true;
    } else if (lost.error().code != Errc::unavailable) {
      hindrance = lost.error().message;
    }
  }
  return goes_on;
}

/// Whether a way from it to the head is waited for: a layout comes up and it has not connected all,
/// or the model is collected.
bool needs_way_to_head(const SupervisorState& state, NodeId node) {
  if (state.job.phase() == Phase::collecting) return true;
  return state.job.phase() == Phase::applying && state.job.members.has(node) &&
         state.job.members[node].phase == Member::Phase::ready;
}

/// REQUIRES: it is cut off.
Error no_way_to_head(const SupervisorState& state, NodeId node) {
  return {Errc::transport_failed,
          "there is no way for tensors between the head and " + describe(state.job.members, node) +
              ": " + state.job.members.cut_off().at(node),
          {},
          {}};
}

}  // namespace

void head_missed(Self self, NodeId node, const std::string& how, NoWay why, bool was_there) {
  auto& state = self->state;
  if (was_there && !needs_way_to_head(state, node)) {
    if (why == NoWay::broken && state.job.members.lose_way_to_head(node, with_hosts(state, how)))
      state.resources->logger.warning(
          describe(state.job.members, node) +
          " has lost its way to the head: " + with_hosts(state, how) +
          "; it trains on, because no tensor goes that way before the model is collected");
    return;
  }
  if (!state.job.members.miss_head(node, with_hosts(state, how), why)) return;
  state.job.members.suspect(node, now(self));
  expect_reason(self, no_way_to_head(state, node));
}

bool lose_broken_ways(Self self) {
  auto& members = self->state.job.members;
  members.need_ways_to_head();
  if (members.cut_off().empty()) return false;
  const Error error = no_way_to_head(self->state, members.cut_off().begin()->first);
  std::string hindrance;
  if (!lose_cut_off(self, hindrance))
    save_and_fail(self, broken_way(self->state, error, hindrance));
  return true;
}

void settle_missed_peers(Self self, EpochNumber epoch_number, const Error& error) {
  auto& state = self->state;
  if (epoch_number != state.job.members.generation()) return;
  // While a decided step is finished a loss is dealt with already.
  if (state.job.is_regrouping() && state.job.phase() != Phase::applying) return;
  // To save what there is needs no way between nodes, and a stop has an end of its own.
  if (state.job.is_over() || state.job.is_stopping()) return;
  const bool is_incomplete = state.uncollected == state.job.members.generation();
  if (is_incomplete && !state.lost_while_collected.empty()) return collect_without_lost(self);
  if (state.job.members.is_miss_explained()) return;  // They are lost, and known to be.
  // The model may have come whole: the recorder says so, or what it lacks (`head_failed`).
  const bool may_have_come =
      is_with_recorder(state) && !is_incomplete && state.job.members.missed().empty();
  if (may_have_come && !state.job.members.cut_off().empty()) return;
  std::string hindrance;
  if (lose_cut_off(self, hindrance)) return;
  const auto tolerance = state.resources->setup.job.cluster.fault_tolerance;
  // Of two that miss each other, either may be at fault: the one goes that is easier done without.
  for (const auto& [peer, others] : state.job.members.suspects(state.job.held(), tolerance)) {
    std::string names;
    for (const NodeId other : others)
      names += (names.empty() ? "" : ", ") + std::to_string(other.value);
    const std::string what = describe(state.job.members, peer) +
                             " was lost: it answers, but its connections to nodes " + names +
                             " broke: " + error.message;
    const auto goes_on = recover(self, peer, what);
    if (goes_on.ok())
      return state.job.members.fell_silent(peer);  // Its process may still be there.
    if (goes_on.error().code != Errc::unavailable) hindrance = goes_on.error().message;
  }
  save_and_fail(self, broken_way(state, error, hindrance));
}

}  // namespace troupe::actors
