#include "actors/supervisor/supervisor_control.hpp"

#include "actors/supervisor/supervisor_asked_layout.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "runtime/observe/job_status.hpp"
#include "runtime/observe/plan_words.hpp"

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

std::string what_it_does(const SupervisorState& state, NodeId id) {
  const Member& node = state.job.members[id];
  if (node.phase == Member::Phase::missing) return "missing";
  if (node.phase == Member::Phase::gone) return "gone";
  if (node.phase == Member::Phase::joined) return "opening its data";
  if (state.job.members.leaving().contains(id)) return "leaving";
  if (state.warming && !state.warming->base.nodes().contains(id)) return "warming up";
  return state.configuration.plan.nodes().contains(id) ? "working" : "waiting for work";
}

observe::JobStatus status_of(const SupervisorState& state) {
  const HeadResources& resources = *state.resources;
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
    observe::NodeStatus& line = status.nodes.emplace_back();
    line.node = NodeId{i};
    line.host = node.host;
    line.pid = node.pid;
    line.state = what_it_does(state, NodeId{i});
    for (const DeviceSlot& device : state.configuration.plan.devices)
      if (device.node == NodeId{i}) ++line.devices;
  }
  return status;
}

caf::error refusal(const std::string& why, const std::string& fix) {
  return caf::make_error(caf::sec::runtime_error, why, fix);
}

}  // namespace

caf::result<std::string> control(Self self, const ControlRequest& request) {
  auto& state = self->state;
  if (request.kind == ControlRequest::Kind::status) return observe::status_line(status_of(state));
  if (state.job.is_over() || state.job.is_stopping())
    return refusal("the job ends already", "none needed");
  switch (request.kind) {
    case ControlRequest::Kind::checkpoint:
      if (state.job.loop.progress().step > 0 &&
          state.saves.last_step == state.job.loop.progress().step)
        return "step " + std::to_string(state.job.loop.progress().step) + " is saved already";
      want_save(self);
      return std::string("the state of the last finished step is being saved");
    case ControlRequest::Kind::stop:
      begin_stop(self, "stopped by troupe ctl", 1);
      return std::string("the job saves and ends");
    case ControlRequest::Kind::drain: {
      const auto drained = drain(self, request.node, "troupe ctl asks for it", false);
      if (!drained.ok()) return refusal(drained.error().message, drained.error().fix);
      return "node " + std::to_string(request.node.value) + " leaves before the next step";
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
