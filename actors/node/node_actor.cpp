#include "actors/node/node_actor.hpp"

#include <algorithm>
#include <exception>
#include <limits>

#include "actors/link/exceptions.hpp"
#include "actors/link/refusal.hpp"
#include "actors/link/system.hpp"
#include "actors/node/loader_actor.hpp"
#include "actors/node/node_head.hpp"
#include "actors/node/node_peers.hpp"
#include "runtime/data/batches/epoch_order.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::actors {

namespace {

using Self = NodeSelf;

/// Long enough for a busy head; a lost one is noticed sooner.
constexpr std::chrono::seconds kJoinTimeout{30};

/// Tells the supervisor, whose answer ends this node. A node that cannot begin knows best why, and
/// its exit code says so.
void failed(Self self, const Error& error) {
  auto& state = self->state;
  if (!state.is_open) state.own_fault = JobEnd{exit_code(error), to_string(error)};
  self->send(state.supervisor, failed_atom::value, state.welcome->node, error);
}

/// Notices a file that cannot be read or a format that does not return, also while the data are
/// opened: the supervisor, which gives that `cluster.open_timeout_s`, could not name it.
void watch_reads(Self self, Time now) {
  auto& state = self->state;
  auto fine = state.reads.pass(now, state.welcome->read_timeout_s, files::oldest_read());
  if (fine.ok())
    fine = state.calls.pass(now, state.welcome->stall_timeout_s, plugins::oldest_user_call());
  if (!fine.ok()) failed(self, fine.error());
}

/// A device whose thread is in a stage that never returns cannot say so itself.
void watch_work(Self self, Time now) {
  auto& state = self->state;
  if (state.work.empty()) return;
  const job::Job& job = state.resources->setup.job;
  const Duration interval =
      long_work_interval(job.train.stall_timeout_s, job.cluster.join_timeout_s);
  if (auto told = state.long_work.pass(now, interval, state.work))
    self->send(state.supervisor, state.welcome->node, std::move(*told));
}

/// Only the supervisor hears of both ends of a way on which nothing comes any more.
void watch_waits(Self self, Time now) {
  auto& state = self->state;
  const Duration interval = long_wait_interval(state.welcome->heartbeat_timeout_s);
  auto silent = state.copies.pass(now, interval, state.work);
  if (auto told = state.long_waits.pass(now, interval, state.work, std::move(silent)))
    self->send(state.supervisor, state.welcome->node, std::move(*told));
}

/// Shows the supervisor that this node lives, and ends the node where the supervisor is silent.
void watch(Self self) {
  auto& state = self->state;
  const Time now = self->clock().now();
  if (state.pace.due(now, seconds(state.welcome->heartbeat_interval_s)))
    self->send(state.supervisor, alive_atom::value, state.welcome->node);
  const double timeout_s = state.welcome->heartbeat_timeout_s;
  if (!state.lost_head && state.silence.pass(now, seconds(timeout_s)))
    head_lost(self, "the supervisor was lost: " + silent_for(timeout_s), false);
  watch_for_head(self);
  watch_reads(self, now);
  watch_work(self, now);
  watch_waits(self, now);
  self->delayed_send(self, look_interval(state.welcome->heartbeat_interval_s), tick_atom::value);
}

// ---- joining

Result<NodeReady> open_guarded(const NodeStart& start, const NodeWelcome& welcome) {
  try {
    return start.open(welcome);
  } catch (const UserFault& fault) {  // Of a family that is asked there.
    return fault.error();
  } catch (...) {
    return describe_exception("opening the data", std::current_exception());
  }
}

/// Has a place in the job: opens what it works with, and listens meanwhile.
void welcomed(Self self, const NodeWelcome& welcome) {
  auto& state = self->state;
  state.welcome = welcome;
  state.resources->node = welcome.node;
  if (state.start.on_head) state.start.on_head(state.supervisor, welcome.node);
  self->spawn<caf::detached>(
      [start = state.start, welcome,
       node = caf::actor_cast<NodeActor>(self)](caf::event_based_actor* opener) {
        auto ready = open_guarded(start, welcome);
        if (ready.ok())
          opener->send(node, std::move(ready).value());
        else
          opener->send(node, failed_atom::value, std::move(ready).error());
      });
  watch(self);
}

void join(Self self) {
  self->request(self->state.supervisor, kJoinTimeout, join_atom::value, self->state.start.hello)
      .then([self](const NodeWelcome& welcome) { welcomed(self, welcome); },
            [self](const caf::error& error) {
              const Error why = no_welcome(error, self->state.start.joins, kJoinTimeout);
              // A head that says nothing to be done begins again itself.
              const bool is_early = why.fix.empty();
              end_node(self, {exit_code(why), to_string(why), is_early, {}, is_early ? 1 : 0});
            });
}

void opened(Self self, const NodeReady& ready) {
  auto& state = self->state;
  state.is_open = true;
  state.ready = ready;
  state.epochs = data::Epochs(state.resources->dataset->size());
  state.resources->transport->on_peer_failure(
      [node = caf::actor_cast<NodeActor>(self), resources = state.resources](
          transport::Peer peer, const Error& error, bool was_up) {
        resources->losses.lose(peer, error);
        caf::anon_send(node, lost_atom::value, NodeId{peer}, was_up, error.message);
      });
  state.loader =
      self->spawn<caf::detached>(loader, state.resources, caf::actor_cast<NodeActor>(self));
  self->send(state.supervisor, ready);
}

/// Asks the supervisor to end the job; its answer ends this node.
void stop(Self self, std::int32_t signal) {
  auto& state = self->state;
  const std::string why = "stopped by " + signal_name(signal);
  if (state.lost_head && stays_to_save(self, signal, why)) return;
  if (!state.welcome || state.lost_head) return end_node(self, {128 + signal, ""});
  state.leaves = {{why, true}};
  ask_to_leave(self);
}

// ---- work

/// Tells the supervisor once all devices have done their part of the change of layout.
void tell_if_all(Self self, const std::set<std::int32_t>& done, auto what, auto... more) {
  auto& state = self->state;
  if (done.size() == state.executors.size())
    self->send(state.supervisor, what, state.resources->node, state.configuration.epoch_number,
               more...);
}

void tell_if_fetched(Self self) {
  tell_if_all(self, self->state.fetched, fetched_atom::value, self->state.connect_ms);
}

/// Devices that this node did not have before. Each is asked for its part of the model at the end,
/// also where this layout does not come up and no later one gives it work.
void spawn_devices(Self self, const ParallelPlan& plan) {
  auto& state = self->state;
  for (const DeviceSlot& device : plan.devices) {
    if (device.node != state.resources->node || state.executors.contains(device.local_index))
      continue;
    auto& work = state.work[device.local_index] = std::make_shared<engine::WorkInHand>();
    state.executors[device.local_index] = self->spawn<caf::detached>(
        executor, state.resources, caf::actor_cast<NodeActor>(self), device.local_index, work);
  }
}

void apply(Self self, const Configuration& configuration) {
  auto& state = self->state;
  state.configuration = configuration;
  state.progress = configuration.progress;
  state.fetched.clear();
  state.applied.clear();
  state.finished_devices.clear();
  state.resources->wanted_epoch = configuration.epoch_number;
  // All steps of older layouts have ended, or will not; what they wait for must not be in the way.
  state.resources->transport->drop_older_than(configuration.epoch_number);
  state.resources->masks.drop();
  spawn_devices(self, configuration.plan);
  disconnect_peers(state);
  tell_broken_ways(self);
  if (!connect_peers(self)) return;  // This layout does not come up.
  state.copies.begin(*state.resources->transport, configuration, state.resources->node);
  for (auto& [device, executor] : state.executors)
    self->send(executor, apply_atom::value, configuration);
  tell_if_fetched(self);  // A node without devices has all it needs.
}

/// Devices of this node that work in the present layout.
std::size_t working_devices(const NodeState& state) {
  const auto& devices = state.configuration.plan.devices;
  return static_cast<std::size_t>(std::ranges::count_if(
      devices, [&](const DeviceSlot& device) { return device.node == state.resources->node; }));
}

void settle(Self self, EpochNumber epoch_number) {
  auto& state = self->state;
  if (epoch_number != state.configuration.epoch_number) return;
  tell_broken_way_to_head(self);
  state.resources->epoch_number = epoch_number;
  state.plan = state.configuration.plan;
  state.arriving = state.configuration.arriving;
  if (state.arriving.empty()) state.copies.end();
  if (working_devices(state) == 0) {
    state.resources->samples.drop_before(std::numeric_limits<std::int64_t>::max());
    state.resources->audience.listeners().rest();
  }
  for (auto& [device, executor] : state.executors)
    self->send(executor, settle_atom::value, epoch_number);
  tell_if_all(self, state.applied, applied_atom::value);
}

void device_fetched(Self self, std::int32_t device, EpochNumber epoch_number) {
  if (epoch_number != self->state.configuration.epoch_number) return;
  self->state.fetched.insert(device);
  tell_if_fetched(self);
}

void device_applied(Self self, std::int32_t device, EpochNumber epoch_number) {
  if (epoch_number != self->state.configuration.epoch_number) return;
  self->state.applied.insert(device);
  tell_if_all(self, self->state.applied, applied_atom::value);
}

void run(Self self, IterationPlan plan) {
  auto& state = self->state;
  if (plan.epoch_number != state.configuration.epoch_number) return;  // Of an older layout.
  const auto shared = std::make_shared<const IterationPlan>(std::move(plan));
  // Before its devices have it, which may turn to it at once.
  state.resources->masks.expect(shared, state.configuration.plan, state.resources->node,
                                engine::gpu_lists_of(state.resources->setup.job));
  for (const DeviceSlot& device : state.configuration.plan.devices)
    if (device.node == state.resources->node)
      self->send(state.executors.at(device.local_index), shared);
}

/// What observers hear of a step: behind all that its devices have shown of it.
void show_verdict(NodeState& state, const engine::StepVerdict& verdict) {
  if (state.resources->audience.is_empty()) return;
  const auto& [decision, note] = verdict;
  state.resources->audience.show(observers::ObservedStep{
      note.step, decision.commit, note.loss, note.grad_norm, decision.learning_rate,
      note.step_tokens, note.trained_tokens, note.ids});
}

/// When all devices have finished a step, its samples are no longer needed.
void device_finished(Self self, engine::DeviceReport report) {
  auto& state = self->state;
  report.observed = state.resources->audience.take_tally();
  self->send(state.supervisor, report);
  if (++state.finished_devices[report.step] < working_devices(state)) return;
  state.finished_devices.erase(report.step);
  step_finished(self, report.step);
  const auto next =
      state.epochs.span(report.step, state.resources->setup.job.train.global_batch_size);
  state.resources->samples.drop_before(state.epochs.places_before(next.epoch) + next.begin);
}

}  // namespace

void end_node(Self self, JobEnd how) {
  auto& state = self->state;
  if (state.lost_head) *state.lost_head->called_off = true;
  for (auto& [device, executor] : state.executors)
    self->send_exit(executor, caf::exit_reason::user_shutdown);
  if (state.loader) self->send_exit(state.loader, caf::exit_reason::user_shutdown);
  if (state.own_fault) how = std::move(*state.own_fault);
  if (auto on_end = std::exchange(state.start.on_end, nullptr)) on_end(std::move(how));
  self->quit();
}

NodeActor::behavior_type node(Self self, NodeResources* resources, SupervisorActor supervisor,
                              NodeStart start) {
  auto& state = self->state;
  state.resources = resources;
  state.supervisor = supervisor;
  state.start = std::move(start);
  resources->is_heads_own = state.start.hello.is_heads_own;
  tell_of_exceptions(self, "the node", [self](const Error& error) {
    if (self->state.welcome) failed(self, error);
    end_node(self, {exit_code(error), to_string(error)});
  });
  self->monitor(supervisor);
  self->set_down_handler(
      [self](const caf::down_msg& down) { connection_ended(self, down.source); });
  self->set_exit_handler([self](const caf::exit_msg&) { end_node(self, {1, ""}); });
  join(self);
  return {
      [self](apply_atom, const Configuration& configuration) {
        if (counts(self)) apply(self, configuration);
      },
      [self](settle_atom, EpochNumber epoch_number) {
        if (counts(self)) settle(self, epoch_number);
      },
      [self](IterationPlan& plan) {
        if (counts(self)) run(self, std::move(plan));
      },
      [self](const engine::StepVerdict& verdict) {
        if (!counts(self)) return;
        note_verdict(self->state, verdict);
        show_verdict(self->state, verdict);
        for (auto& [device, executor] : self->state.executors)
          self->send(executor, verdict.decision);
      },
      [self](const engine::BatchOrder& order) {
        if (!counts(self)) return;
        self->state.scheduler = caf::actor_cast<SchedulerActor>(self->current_sender());
        self->state.epochs = order.epochs.empty()
                                 ? data::Epochs(self->state.resources->dataset->size())
                                 : data::Epochs(order.epochs);
        self->send(self->state.loader, order);
      },
      [self](collect_atom, Collection collection) {
        if (!counts(self)) return;
        for (auto& [device, executor] : self->state.executors)
          self->send(executor, collect_atom::value, collection);
      },
      [self](const SaveOrder& order) {
        if (!counts(self)) return;
        self->state.resources->save_number = order.number;
        for (auto& [device, executor] : self->state.executors) self->send(executor, order);
      },
      [self](stop_atom, const std::string& why, std::int32_t exit_code) {
        if (counts(self)) end_node(self, {exit_code, why, true});
      },
      [self](stop_atom, const Error& why) {
        if (counts(self))
          end_node(self, {exit_code(why), to_string(refused_at(self->state.start.joins, why))});
      },
      [self](begin_atom, const std::string& why) {
        if (counts(self)) end_node(self, {kResumable, why, true, {}, 1});
      },
      [self](stop_atom, std::int32_t signal) { stop(self, signal); },
      [self](leave_atom, const std::string& why) {
        if (counts(self)) note_leave(self->state, why);
      },
      [self](alive_atom) {
        if (!counts(self)) return;
        self->state.silence.heard(self->clock().now());
        head_is_back(self);
      },
      [self](lost_atom, NodeId peer, bool was_up, const std::string& how) {
        peer_lost(self, peer, was_up, how);
      },
      [self](join_atom, const caf::strong_actor_ptr& found) { head_found(self, found); },
      [self](tick_atom) { watch(self); },
      [self](const engine::Prepared& prepared) { self->send(self->state.supervisor, prepared); },
      [self](const engine::DeviceReport& report) { device_finished(self, report); },
      [self](fetched_atom, std::int32_t device, EpochNumber epoch_number) {
        device_fetched(self, device, epoch_number);
      },
      [self](applied_atom, std::int32_t device, EpochNumber epoch_number) {
        device_applied(self, device, epoch_number);
      },
      [self](const engine::BatchReport& report) { self->send(self->state.scheduler, report); },
      [self](const Offers& offers) { self->send(self->state.supervisor, offers); },
      [self](const SaveReport& report) { self->send(self->state.supervisor, report); },
      [self](const NodeReady& ready) { opened(self, ready); },
      [self](failed_atom, const Error& error) { failed(self, error); },
      [self](failed_atom, EpochNumber epoch, const Error& error) {
        self->send(self->state.supervisor, failed_atom::value, self->state.resources->node, epoch,
                   error);
      },
      [self](const engine::FailedWork& failed) {
        self->send(self->state.supervisor, self->state.resources->node, failed);
      },
  };
}

}  // namespace troupe::actors
