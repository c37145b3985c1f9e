#include "actors/node_actor.hpp"

#include "actors/loader_actor.hpp"
#include "actors/peers.hpp"
#include "actors/system.hpp"
#include "runtime/data/epoch_order.hpp"

namespace troupe::actors {

namespace {

using Self = NodeActor::stateful_pointer<NodeState>;

void end(Self self, JobEnd how) {
  auto& state = self->state;
  for (auto& [device, executor] : state.executors)
    self->send_exit(executor, caf::exit_reason::user_shutdown);
  if (state.loader) self->send_exit(state.loader, caf::exit_reason::user_shutdown);
  if (auto on_end = std::exchange(state.on_end, nullptr)) on_end(std::move(how));
  self->quit();
}

std::string lost_supervisor(Self self, const std::string& why) {
  return "node " + std::to_string(self->state.resources->node.value) + ": " + why;
}

/// Shows the supervisor that this node lives, and ends the node where the supervisor is silent.
void watch(Self self) {
  auto& state = self->state;
  const job::Cluster& cluster = state.resources->setup.job.cluster;
  const Time now = self->clock().now();
  if (state.pace.due(now, seconds(cluster.heartbeat_interval_s)))
    self->send(state.supervisor, alive_atom::value, state.resources->node);
  if (state.silence.pass(now, seconds(cluster.heartbeat_timeout_s)))
    return end(self, {1, lost_supervisor(self, "the supervisor was lost: " +
                                                   silent_for(cluster.heartbeat_timeout_s))});
  self->delayed_send(self, look_interval(cluster), tick_atom::value);
}

/// Asks the supervisor to end the job; its answer ends this node.
void stop(Self self, std::int32_t signal) {
  self->send(self->state.supervisor, failed_atom::value, self->state.resources->node,
             Error{Errc::cancelled,
                   "stopped by " + signal_name(signal),
                   {},
                   "start the job again; it needs every node"});
}

Status connect_peers(NodeState& state) {
  for (const NodeReady& peer : state.configuration.nodes)
    if (auto connected = connect_to(*state.resources->transport, peer); !connected.ok())
      return connected;
  return Done{};
}

void apply(Self self, const Configuration& configuration) {
  auto& state = self->state;
  state.configuration = configuration;
  state.applied.clear();
  if (auto connected = connect_peers(state); !connected.ok())
    return self->send(state.supervisor, failed_atom::value, state.resources->node,
                      connected.error());
  const auto& devices = configuration.plan.devices;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].node != state.resources->node) continue;
    const DeviceId device{i};
    if (!state.executors.contains(device))
      state.executors[device] = self->spawn<caf::detached>(
          executor, state.resources, caf::actor_cast<NodeActor>(self), device);
    self->send(state.executors[device], apply_atom::value, configuration);
  }
}

void device_applied(Self self, DeviceId device) {
  auto& state = self->state;
  state.applied.insert(device);
  if (state.applied.size() == state.executors.size())
    self->send(state.supervisor, applied_atom::value, state.resources->node,
               state.configuration.epoch_number);
}

void run(Self self, IterationPlan plan) {
  auto& state = self->state;
  if (plan.epoch_number != state.configuration.epoch_number) return;  // Of an older layout.
  const auto shared = std::make_shared<const IterationPlan>(std::move(plan));
  for (auto& [device, executor] : state.executors) self->send(executor, shared);
}

/// When all devices have finished a step, its samples are no longer needed.
void device_finished(Self self, const engine::DeviceReport& report) {
  auto& state = self->state;
  self->send(state.supervisor, report);
  if (++state.finished_devices[report.step] < state.executors.size()) return;
  state.finished_devices.erase(report.step);
  const std::int64_t records = state.resources->dataset->size();
  const auto next =
      data::batch_span(report.step, state.resources->setup.job.train.global_batch_size, records);
  state.resources->samples.drop_before(next.epoch * records + next.begin);
}

}  // namespace

NodeActor::behavior_type node(Self self, NodeResources* resources, SupervisorActor supervisor,
                              std::function<void(JobEnd)> on_end) {
  auto& state = self->state;
  state.resources = resources;
  state.supervisor = supervisor;
  state.on_end = std::move(on_end);
  self->monitor(supervisor);
  self->set_down_handler([self](const caf::down_msg&) {
    end(self, {1, lost_supervisor(self, "the connection to the supervisor was lost")});
  });
  self->set_exit_handler([self](const caf::exit_msg&) { end(self, {1, ""}); });
  state.loader = self->spawn<caf::detached>(loader, resources, caf::actor_cast<NodeActor>(self));
  watch(self);
  return {
      [self](apply_atom, const Configuration& configuration) { apply(self, configuration); },
      [self](IterationPlan& plan) { run(self, std::move(plan)); },
      [self](const engine::Decision& decision) {
        for (auto& [device, executor] : self->state.executors) self->send(executor, decision);
      },
      [self](const engine::BatchOrder& order) {
        self->state.scheduler = caf::actor_cast<SchedulerActor>(self->current_sender());
        self->send(self->state.loader, order);
      },
      [self](collect_atom, Collection collection) {
        for (auto& [device, executor] : self->state.executors)
          self->send(executor, collect_atom::value, collection);
      },
      [self](stop_atom, const std::string& why) {
        end(self, {why.empty() ? 0 : 1, why, true});
      },
      [self](stop_atom, std::int32_t signal) { stop(self, signal); },
      [self](alive_atom) { self->state.silence.heard(); },
      [self](tick_atom) { watch(self); },
      [self](const engine::Prepared& prepared) { self->send(self->state.supervisor, prepared); },
      [self](const engine::DeviceReport& report) { device_finished(self, report); },
      [self](applied_atom, DeviceId device) { device_applied(self, device); },
      [self](const engine::BatchReport& report) { self->send(self->state.scheduler, report); },
      [self](DeviceId, const Offers& offers) { self->send(self->state.supervisor, offers); },
      [self](failed_atom, const Error& error) {
        self->send(self->state.supervisor, failed_atom::value, self->state.resources->node, error);
      },
  };
}

}  // namespace troupe::actors
