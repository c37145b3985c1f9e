#include "actors/supervisor/supervisor_control.hpp"

#include <algorithm>
#include <map>

#include "actors/supervisor/supervisor_asked_layout.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "runtime/observe/job_status.hpp"
#include "runtime/observe/plan_words.hpp"
#include "scheduler/state/standby_holders.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = JobPhase;

std::string phase_word(const SupervisorState& state) {
  if (state.job.is_stopping()) return "stopping";
  switch (state.job.phase()) {
    case Phase::gathering: return "gathering the nodes of a lost head";
    case Phase::joining: return "waiting for nodes";
    case Phase::applying: return "setting up";
    case Phase::training: return state.waiting ? "waiting for more nodes" : "training";
    case Phase::collecting: return "writing the model";
    case Phase::ending:
    case Phase::ended: break;
  }
  return "ending";
}

/// What a node has in the newest layout.
struct NodeShare {
  std::int32_t devices = 0;
  std::int32_t stages = 0;
  std::int32_t standby_layers = 0;  ///< That have come.
};

std::map<NodeId, NodeShare> shares_of(const Configuration& configuration) {
  const ParallelPlan& plan = configuration.plan;
  std::map<NodeId, NodeShare> shares;
  for (const DeviceSlot& device : plan.devices) ++shares[device.node].devices;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) ++shares[plan.node_of(StageId{s})].stages;
  const auto& arriving = configuration.arriving;
  for (const Standby& standby : plan.standbys)
    if (standby.tied.empty() &&
        std::find(arriving.begin(), arriving.end(), standby) == arriving.end())
      ++shares[plan.devices[standby.device.index()].node].standby_layers;
  return shares;
}

/// Layers of a model that have state of their own.
std::int32_t layers_with_state(const ModelGraph& model) {
  const auto units = scheduler::state_units(model);
  return static_cast<std::int32_t>(std::count_if(
      units.begin(), units.end(), [](const auto& unit) { return unit.tied.empty(); }));
}

std::string what_it_does(const SupervisorState& state, NodeId id, const NodeShare& share) {
  const Member& node = state.job.members[id];
  if (node.phase == Member::Phase::missing) return "missing";
  if (node.phase == Member::Phase::gone) return "gone";
  if (node.phase == Member::Phase::joined) return "joining";
  if (state.job.members.leaving().contains(id)) return "draining";
  if (state.warming && !state.warming->base.nodes().contains(id)) return "warming up";
  if (share.stages > 0) return "working";
  if (share.devices == 0) return "waiting for work";
  return state.resources->setup.job.cluster.spares > 0 ? "spare" : "standing by";
}

/// How long nothing was heard of a node that is there; 0: no longer than between signs of life.
double silence_s(const SupervisorState& state, NodeId id, Time now) {
  const Member& node = state.job.members[id];
  if (!is_there(node)) return 0;
  const Time heard = std::max(state.links[id.index()].silence.last_heard(), node.since);
  const double silent_s = std::chrono::duration<double>(now - heard).count();
  const double usual_s = 2 * state.resources->setup.job.cluster.heartbeat_interval_s;
  return silent_s > usual_s ? silent_s : 0;
}

observe::JobStatus status_of(const SupervisorState& state, Time now) {
  const HeadResources& resources = *state.resources;
  auto shares = shares_of(state.configuration);
  observe::JobStatus status;
  status.job = resources.setup.job.job.name;
  status.run = resources.setup.job.job.run_dir.string();
  status.phase = phase_word(state);
  status.step = state.job.loop.progress().step;
  status.total_steps = state.job.loop.total_steps();
  status.tokens = state.job.loop.progress().tokens;
  status.step_ms = state.step_ms_before;
  status.loss = state.last_loss;
  status.generation = state.job.members.generation();
  if (!state.configuration.plan.stages.empty())
    status.layout = observe::layout_words(state.configuration.plan);
  status.layers = layers_with_state(resources.setup.model);
  status.tolerance_left = state.job.members.losses_borne();
  const job::Cluster& cluster = resources.setup.job.cluster;
  status.fault_tolerance = cluster.fault_tolerance;
  status.min_nodes = cluster.min_nodes;
  status.spares = cluster.spares;
  status.join = resources.door;
  status.saved_step = state.saves.last_step;
  status.is_saving = state.saves.running.has_value();
  for (std::size_t i = 0; i < state.job.members.size(); ++i) {
    const Member& node = state.job.members[NodeId{i}];
    const NodeShare& share = shares[NodeId{i}];
    observe::NodeStatus& line = status.nodes.emplace_back();
    line.node = NodeId{i};
    line.host = node.host;
    line.pid = node.pid;
    line.state = what_it_does(state, NodeId{i}, share);
    line.devices = share.devices;
    line.standby_layers = share.standby_layers;
    line.silent_s = silence_s(state, NodeId{i}, now);
  }
  return status;
}

/// What comes of a wish for a checkpoint.
std::string saving_words(const SupervisorState& state) {
  if (state.gathering)
    return "the state is saved once the nodes of the head before are gathered and go on";
  if (state.job.loop.progress().step == 0) return "the state is saved once a step is finished";
  return "the state of the last finished step is being saved";
}

/// What comes of a stop.
std::string stopping_words(const SupervisorState& state) {
  if (state.gathering)
    return "the head ends; nodes of this run go on waiting for a head, with their state, and the "
           "same command goes on with them";
  if (state.job.loop.progress().step == 0 && !state.job.loop.is_decided())
    return "the job ends: no step is finished, so that there is nothing to save";
  return "the job saves and ends";
}

caf::error refusal(const std::string& why, const std::string& fix) {
  return caf::make_error(caf::sec::runtime_error, why, fix);
}

}  // namespace

caf::result<std::string> control(Self self, const ControlRequest& request) {
  auto& state = self->state;
  if (request.kind == ControlRequest::Kind::status)
    return observe::status_line(status_of(state, now(self)));
  if (state.job.is_over() || state.job.is_stopping())
    return refusal("the job ends already", "none needed");
  switch (request.kind) {
    case ControlRequest::Kind::checkpoint:
      if (state.job.loop.progress().step > 0 &&
          state.saves.last_step == state.job.loop.progress().step)
        return "step " + std::to_string(state.job.loop.progress().step) + " is saved already";
      want_save(self);
      return saving_words(state);
    case ControlRequest::Kind::stop: {
      const std::string words = stopping_words(state);  // As it is before that.
      begin_stop(self, "stopped by troupe ctl", 1);
      return words;
    }
    case ControlRequest::Kind::drain: {
      const auto drained = drain(self, request.node, "troupe ctl asks for it", false);
      if (!drained.ok()) return refusal(drained.error().message, drained.error().fix);
      const std::string few = too_few_behind_leavers(state);
      return "node " + std::to_string(request.node.value) + " leaves before the next step" +
             (few.empty() ? "" : "; " + few);
    }
    case ControlRequest::Kind::layout: {
      auto asked = ask_for_layout(self, request);
      if (asked.ok()) return std::move(asked).value();
      const Error& why = asked.error();
      return refusal((why.where.empty() ? "" : why.where + ": ") + why.message, why.fix);
    }
    case ControlRequest::Kind::status: break;
  }
  return refusal("an unknown request", "use the troupe that the job runs");
}

}  // namespace troupe::actors
