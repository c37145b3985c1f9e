#include "actors/supervisor/supervisor_wait.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "actors/supervisor/supervisor_processes.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_recovery.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "actors/supervisor/supervisor_steps.hpp"
#include "actors/supervisor/supervisor_wait_choice.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;

/// Exit code of a job with too few nodes that has nothing to resume from.
constexpr std::int32_t kTooFew = 1;

/// What there is and what would be enough: the layout before is known to work.
std::string too_few_text(const SupervisorState& state, const Error& why) {
  const std::size_t left = state.job.members.present().size();
  const std::size_t enough = state.configuration.plan.nodes().size();
  return "no layout works on the " + std::to_string(left) +
         (left == 1 ? " node that is" : " nodes that are") +
         " left, though all state is there: " + why.message +
         (why.fix.empty() ? "" : " (" + why.fix + ")") +
         (left < enough ? "; " + std::to_string(enough) + ", as before, are enough" : "");
}

std::string wait_text(const SupervisorState& state) {
  return seconds_text(state.resources->setup.job.recovery.wait_for_nodes_s) +
         " (recovery.wait_for_nodes_s)";
}

/// Takes up a layout of those that are there. Returns false where there is none.
bool try_again(Self self) {
  auto& state = self->state;
  Regrouping regrouping = state.regrouping;
  regrouping.left = state.job.members.placed();
  const Status decided = plan_regrouping(state, state.job.members.staying(), regrouping);
  state.waiting->tried_with = state.templates;
  state.job.members.place_newcomers();
  if (!decided.ok()) {
    state.waiting->why = too_few_text(state, decided.error());
    state.resources->logger.warning(state.waiting->why);
    return false;
  }
  state.resources->logger.info("the job goes on with the nodes that are there now");
  state.regrouping = std::move(regrouping);
  regroup(self);
  return true;
}

/// From now on no layout works without others. REQUIRES: the job waits.
void need_others(Self self, const std::string& what, const Error& why) {
  auto& state = self->state;
  state.waiting->what = what;
  state.waiting->why = too_few_text(state, why);
  state.waiting->tried_with = state.templates;
  state.resources->logger.warning(what + "; " + state.waiting->why + "; the job waits " +
                                  wait_text(state) + " for others, then saves and ends");
  state.saves.wanted = true;  // Who holds the state may be lost, too.
}

/// A wait that was chosen is over, `why`: goes on with those that are there, or waits for another
/// one where that loses fewer samples.
void end_chosen_wait(Self self, const std::string& why) {
  auto& state = self->state;
  Regrouping regrouping = state.regrouping;
  regrouping.left = state.job.members.placed();
  add_newcomers(state, regrouping);
  const std::set<NodeId> nodes = state.job.members.staying();
  const Status decided = plan_regrouping(state, nodes, regrouping);
  state.job.members.place_newcomers();
  if (!decided.ok()) {
    state.waiting->chosen.reset();
    state.waiting->until =
        now(self) + seconds(state.resources->setup.job.recovery.wait_for_nodes_s);
    keep_in_job(self, state.job.members.keep_leaving(), to_string(decided.error()));
    need_others(self, state.regrouping.why_lost, decided.error());
    state.waiting->tried_with = {};  // With who wanted to leave there may be one.
    if (state.job.is_at_rest() && !state.saves.running) save_if_due(self);
    return;
  }
  WaitVerdict verdict;
  if (now(self) < state.waiting->until) verdict = weigh_wait(state, regrouping, nodes, now(self));
  state.resources->logger.info(why + "; the job " + (verdict.wait ? "waits" : "goes on") +
                               verdict.words);
  state.regrouping = std::move(regrouping);
  state.waiting->chosen = std::move(verdict.wait);
  if (!state.waiting->chosen) regroup(self);
}

}  // namespace

void keep_in_job(Self self, const std::map<NodeId, Leaving>& leavers, const std::string& why) {
  for (const auto& [node, leaving] : leavers) {
    self->state.resources->logger.warning("node " + std::to_string(node.value) +
                                          " cannot leave: " + why);
    send_to_node(self, node, leave_atom::value, std::string());
  }
}

void settle_wait(Self self, std::optional<ChosenWait> chosen, Move move) {
  auto& state = self->state;
  if (!chosen) {
    if (!state.waiting) return;
    if (state.waiting->chosen)
      state.waiting->until = now(self);
    else
      state.waiting->why.clear();  // By now a layout works.
    return;
  }
  state.job.halt();
  if (move != Move::finish) state.job.loop.rewind();
  state.job.members.place_newcomers();  // The layout that was weighed has them.
  if (!state.waiting) state.waiting = WaitingForNodes{now(self), {}, {}, {}, {}, {}};
  state.waiting->until =
      state.regrouping.noticed + seconds(state.resources->setup.job.recovery.wait_for_nodes_s);
  state.waiting->chosen = std::move(chosen);
}

bool wait_for_nodes(Self self, NodeId lost, const std::string& what, const Error& why,
                    bool is_taken) {
  auto& state = self->state;
  const job::Job& job = state.resources->setup.job;
  if (is_own_process(state, lost) || job.recovery.wait_for_nodes_s <= 0 ||
      state.job.members.takes_state_away() ||
      !check_holders(state, state.job.left_without(lost)).ok())
    return false;
  Regrouping regrouping;
  if (state.job.is_regrouping()) regrouping = state.regrouping;
  add_loss(state, regrouping, lost, what, now(self));
  keep_in_job(self, state.job.members.keep_leaving(), to_string(why));
  regrouping.drained.clear();
  const Move move = state.job.lose(lost, is_taken);
  state.job.halt();
  if (move != Move::finish) state.job.loop.rewind();
  if (!is_taken) let_go_of_node(self, lost, what);
  state.regrouping = std::move(regrouping);
  const bool is_needed_now = !state.waiting || state.waiting->chosen;
  if (!state.waiting) state.waiting = WaitingForNodes{now(self), {}, {}, {}, {}, {}};
  if (is_needed_now) state.waiting->until = now(self) + seconds(job.recovery.wait_for_nodes_s);
  state.waiting->chosen.reset();
  need_others(self, what, why);
  give_up_save(self, what);
  if (move == Move::finish) finish_ended_steps(self);
  if (state.job.is_at_rest() && !state.saves.running) save_if_due(self);
  return true;
}

void wait_with_gathered(Self self, const std::string& what, const Error& why) {
  auto& state = self->state;
  state.job.halt();
  const Time until = now(self) + seconds(state.resources->setup.job.recovery.wait_for_nodes_s);
  state.waiting = WaitingForNodes{now(self), until, {}, {}, {}, {}};
  need_others(self, what, why);
  if (state.job.is_at_rest()) save_if_due(self);
}

void watch_wait(Self self) {
  auto& state = self->state;
  if (!state.waiting || state.job.is_stopping() || state.job.is_over() ||
      state.job.loop.is_decided())
    return;
  if (state.waiting->chosen) {
    if (const auto why = end_of_wait(state, now(self))) end_chosen_wait(self, *why);
    return;
  }
  const bool is_new = !state.job.members.newcomers().empty() ||
                      state.waiting->tried_with != state.templates || state.waiting->why.empty();
  add_newcomers(state, state.regrouping);
  if (is_new && try_again(self)) return;
  if (now(self) <= state.waiting->until) return;
  tell_of_losses(self);
  state.job.loop.rewind();  // What was planned beyond the last finished step is not what it stops.
  begin_stop(self,
             state.waiting->what + "; " + state.waiting->why + "; not enough came within " +
                 wait_text(state),
             kTooFew);
}

}  // namespace troupe::actors
