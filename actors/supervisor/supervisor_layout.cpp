#include "actors/supervisor/supervisor_layout.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "actors/node/peers.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/state/state_memory.hpp"
#include "runtime/observe/plan_words.hpp"
#include "scheduler/recovery/next_layout.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = SupervisorState::Phase;
using NodePhase = NodeEntry::Phase;

/// The moves of one node's devices.
std::vector<StateMove> moves_of(const std::vector<StateMove>& all, NodeId node) {
  std::vector<StateMove> own;
  std::copy_if(all.begin(), all.end(), std::back_inserter(own), [node](const StateMove& move) {
    return move.from.node == node || move.to.node == node;
  });
  return own;
}

}  // namespace

Result<LayoutChange> plan_change(const SupervisorState& state, const ParallelPlan& plan,
                                 const StatePlacement& left) {
  const engine::JobSetup& setup = state.resources->setup;
  const Dtype dtype = setup.job.train.dtype;
  LayoutChange change;
  change.want = scheduler::place_state(plan, setup.parameters, dtype);
  auto moves = scheduler::plan_state_moves(setup.parameters, dtype, left, change.want);
  if (!moves.ok()) return std::move(moves).error();
  change.moves = std::move(moves).value();
  return change;
}

double network_bytes_per_ms(const SupervisorState& state) {
  const auto& costs = state.resources->setup.costs;
  return costs ? costs->options.speeds.network.gigabytes_per_s * 1e6 : 0;
}

double copy_ms(const SupervisorState& state, const LayoutChange& change) {
  return scheduler::copy_ms(change.moves, state.resources->setup.job.train.dtype,
                            network_bytes_per_ms(state));
}

Result<LayoutChange> plan_fitting_change(const SupervisorState& state, const ParallelPlan& plan) {
  const auto places = plan.nodes();
  for (const NodeId node : places)
    if (!takes_part(state.nodes[node.index()]))
      return Error{Errc::infeasible,
                   "node " + std::to_string(node.value) + " is not there any more",
                   {},
                   {}};
  auto change = plan_change(state, plan, state.placed);
  if (!change.ok()) return change;
  const job::Job& job = state.resources->setup.job;
  // With its gradients, once it is up.
  auto fits = engine::check_state_memory(job, plan, engine::memory_at_hand(job.cluster));
  if (fits.ok())
    fits = fits_beside(state, scheduler::arriving_bytes(change.value().moves, job.train.dtype));
  if (!fits.ok()) return std::move(fits).error();
  return change;
}

void bring_up(Self self, const ParallelPlan& plan, LayoutChange change) {
  auto& state = self->state;
  state.phase = Phase::applying;
  state.deadline = now(self) + seconds(state.resources->setup.job.cluster.join_timeout_s);
  state.change = std::move(change);
  state.change.begun = now(self);
  state.configuration.arriving = state.change.arriving;
  if (state.change.arriving.empty()) state.warming.reset();
  ++state.configuration.epoch_number;
  state.configuration.plan = plan;
  state.devices.insert(plan.devices.begin(), plan.devices.end());
  state.missed.clear();
  state.planning = false;  // What was asked for is of another layout, and dropped.
  state.resources->transport->drop_older_than(state.configuration.epoch_number);
  state.configuration.nodes.clear();
  for (const NodeEntry& node : state.nodes)
    if (takes_part(node)) state.configuration.nodes.push_back(node.ready);
  state.configuration.nodes.push_back(
      introduce(NodeId{state.nodes.size()}, *state.resources->transport, {}));
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    if (!takes_part(state.nodes[i])) continue;
    state.nodes[i].phase = NodePhase::ready;
    Configuration own = state.configuration;
    own.moves = moves_of(state.change.moves.moves, NodeId{i});
    if (state.placed.empty()) own.checkpoint = state.resources->resume.folder.string();
    if (state.resources->setup.job.cluster.head_timeout_s > 0) own.progress = progress_now(state);
    send_to_node(self, state.nodes[i], apply_atom::value, std::move(own));
  }
}

namespace {

/// The layout as after the loss of those that are not there.
void begin_with_few(Self self, const ParallelPlan& plan) {
  auto& state = self->state;
  state.configuration.plan = plan;
  state.templates = std::make_shared<const scheduler::TemplateSet>(
      engine::templates_for_losses(state.resources->setup, plan, state.resources->samples));
  const std::set<NodeId> nodes = nodes_that_stay(state);
  std::vector<NodeId> missing;
  for (std::size_t i = 0; i < state.nodes.size(); ++i)
    if (!nodes.contains(NodeId{i})) missing.push_back(NodeId{i});
  Regrouping few;
  if (auto decided = plan_regrouping(state, nodes, few); !decided.ok())
    return fail(self, decided.error());
  state.resources->logger.warning(who_text(missing) + " did not come: the job begins without (" +
                                  "cluster.min_nodes), on " + observe::layout_words(few.plan));
  for (const NodeId node : missing)
    if (!is_there(state.nodes[node.index()])) state.nodes[node.index()].phase = NodePhase::gone;
  bring_up(self, few.plan, std::move(few.change));
}

}  // namespace

void begin_job(Self self) {
  auto& state = self->state;
  transport::Transport& transport = *state.resources->transport;
  std::vector<NodeReady> nodes;
  for (const NodeEntry& node : state.nodes) {
    if (!takes_part(node)) continue;
    nodes.push_back(node.ready);
    auto connected = connect_to(transport, node.ready);
    if (!connected.ok()) return fail(self, connected.error());
  }
  for (const std::string& remark : remarks_on_paths(transport, nodes))
    state.resources->logger.info(remark);
  const ParallelPlan* plan = &state.resources->plan;
  while (change_is_due(state)) plan = &state.resources->later[state.changes++];
  if (nodes.size() < state.nodes.size()) return begin_with_few(self, *plan);
  auto change = plan_change(state, *plan, state.placed);
  if (!change.ok()) return fail(self, change.error());
  bring_up(self, *plan, std::move(change).value());
}

bool change_is_due(const SupervisorState& state) {
  const auto& layouts = state.resources->setup.job.debug.layouts;
  return state.changes < layouts.size() && state.planned_steps + 1 >= layouts[state.changes].step;
}

void take_up(Self self, const ParallelPlan& plan, LayoutChange change) {
  auto& state = self->state;
  tell_of_change(self);
  self->send(state.colleagues.scheduler, layout_atom::value);
  bring_up(self, plan, std::move(change));
}

bool change_layout(Self self) {
  auto& state = self->state;
  const ParallelPlan& plan = state.resources->later[state.changes++];
  const Time due = now(self);
  auto change = plan_fitting_change(state, plan);
  if (change.ok()) {
    change.value().due = due;
    take_up(self, plan, std::move(change).value());
    return true;
  }
  state.resources->logger.warning(
      "the layout of step " + std::to_string(state.planned_steps + 1) +
      " is not taken up, the present one stays: " + to_string(change.error()));
  return false;
}

namespace {

/// Who turns over to a layout keeps nothing that it does not want.
void let_go(StatePlacement& placed, const StatePlacement& want) {
  for (Shard& shard : placed) {
    const auto kept =
        std::lower_bound(want.begin(), want.end(), shard.key,
                         [](const Shard& other, const ShardKey& key) { return other.key < key; });
    const bool is_wanted = kept != want.end() && kept->key == shard.key;
    std::erase_if(shard.holders, [&](const DeviceSlot& device) {
      return !is_wanted || !std::binary_search(kept->holders.begin(), kept->holders.end(), device);
    });
  }
}

}  // namespace

void node_fetched(Self self, NodeId id, EpochNumber epoch_number) {
  auto& state = self->state;
  if (state.phase != Phase::applying || epoch_number != state.configuration.epoch_number) return;
  state.nodes[id.index()].phase = NodePhase::fetched;
  if (!all_in(state, NodePhase::fetched)) return;
  state.change.fetched = now(self);
  state.change.is_settling = true;
  if (!state.change.arriving.empty()) let_go(state.placed, state.change.want);
  for (const NodeEntry& node : state.nodes)
    if (takes_part(node)) send_to_node(self, node, settle_atom::value, epoch_number);
}

bool node_applied(Self self, NodeId id, EpochNumber epoch_number) {
  auto& state = self->state;
  if (state.phase != Phase::applying || epoch_number != state.configuration.epoch_number)
    return false;
  state.nodes[id.index()].phase = NodePhase::applied;
  if (!all_in(state, NodePhase::applied)) return false;
  state.change.is_settling = false;
  if (state.warming) {
    state.progress.deals.clear();  // Of pipelines that are planned anew.
    state.warming->arriving = std::move(state.change.want);
    return true;
  }
  if (state.regrouping) {
    state.progress.deals.clear();
    regrouped(self);
  } else if (!state.placed.empty()) {
    state.progress.deals.clear();  // Pipelines are others.
    state.resources->logger.info(change_text(state, now(self)));
    self->send(state.colleagues.recorder,
               std::make_shared<const observe::RunEvent>(change_event(state, now(self))));
  }
  state.placed = std::move(state.change.want);
  return true;
}

}  // namespace troupe::actors
