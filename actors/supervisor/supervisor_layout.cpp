#include "actors/supervisor/supervisor_layout.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/node/peers.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_recovery.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_speeds.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "engine/profiling/profile_check.hpp"
#include "engine/state/state_memory.hpp"
#include "runtime/observe/plan_words.hpp"
#include "scheduler/recovery/next_layout.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;

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
    if (!state.job.members.takes_part(node))
      return Error{Errc::infeasible,
                   "node " + std::to_string(node.value) + " is not there any more",
                   {},
                   {}};
  auto change = plan_change(state, plan, state.job.members.placed());
  if (!change.ok()) return change;
  const job::Job& job = state.resources->setup.job;
  // With its gradients, once it is up.
  auto fits = engine::check_state_memory(job, plan, rooms_of(state));
  if (fits.ok())
    fits = fits_beside(state, scheduler::arriving_bytes(change.value().moves, job.train.dtype));
  if (!fits.ok()) return std::move(fits).error();
  return change;
}

namespace {

/// Nodes missed each other or the head, and another loss came first, or the job waited for nodes.
void settle_old_ways(Self self) {
  const auto& cut_off = self->state.job.members.cut_off();
  if (!cut_off.empty()) head_missed(self, cut_off.begin()->first, cut_off.begin()->second);
  const auto& missed = self->state.job.members.missed();
  if (missed.empty()) return;
  const auto& [peer, reporters] = *missed.begin();
  expect_reason(self, {Errc::transport_failed,
                       who_text({*reporters.begin()}) + " lost its connection to " +
                           who_text({peer}) + " before this layout",
                       {},
                       {}});
}

}  // namespace

void bring_up(Self self, const ParallelPlan& plan, LayoutChange change) {
  auto& state = self->state;
  state.deadline = now(self) + seconds(state.resources->setup.job.cluster.join_timeout_s);
  state.change = std::move(change);
  state.change.begun = now(self);
  state.configuration.arriving = state.change.arriving;
  if (state.change.arriving.empty()) state.warming.reset();
  state.waiting.reset();
  state.refusals.due.reset();  // The batch is planned anew.
  state.configuration.epoch_number =
      state.job.bring_up(plan.devices, state.change.want, !state.change.arriving.empty());
  state.configuration.plan = plan;
  state.devices.insert(plan.devices.begin(), plan.devices.end());
  state.resources->transport->drop_older_than(state.job.members.generation());
  state.configuration.nodes.clear();
  for (const NodeId node : state.job.members.present())
    state.configuration.nodes.push_back(state.links[node.index()].ready);
  state.configuration.nodes.push_back(
      introduce(NodeId{state.job.members.size()}, *state.resources->transport, {}));
  for (const NodeId node : state.job.members.present()) {
    Configuration own = state.configuration;
    own.moves = moves_of(state.change.moves.moves, node);
    if (state.job.members.placed().empty())
      own.checkpoint = state.resources->resume.folder.string();
    if (state.resources->setup.job.cluster.head_timeout_s > 0)
      own.progress = state.job.loop.progress_now(state.job.members.generation());
    send_to_node(self, node, apply_atom::value, std::move(own));
  }
  settle_old_ways(self);
}

namespace {

/// Who is missing as the job begins, and what was chosen for the others.
std::string few_text(const SupervisorState& state, const std::vector<NodeId>& missing,
                     const Regrouping& few) {
  const Membership& members = state.job.members;
  std::string text =
      who_text(missing) + " did not come: the job begins without (cluster.min_nodes), on " +
      observe::layout_words(few.plan) + "; " + std::to_string(members.present().size()) + " of " +
      std::to_string(members.size()) + " nodes are there";
  if (const std::string opening = still_opening(members); !opening.empty())
    text += "; still opening data and devices: " + opening;
  if (!few.idle.empty()) text += "; without work: " + who_text({few.idle.begin(), few.idle.end()});
  return text + (few.choice.empty() ? "" : "; " + few.choice);
}

observe::RunEvent few_event(const SupervisorState& state, const std::vector<NodeId>& missing,
                            const std::string& why) {
  observe::RunEvent event;
  event.time = engine::utc_now();
  event.step = state.job.loop.progress().step + 1;
  event.generation = state.job.members.generation();
  event.kind = "began-without";
  event.nodes = missing;
  event.why = why;
  event.tolerance_left = tolerance_of(state.change.want);
  return event;
}

/// The layout as after the loss of those that are not there.
void begin_with_few(Self self, const ParallelPlan& plan) {
  auto& state = self->state;
  state.configuration.plan = plan;
  need_templates(state);
  const std::set<NodeId> nodes = state.job.members.staying();
  std::vector<NodeId> missing;
  for (std::size_t i = 0; i < state.job.members.size(); ++i)
    if (!nodes.contains(NodeId{i})) missing.push_back(NodeId{i});
  Regrouping few;
  if (auto decided = plan_regrouping(state, nodes, few); !decided.ok())
    return fail(self, decided.error());
  const std::string why = few_text(state, missing, few);
  state.resources->logger.warning(why);
  for (const NodeId node : missing)
    if (!state.job.members.is_there(node)) state.job.members.gone(node);
  bring_up(self, few.plan, std::move(few.change));
  self->send(state.actors.recorder,
             std::make_shared<const observe::RunEvent>(few_event(state, missing, why)));
}

}  // namespace

void begin_job(Self self) {
  auto& state = self->state;
  transport::Transport& transport = *state.resources->transport;
  std::vector<NodeReady> nodes;
  std::map<NodeId, std::string> unreached;
  for (const NodeId node : state.job.members.present()) {
    nodes.push_back(state.links[node.index()].ready);
    if (auto reached = connect_to(transport, nodes.back()); !reached.ok())
      unreached[node] = reached.error().message;
  }
  for (const std::string& remark : remarks_on_paths(transport, nodes))
    state.resources->logger.info(remark);
  const ParallelPlan* plan = &state.resources->plan;
  while (change_is_due(state)) plan = &state.resources->later[state.changes++];
  if (const std::string remark = observe::sum_words(*plan); !remark.empty())
    state.resources->logger.info(remark);
  const engine::DeviceRooms rooms = rooms_of(state);
  if (nodes.size() < state.job.members.size()) {
    begin_with_few(self, *plan);
  } else if (auto fits = engine::check_state_memory(state.resources->setup.job, *plan, rooms);
             !rooms.own.empty() && !fits.ok()) {
    return fail(self, fits.error());  // Chosen before these nodes said what they have.
  } else {
    auto change = plan_change(state, *plan, state.job.members.placed());
    if (!change.ok()) return fail(self, change.error());
    bring_up(self, *plan, std::move(change).value());
  }
  // Who has just been lost is not reached: that is known in a moment, and is a loss like any other.
  for (const auto& [node, why] : unreached)
    head_missed(self, node, "the head does not reach it for tensors: " + why);
}

bool change_is_due(const SupervisorState& state) {
  const auto& layouts = state.resources->setup.job.debug.layouts;
  return state.changes < layouts.size() &&
         state.job.loop.planned_steps() + 1 >= layouts[state.changes].step;
}

void take_up(Self self, const ParallelPlan& plan, LayoutChange change) {
  auto& state = self->state;
  tell_of_change(self);
  self->send(state.actors.scheduler, layout_atom::value);
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
      "the layout of step " + std::to_string(state.job.loop.planned_steps() + 1) +
      " is not taken up, the present one stays: " + to_string(change.error()));
  return false;
}

void node_fetched(Self self, NodeId id, EpochNumber epoch_number, double connect_ms) {
  auto& state = self->state;
  if (epoch_number == state.job.members.generation())
    state.change.connect_ms = std::max(state.change.connect_ms, connect_ms);
  if (!state.job.fetched(id, epoch_number)) return;
  state.change.fetched = now(self);
  if (!state.change.arriving.empty() && state.warming)
    state.warming->connect_ms += state.change.connect_ms;
  for (const NodeId node : state.job.members.present())
    send_to_node(self, node, settle_atom::value, epoch_number);
}

bool node_applied(Self self, NodeId id, EpochNumber epoch_number) {
  auto& state = self->state;
  const CameUp what = state.job.applied(id, epoch_number);
  if (what == CameUp::regrouped) {
    regrouped(self);
    drain_slow_nodes(self);
  }
  if (what == CameUp::changed) {
    state.resources->logger.info(change_text(state, now(self)));
    self->send(state.actors.recorder,
               std::make_shared<const observe::RunEvent>(change_event(state, now(self))));
  }
  return what != CameUp::nothing;
}

}  // namespace troupe::actors
