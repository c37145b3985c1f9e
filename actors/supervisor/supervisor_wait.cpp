#include "actors/supervisor/supervisor_wait.hpp"

#include <algorithm>
#include <utility>

#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_recovery.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "actors/supervisor/supervisor_steps.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;

/// Exit code of a job with too few nodes that has nothing to resume from.
constexpr std::int32_t kTooFew = 1;

bool takes_its_state_away(const Membership& members) {
  const auto& leaving = members.leaving();
  return std::any_of(leaving.begin(), leaving.end(),
                     [](const auto& one) { return one.second.by_signal; });
}

/// What there is and what would be enough: the layout before is known to work.
std::string too_few_text(const SupervisorState& state, const std::string& why) {
  const std::size_t left = state.job.members.present().size();
  const std::size_t enough = state.configuration.plan.nodes().size();
  return "no layout works on the " + std::to_string(left) +
         (left == 1 ? " node that is" : " nodes that are") +
         " left, though all state is there: " + why +
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
    state.waiting->why = too_few_text(state, decided.error().message);
    state.resources->logger.warning(state.waiting->why);
    return false;
  }
  state.resources->logger.info("the job goes on with the nodes that are there now");
  state.regrouping = std::move(regrouping);
  regroup(self);
  return true;
}

}  // namespace

bool wait_for_nodes(Self self, NodeId lost, const std::string& what, const Error& why) {
  auto& state = self->state;
  const job::Job& job = state.resources->setup.job;
  if (is_heads_own(state, lost) || job.recovery.wait_for_nodes_s <= 0 ||
      takes_its_state_away(state.job.members) ||
      !check_holders(state, state.job.left_without(lost)).ok())
    return false;
  Regrouping regrouping;
  if (state.job.is_regrouping()) regrouping = state.regrouping;
  add_loss(state, regrouping, lost, what, now(self));
  for (const auto& [node, leaving] : state.job.members.keep_leaving())
    send_to_node(self, node, leave_atom::value, std::string());  // It is needed now.
  regrouping.drained.clear();
  const Move move = state.job.lose(lost);
  state.job.halt();
  if (move != Move::finish) state.job.loop.rewind();
  let_go_of_node(self, lost, what);
  state.regrouping = std::move(regrouping);
  if (!state.waiting)
    state.waiting = WaitingForNodes{now(self) + seconds(job.recovery.wait_for_nodes_s), {}, {}, {}};
  state.waiting->what = what;
  state.waiting->why = too_few_text(state, why.message);
  state.waiting->tried_with = state.templates;
  state.resources->logger.warning(what + "; " + state.waiting->why + "; the job waits " +
                                  wait_text(state) + " for others, then saves and ends");
  state.saves.wanted = true;  // Who holds the state may be lost, too.
  give_up_save(self, what);
  if (move == Move::finish) finish_ended_steps(self);
  if (state.job.is_at_rest() && !state.saves.running) save_if_due(self);
  return true;
}

void watch_wait(Self self) {
  auto& state = self->state;
  if (!state.waiting || state.job.is_stopping() || state.job.is_over() ||
      state.job.loop.is_decided())
    return;
  const bool is_new = !state.job.members.newcomers().empty();
  add_newcomers(state, state.regrouping);
  if ((is_new || state.waiting->tried_with != state.templates) && try_again(self)) return;
  if (now(self) <= state.waiting->until) return;
  state.job.loop.rewind();  // What was planned beyond the last finished step is not what it stops.
  begin_stop(self,
             state.waiting->what + "; " + state.waiting->why + "; not enough came within " +
                 wait_text(state),
             kTooFew);
}

}  // namespace troupe::actors
