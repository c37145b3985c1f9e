#include "actors/supervisor/supervisor_regrouping.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "actors/supervisor/supervisor_layout.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_warm_up.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/profiling/profile_check.hpp"
#include "engine/state/state_memory.hpp"
#include "runtime/observe/plan_words.hpp"
#include "scheduler/layout/layout_request.hpp"
#include "scheduler/recovery/layout_choice.hpp"
#include "scheduler/recovery/relayout.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using NodePhase = NodeEntry::Phase;

/// Errors: infeasible: names what nobody holds any more.
Status check_holders(const SupervisorState& state, const StatePlacement& left) {
  const auto is_orphan = [](const Shard& shard) { return shard.holders.empty(); };
  const auto orphan = std::find_if(left.begin(), left.end(), is_orphan);
  if (orphan == left.end()) return Done{};
  const auto& info = state.resources->setup.parameters[orphan->key.parameter.index()];
  const auto others = std::count_if(orphan, left.end(), is_orphan) - 1;
  return Error{Errc::infeasible,
               "no other node has " + info.name +
                   (others > 0 ? " and " + std::to_string(others) + " more shards" : ""),
               "parallel", "give each module replicas on several nodes"};
}

/// `40 s`, `52 min`.
std::string quiet_text(double ms) {
  return ms < 1.2e5 ? std::to_string(std::lround(ms / 1e3)) + " s"
                    : std::to_string(std::lround(ms / 6e4)) + " min";
}

/// A layout to go on with, and what its state would take to get there.
struct Candidate {
  scheduler::Relayout layout;
  StatePlacement want;
  scheduler::MoveTotals moves;
};

/// Samples a millisecond of one unit of `microbatches_per_ms`, by the last step; 1 before there
/// is one.
double samples_per_microbatch(const SupervisorState& state) {
  const double present = scheduler::microbatches_per_ms(trained_layout(state), *state.templates);
  if (present <= 0 || state.step_ms_before <= 0) return 1;
  const auto batch = static_cast<double>(state.resources->setup.job.train.global_batch_size);
  return batch / state.step_ms_before / present;
}

/// The candidate that loses the fewest samples until nodes change again, and why, in a clause.
/// Where nobody leaves state comes while all train, or soon.
std::pair<std::size_t, std::string> choose(const SupervisorState& state,
                                           const std::vector<Candidate>& candidates,
                                           bool somebody_leaves) {
  if (candidates.size() == 1 || network_bytes_per_ms(state) <= 0) return {0, ""};
  const double scale = samples_per_microbatch(state);
  std::vector<scheduler::LayoutOutlook> outlooks;
  double fastest = 0;
  for (const Candidate& candidate : candidates) {
    outlooks.push_back(
        {scale * scheduler::microbatches_per_ms(candidate.layout.plan, *state.templates),
         somebody_leaves ? static_cast<double>(candidate.moves.least_busiest.count()) /
                               network_bytes_per_ms(state)
                         : 0});
    fastest = std::max(fastest, outlooks.back().samples_per_ms);
  }
  if (fastest <= 0) return {0, ""};
  const std::size_t chosen = scheduler::choose_layout(outlooks, state.quiet_ms);
  const auto lost = [&](std::size_t i) {
    return std::to_string(
        std::lround(scheduler::lost_samples(outlooks[i], fastest, state.quiet_ms)));
  };
  std::string others;
  for (std::size_t i = 0; i < outlooks.size(); ++i)
    if (i != chosen) others += (others.empty() ? "" : " and ") + lost(i);
  return {chosen, "of " + std::to_string(outlooks.size()) +
                      " layouts the one that is predicted to lose the fewest samples in the " +
                      quiet_text(state.quiet_ms) + " until nodes change again: " + lost(chosen) +
                      " instead of " + others};
}

/// The same with copies on so many nodes.
Status plan_with(const SupervisorState& state, const std::set<NodeId>& nodes,
                 const scheduler::Tolerance& tolerance, Regrouping& regrouping) {
  const engine::JobSetup& setup = state.resources->setup;
  const job::Job& job = setup.job;
  auto made = scheduler::relayouts({trained_layout(state),
                                    {job.cluster.nodes, job.cluster.devices_per_node},
                                    *state.templates,
                                    job.train.global_batch_size,
                                    tolerance,
                                    nodes});
  if (!made.ok()) return made.error();
  std::vector<Candidate> candidates;
  Status hindrance = Done{};  // Of the first that cannot be.
  for (scheduler::Relayout& layout : made.value()) {
    auto want = scheduler::place_state(layout.plan, setup.parameters, job.train.dtype);
    auto moves = scheduler::total_moves(setup.parameters, job.train.dtype, regrouping.left, want);
    Status fits = Done{};
    if (moves.ok())
      fits = engine::check_state_memory(job, layout.plan, engine::memory_at_hand(job.cluster));
    else
      fits = moves.error();
    if (fits.ok())
      candidates.push_back({std::move(layout), std::move(want), std::move(moves).value()});
    else if (hindrance.ok())
      hindrance = std::move(fits);
  }
  if (candidates.empty()) return hindrance;
  const std::set<NodeId> present = trained_layout(state).nodes();
  const bool somebody_leaves =
      !std::includes(nodes.begin(), nodes.end(), present.begin(), present.end());
  // The layout before gives its state away, and then its memory.
  if (regrouping.is_beside_present) {
    const auto without_room = std::stable_partition(
        candidates.begin(), candidates.end(),
        [&](const Candidate& one) { return fits_beside(state, one.moves.arriving).ok(); });
    if (without_room != candidates.begin()) candidates.erase(without_room, candidates.end());
  }
  const auto [chosen, why] = choose(state, candidates, somebody_leaves);
  regrouping.plan = std::move(candidates[chosen].layout.plan);
  regrouping.idle = std::move(candidates[chosen].layout.idle);
  regrouping.choice = why;
  auto change = plan_change(state, std::move(candidates[chosen].want), regrouping.left);
  if (!change.ok()) return std::move(change).error();
  regrouping.change = std::move(change).value();
  return Done{};
}

/// Those that a layout may use: as many nodes as the job keeps spare do nothing, the ones that had
/// no work before first.
std::set<NodeId> without_spares(const SupervisorState& state, std::set<NodeId> nodes) {
  const job::Cluster& cluster = state.resources->setup.job.cluster;
  if (cluster.spares == 0) return nodes;
  const auto most = static_cast<std::size_t>(engine::working_nodes(cluster));
  const std::set<NodeId> working = state.configuration.plan.nodes();
  const std::vector<NodeId> all(nodes.rbegin(), nodes.rend());
  for (const bool may_work : {false, true})
    for (const NodeId node : all)
      if (nodes.size() > most && (may_work || !working.contains(node))) nodes.erase(node);
  return nodes;
}

/// Back to the last finished step: nothing that was planned beyond it counts.
void rewind(SupervisorState& state) {
  state.steps.clear();
  state.planning = false;
  state.planned_steps = state.progress.step;
  state.planned_tokens = state.progress.tokens;
  state.last_planned = state.length->reached(state.progress.step, state.progress.tokens);
  state.collections.clear();
  state.saves.ends_job = false;
  std::erase_if(state.bad_ids, [&](const auto& bad) { return bad.second >= state.progress.step; });
}

std::string in_ms(double ms) { return std::to_string(std::lround(ms)) + " ms"; }

/// `the loss of node 2 and the joining of node 5`.
std::string change_words(const Regrouping& regrouping) {
  std::string text = regrouping.is_takeover ? "the loss of the head" : "";
  for (const auto& [what, nodes] : {std::pair{"the loss of ", &regrouping.lost},
                                    std::pair{"the leave of ", &regrouping.drained},
                                    std::pair{"the joining of ", &regrouping.joined}})
    if (!nodes->empty()) text += (text.empty() ? "" : " and ") + (what + who_text(*nodes));
  return text;
}

/// Events tell of nodes that were lost first of all: these cost the most.
observe::RunEvent event_of(const SupervisorState& state, Time now) {
  const Regrouping& regrouping = *state.regrouping;
  const LayoutChange& change = state.change;
  observe::RunEvent event;
  event.time = engine::utc_now();
  event.step = state.progress.step + 1;
  event.generation = state.configuration.epoch_number;
  event.kind = regrouping.is_takeover       ? "head-lost"
               : !regrouping.lost.empty()   ? "lost"
               : regrouping.drained.empty() ? "joined"
                                            : "drained";
  event.nodes = !regrouping.lost.empty()      ? regrouping.lost
                : !regrouping.drained.empty() ? regrouping.drained
                                              : regrouping.joined;
  event.why = regrouping.why;
  event.detect_ms = regrouping.detect_ms;
  event.decide_ms = milliseconds_between(regrouping.noticed, change.begun);
  event.copy_ms = milliseconds_between(change.begun, change.fetched);
  event.copy_bytes = change.moves.sent_bytes;
  event.rebuild_ms = milliseconds_between(change.fetched, now);
  if (regrouping.warmed) {
    event.warm_up_ms = milliseconds_between(regrouping.warmed->begun, regrouping.noticed);
    event.warm_up_bytes = regrouping.warmed->bytes;
    event.warm_up_steps = regrouping.warmed->steps;
  }
  event.tolerance_left = tolerance_of(change.want);
  return event;
}

}  // namespace

std::string who_text(const std::vector<NodeId>& nodes) {
  std::string text = nodes.size() == 1 ? "node " : "nodes ";
  for (std::size_t i = 0; i < nodes.size(); ++i)
    text += (i == 0 ? "" : i + 1 == nodes.size() ? " and " : ", ") + std::to_string(nodes[i].value);
  return text;
}

Status fits_beside(const SupervisorState& state, const std::map<DeviceSlot, Bytes>& arriving) {
  const job::Job& job = state.resources->setup.job;
  return engine::check_state_memory(job, state.configuration.plan,
                                    engine::memory_at_hand(job.cluster), arriving);
}

Status plan_regrouping(const SupervisorState& state, const std::set<NodeId>& nodes,
                       Regrouping& regrouping) {
  if (auto held = check_holders(state, regrouping.left); !held.ok()) return held;
  const job::Job& job = state.resources->setup.job;
  const std::set<NodeId> workers = without_spares(state, nodes);
  scheduler::Tolerance tolerance = engine::tolerance_of(job);
  for (;; --tolerance.lost_nodes) {  // What does not fit goes on with fewer copies.
    auto planned = plan_with(state, workers, tolerance, regrouping);
    if (planned.ok())
      std::set_difference(nodes.begin(), nodes.end(), workers.begin(), workers.end(),
                          std::inserter(regrouping.idle, regrouping.idle.end()));
    if (planned.ok() || planned.error().code != Errc::infeasible || tolerance.lost_nodes <= 0)
      return planned;
  }
}

void regroup(Self self) {
  auto& state = self->state;
  rewind(state);
  bring_up(self, state.regrouping->plan, state.regrouping->change);
}

void regrouped(Self self) {
  auto& state = self->state;
  const Regrouping regrouping = *state.regrouping;
  tell_of_change(self);
  for (const NodeId node : regrouping.drained)
    if (is_awaited_by_save(state, node))
      give_up_save(self, "a node that leaves has not written its share");
  state.replay = event_of(state, now(self));
  state.replayed_change = change_words(regrouping);
  std::string idle;
  if (!regrouping.idle.empty())
    idle = "; without work: " + who_text({regrouping.idle.begin(), regrouping.idle.end()});
  state.resources->logger.info("going on from step " + std::to_string(state.replay->step) +
                               " after " + state.replayed_change + " on layout " +
                               std::to_string(state.replay->generation) + ", " +
                               observe::layout_words(state.configuration.plan) + idle +
                               (regrouping.choice.empty() ? "" : "; " + regrouping.choice));
  if (!regrouping.is_takeover) ++state.node_changes;
  if (regrouping.is_takeover && state.resources->setup.job.cluster.spares == 0)
    state.idle_since_takeover = regrouping.idle;
  for (const NodeId node : regrouping.drained) {
    forget_node(self, node, "");
    state.leaving.erase(node);
  }
  for (const NodeId node : regrouping.joined) state.newcomers.erase(node);
  state.regrouping.reset();
}

void take_templates(Self self, const TemplateSetPtr& templates) {
  auto& state = self->state;
  state.templates = templates;
  for (const NodeId node : std::exchange(state.idle_since_takeover, {}))
    if (takes_part(state.nodes[node.index()]) && !state.configuration.plan.nodes().contains(node))
      state.newcomers.insert(node);
}

void tell_of_change(Self self) {
  auto& state = self->state;
  if (!state.replay) return;
  self->send(state.colleagues.recorder,
             std::make_shared<const observe::RunEvent>(*std::exchange(state.replay, std::nullopt)));
}

void replayed(Self self, double step_ms) {
  auto& state = self->state;
  if (!state.replay) return;
  state.replay->replay_ms = step_ms;
  const observe::RunEvent event = *state.replay;
  const double before_ms = state.step_ms_before;
  std::string warmed;
  if (event.warm_up_steps > 0)
    warmed = scheduler::byte_text(static_cast<double>(event.warm_up_bytes)) +
             " of state had come during " + step_count_text(event.warm_up_steps) + " before; ";
  state.resources->logger.info(
      state.replayed_change + ": noticed after " + in_ms(event.detect_ms) + ", decided in " +
      in_ms(event.decide_ms) + ", " + scheduler::byte_text(static_cast<double>(event.copy_bytes)) +
      " of state moved in " + in_ms(event.copy_ms) + ", stages built in " +
      in_ms(event.rebuild_ms) + ", step " + std::to_string(event.step) + " trained in " +
      in_ms(step_ms) + (before_ms > 0 ? " (the one before took " + in_ms(before_ms) + ")" : "") +
      "; " + warmed +
      (event.tolerance_left > 0 ? std::to_string(event.tolerance_left) + " more may be lost"
                                : "from now on the loss of a node may end the job"));
  tell_of_change(self);
}

void forget_node(Self self, NodeId id, const std::string& why) {
  auto& state = self->state;
  NodeEntry& node = state.nodes[id.index()];
  node.phase = NodePhase::gone;
  if (node.handle)
    self->send(caf::actor_cast<NodeActor>(node.handle), stop_atom::value,
               why.empty() ? "" : "the job goes on without this node: " + why, why.empty() ? 0 : 1);
  state.resources->transport->disconnect(id.value, {Errc::transport_failed, why, {}, {}});
  state.newcomers.erase(id);
  std::erase_if(state.configuration.nodes,
                [id](const NodeReady& ready) { return ready.node == id; });
  std::erase_if(state.devices, [id](const DeviceSlot& device) { return device.node == id; });
  const auto& devices = state.configuration.plan.devices;
  for (RunningStep& step : state.steps)
    std::erase_if(step.waiting_for,
                  [&](DeviceId device) { return devices[device.index()].node == id; });
}

}  // namespace troupe::actors
