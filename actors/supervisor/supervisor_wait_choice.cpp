#include "actors/supervisor/supervisor_wait_choice.hpp"

#include <cmath>

#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "scheduler/recovery/next_layout.hpp"

namespace troupe::actors {

namespace {

std::optional<double> ready_in_ms(const SupervisorState& state, NodeId node, Time now) {
  return state.joins.ready_in_ms(milliseconds_between(state.job.members[node].since, now));
}

/// Of those that still open their data the one that was welcomed first; none of those that take
/// longer than others did.
std::optional<NodeId> next_to_come(const SupervisorState& state, Time now) {
  const Membership& members = state.job.members;
  std::optional<NodeId> first;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const NodeId node{i};
    if (members[node].phase != Member::Phase::joined || !ready_in_ms(state, node, now)) continue;
    if (!first || members[node].since < members[*first].since) first = node;
  }
  return first;
}

/// Whether a wait of so long may be begun, or go on, at this moment of the job.
bool may_wait(const SupervisorState& state, const Regrouping& regrouping, double ready_ms,
              Time now) {
  const bool is_needed = state.waiting && !state.waiting->chosen;
  if (is_needed || !state.job.members.leaving().empty() || state.job.loop.is_last_planned() ||
      state.job.phase() == JobPhase::collecting)
    return false;
  const double waited_ms = milliseconds_between(regrouping.noticed, now);
  return waited_ms + ready_ms <= 1000 * state.resources->setup.job.recovery.wait_for_nodes_s;
}

std::optional<scheduler::WaitOutlook> outlook_of(const SupervisorState& state,
                                                 const Regrouping& regrouping,
                                                 const std::set<NodeId>& nodes, NodeId comes,
                                                 double ready_ms) {
  return scheduler::wait_outlook(
      changing_job(state, regrouping.left),
      {regrouping.plan, regrouping.change.moves, regrouping.change.want, nodes}, comes, ready_ms);
}

std::string tenths_text(double ms) { return seconds_text(std::round(ms / 100) / 10); }

/// Both numbers, the better way first.
std::string words_of(const scheduler::WaitOutlook& outlook, const std::string& who) {
  const auto lost = [](double samples) { return std::to_string(std::lround(samples)); };
  const std::string until = " samples in the " + scheduler::quiet_text(outlook.horizon_ms) +
                            " until nodes change again, ";
  const std::string wait =
      "waiting " + tenths_text(outlook.ready_ms) + " for " + who + ", still opening data";
  const std::string going_on = lost(scheduler::lost_going_on(outlook));
  const std::string waiting = lost(scheduler::lost_waiting(outlook));
  if (scheduler::waiting_pays(outlook))
    return "; " + wait + ", is predicted to lose " + waiting + until + "going on now " + going_on;
  return "; going on now is predicted to lose " + going_on + until + wait + ", " + waiting +
         ": who comes later gets work then";
}

/// Of nodes that still open their data and for which nobody waits.
std::string not_waited_for(const SupervisorState& state) {
  const std::string opening = still_opening(state.job.members);
  if (opening.empty()) return "";
  const auto samples = std::lround(state.samples_per_s_before);
  return "; nobody waits for " + opening + ", still opening data" +
         (samples > 0
              ? ": each second of that would lose " + std::to_string(samples) + " samples, and"
              : ":") +
         " who comes later gets work then";
}

}  // namespace

WaitVerdict weigh_wait(const SupervisorState& state, const Regrouping& regrouping,
                       const std::set<NodeId>& nodes, Time now) {
  const auto comes = next_to_come(state, now);
  if (!comes) return {std::nullopt, not_waited_for(state)};
  const double ready_ms = *ready_in_ms(state, *comes, now);
  if (!may_wait(state, regrouping, ready_ms, now)) return {std::nullopt, not_waited_for(state)};
  const auto outlook = outlook_of(state, regrouping, nodes, *comes, ready_ms);
  if (!outlook) return {std::nullopt, not_waited_for(state)};
  WaitVerdict verdict{std::nullopt, words_of(*outlook, describe(state.job.members, *comes))};
  if (scheduler::waiting_pays(*outlook))
    verdict.wait = ChosenWait{*comes, state.job.members[*comes].since, *outlook};
  return verdict;
}

std::optional<std::string> end_of_wait(const SupervisorState& state, Time now) {
  const Membership& members = state.job.members;
  const ChosenWait& wait = *state.waiting->chosen;
  const std::string who = who_text({wait.node});
  if (const auto& came = members.newcomers(); !came.empty())
    return who_text({came.begin(), came.end()}) + (came.size() == 1 ? " is" : " are") + " there";
  if (members[wait.node].phase != Member::Phase::joined || members[wait.node].since != wait.since)
    return who + ", for which the job waited, does not come";
  if (!members.leaving().empty())
    return "somebody is to leave, and the job waits no longer for " + who;
  if (now >= state.waiting->until) return "the job waits no longer for " + who;
  scheduler::WaitOutlook outlook = wait.outlook;
  const auto ready_ms = ready_in_ms(state, wait.node, now);
  if (!ready_ms) return who + " takes longer than others did, and the job waits no longer";
  outlook.ready_ms = *ready_ms;
  if (scheduler::waiting_pays(outlook)) return std::nullopt;
  return "waiting for " + who + " pays no longer";
}

}  // namespace troupe::actors
