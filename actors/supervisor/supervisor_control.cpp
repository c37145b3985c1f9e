#include "actors/supervisor/supervisor_control.hpp"

#include "actors/supervisor/supervisor_asked_layout.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "runtime/observe/job_status.hpp"
#include "runtime/observe/plan_words.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = SupervisorState::Phase;

std::string phase_word(const SupervisorState& state) {
  if (state.stopping) return "stopping";
  switch (state.phase) {
    case Phase::gathering: return "gathering the nodes of a lost head";
    case Phase::joining: return "waiting for nodes";
    case Phase::applying: return "setting up";
    case Phase::training: return "training";
    case Phase::collecting: return "writing the model";
    case Phase::ending:
    case Phase::ended: break;
  }
  return "ending";
}

std::string what_it_does(const SupervisorState& state, NodeId id) {
  const NodeEntry& node = state.nodes[id.index()];
  if (node.phase == NodeEntry::Phase::missing) return "missing";
  if (node.phase == NodeEntry::Phase::gone) return "gone";
  if (node.phase == NodeEntry::Phase::joined) return "opening its data";
  if (state.leaving.contains(id)) return "leaving";
  if (state.warming && !state.warming->base.nodes().contains(id)) return "warming up";
  return state.configuration.plan.nodes().contains(id) ? "working" : "waiting for work";
}

observe::JobStatus status_of(const SupervisorState& state) {
  const HeadResources& resources = *state.resources;
  observe::JobStatus status;
  status.job = resources.setup.job.job.name;
  status.run = resources.setup.job.job.run_dir.string();
  status.phase = phase_word(state);
  status.step = state.progress.step;
  status.total_steps = state.length ? state.length->steps() : 0;
  status.tokens = state.progress.tokens;
  status.step_ms = state.step_ms_before;
  status.loss = state.last_loss;
  status.generation = state.configuration.epoch_number;
  if (!state.configuration.plan.stages.empty())
    status.layout = observe::layout_words(state.configuration.plan);
  status.tolerance_left = tolerance_of(state.placed);
  status.saved_step = state.saves.last_step;
  status.is_saving = state.saves.running.has_value();
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    const NodeEntry& node = state.nodes[i];
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
  if (state.phase == Phase::ending || state.phase == Phase::ended || state.stopping)
    return refusal("the job ends already", "none needed");
  switch (request.kind) {
    case ControlRequest::Kind::checkpoint:
      if (state.progress.step > 0 && state.saves.last_step == state.progress.step)
        return "step " + std::to_string(state.progress.step) + " is saved already";
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
