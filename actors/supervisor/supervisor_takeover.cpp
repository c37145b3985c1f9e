#include "actors/supervisor/supervisor_takeover.hpp"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/coordination/left_state.hpp"
#include "actors/supervisor/missed_steps.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_gather.hpp"
#include "actors/supervisor/supervisor_gather_joins.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_speeds.hpp"
#include "actors/supervisor/supervisor_start.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "actors/supervisor/supervisor_wait.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;

/// Exit code of a head that was to save what nodes hold, and could not.
constexpr std::int32_t kUnsaved = 1;

constexpr const char* kNoHead = "no head came for the nodes in time";

/// What the head before did not come to write of finished steps.
void write_missed_steps(Self self, const Gathered& gathered) {
  auto& state = self->state;
  const std::int64_t recorded = state.resources->resume.recorded_step;
  auto records = missed_steps(gathered, recorded);
  const std::int64_t next =
      records.empty() ? gathered.progress.step + 1 : records.front().metrics.step;
  if (recorded + 1 < next)
    state.resources->logger.warning(
        "nobody knows any more what steps " + std::to_string(recorded + 1) + " to " +
        std::to_string(next - 1) + " trained: the head before had not written it, and nodes keep " +
        std::to_string(kVerdictsKept) + " steps; metrics.jsonl and samples.jsonl lack their lines");
  for (StepRecord& record : records)
    self->send(state.actors.recorder, std::make_shared<const StepRecord>(std::move(record)));
}

/// Devices of the members, those without a place in the layout too.
std::set<DeviceSlot> devices_of(const Gathering& gathering) {
  std::set<DeviceSlot> devices;
  for (const auto& [id, holding] : gathering.holdings)
    for (const std::int32_t device : holding.devices) devices.insert({id, device});
  return devices;
}

/// What is lost with the head. Those that it does not reach are named with the reason.
Regrouping lost_with_head(const SupervisorState& state, const Gathered& gathered,
                          const StatePlacement& placed) {
  Regrouping regrouping;
  regrouping.is_takeover = true;
  regrouping.lost = missing_nodes(gathered);
  regrouping.why_lost =
      "the head was lost; another one, " + state.resources->who + ", gathered its nodes";
  for (const auto& [id, error] : state.gathering->unreached)
    regrouping.why_lost +=
        "; " + describe(state.job.members, id) + " was lost: " + gathered.strays.at(id);
  regrouping.noticed = state.gathering->begun;
  regrouping.left = placed;
  return regrouping;
}

/// On which layout the job goes on, as after a loss. Changes nothing that another try would miss.
/// Errors: as `plan_regrouping`.
Status plan_takeover(SupervisorState& state, const Gathered& gathered, Regrouping& regrouping) {
  state.configuration.plan = gathered.plan;
  if (!regrouping.lost.empty()) need_templates(state);
  return plan_regrouping(state, gathered.members, regrouping);
}

/// Whether another node in the place of one that is missing may be all that no layout works
/// without. Those that this head does not reach may be there for another head, as may the others.
bool may_be_completed(const Gathering& gathering, const Regrouping& lost) {
  return gathering.unreached.empty() && !lost.lost.empty();
}

/// Who was to leave under the head before, and had not left yet.
void let_leave(Self self, const Gathering& gathering) {
  for (const auto& [node, holding] : gathering.holdings)
    for (const auto& [why, by_signal] : holding.leaves) {
      if (by_signal) {
        node_told_to_end(self, node, why);
      } else if (auto leaves = drain(self, node, why, false); !leaves.ok()) {
        self->state.resources->logger.warning(
            "node " + std::to_string(node.value) +
            " was to leave and stays in the job: " + leaves.error().message);
      }
    }
}

/// Is the head of these nodes from here on. REQUIRES: the folder is open.
Gathering lead(Self self, const Gathered& gathered, const StatePlacement& placed,
               const std::vector<NodeId>& lost) {
  auto& state = self->state;
  Gathering gathering = *std::exchange(state.gathering, std::nullopt);
  begin(self);
  state.job.take_over(gathered.newest_epoch, placed, lost);
  state.saves.number = gathered.save_number;
  state.devices = devices_of(gathering);
  const auto& layouts = state.resources->setup.job.debug.layouts;
  while (state.changes < layouts.size() && layouts[state.changes].step <= gathered.progress.step)
    ++state.changes;
  write_missed_steps(self, gathered);
  return gathering;
}

/// `why`, with the nodes that are missing.
std::string with_missing(const Gathered& gathered, const std::string& why) {
  const std::string missing = missing_text(gathered);
  return missing.empty() ? why : why + "; missing: " + missing;
}

/// Why nodes keep their state, of which no layout comes up.
Error hindered(const Gathered& gathered, const Error& error) {
  Error why = error;
  why.message = with_missing(gathered, error.message);
  return why;
}

}  // namespace

void save_held(Self self, const Gathered& gathered, const StatePlacement& before,
               const StatePlacement& placed) {
  auto& state = self->state;
  if (auto opened = state.resources->gather->open(&gathered.progress); !opened.ok())
    return fail(self, opened.error());
  state.configuration.plan = gathered.plan;
  Gathering gathering = lead(self, gathered, placed, missing_nodes(gathered));
  state.job.halt();
  decide_stop(self, kNoHead, kUnsaved);
  add_orphans(before, placed, state.stopping.orphans);
  go_on_stopping(self);
  answer_later_ones(self, std::move(gathering.later));
}

void take_over(Self self, const Gathered& gathered, const StatePlacement& placed) {
  auto& state = self->state;
  const GatherWish& wish = *state.resources->gather;
  const Regrouping lost = lost_with_head(state, gathered, placed);
  Regrouping regrouping = lost;
  // Where something is in the way, nodes keep their state, and the folder is as it was.
  const Status decided = plan_takeover(state, gathered, regrouping);
  if (!decided.ok() && wish.ends) return save_held(self, gathered, placed, placed);
  if (!decided.ok() && !may_be_completed(*state.gathering, lost)) {
    const Error why = hindered(gathered, decided.error());
    // With all of its nodes it is the job that is wrong, and would be the next time.
    return lost.lost.empty() ? fail(self, why) : leave_gathered(self, why);
  }
  if (auto opened = wish.open(&gathered.progress); !opened.ok()) return fail(self, opened.error());
  // Not before: where this head cannot go on without them another one may reach them.
  for (const auto& [id, error] : state.gathering->unreached)
    dismiss(self, id, gathered.strays.at(id));
  Gathering gathering = lead(self, gathered, placed, lost.lost);
  if (decided.ok()) {
    state.regrouping = std::move(regrouping);
    regroup(self);
  } else {
    state.regrouping = lost;
    wait_with_gathered(self, with_missing(gathered, lost.why_lost), decided.error());
  }
  if (wish.ends) {
    begin_stop(self, kNoHead, kUnsaved);
  } else {
    let_leave(self, gathering);
  }
  recall_slow_nodes(state, gathered.members);
  wish.start_nodes(gathered.members);
  answer_later_ones(self, std::move(gathering.later));
}

}  // namespace troupe::actors
