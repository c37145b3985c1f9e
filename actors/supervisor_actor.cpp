#include "actors/supervisor_actor.hpp"

#include <csignal>

#include "actors/peers.hpp"
#include "actors/supervisor_records.hpp"
#include "actors/version.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorActor::stateful_pointer<SupervisorState>;
using Phase = SupervisorState::Phase;
using NodePhase = NodeEntry::Phase;

constexpr auto kTick = std::chrono::milliseconds(200);
/// Time that nodes have to end after they were told to.
constexpr auto kEndTimeout = std::chrono::seconds(4);
/// Time for the better reason: a process that ended says more than its lost connection, and both
/// say more than the peers that missed it.
constexpr auto kReasonTimeout = std::chrono::milliseconds(300);
constexpr std::size_t kStepsAhead = 2;

SupervisorState::Time now(Self self) { return self->clock().now(); }

void send_to_node(Self self, const NodeEntry& node, auto&&... values) {
  if (node.handle && node.phase != NodePhase::gone)
    self->send(caf::actor_cast<NodeActor>(node.handle), std::forward<decltype(values)>(values)...);
}

void finish_if_all_gone(Self self, bool at_once = false) {
  auto& state = self->state;
  if (state.phase != Phase::ending) return;
  const bool all_gone =
      std::all_of(state.nodes.begin(), state.nodes.end(), [](const NodeEntry& node) {
        return node.phase == NodePhase::missing || node.phase == NodePhase::gone;
      });
  const bool done = all_gone && state.recorded;
  if (!done && !at_once && now(self) < state.deadline) return;
  state.phase = Phase::ended;
  if (state.colleagues.scheduler)
    self->send_exit(state.colleagues.scheduler, caf::exit_reason::user_shutdown);
  if (state.colleagues.recorder)
    self->send_exit(state.colleagues.recorder, caf::exit_reason::user_shutdown);
  if (auto on_end = std::exchange(state.resources->on_end, nullptr)) on_end(state.how);
  self->quit();
}

/// Tells every node to end and remembers how the job ended; the first reason stands.
void end(Self self, JobEnd how) {
  auto& state = self->state;
  if (state.phase == Phase::ending || state.phase == Phase::ended) return;
  state.phase = Phase::ending;
  state.how = std::move(how);
  state.deadline = now(self) + kEndTimeout;
  for (const NodeEntry& node : state.nodes)
    send_to_node(self, node, stop_atom::value, state.how.message);
  const auto recorded = [self] {
    self->state.recorded = true;
    finish_if_all_gone(self);
  };
  self->request(state.colleagues.recorder, caf::infinite, finish_atom::value)
      .then([recorded](finish_atom) { recorded(); }, [recorded](const caf::error&) { recorded(); });
}

void fail(Self self, const Error& error) { end(self, {exit_code(error), to_string(error)}); }

caf::result<NodeWelcome> join(Self self, const NodeHello& hello) {
  auto& state = self->state;
  const auto refuse = [&](const std::string& why) {
    state.resources->logger.warning("refused " + hello.host + " (pid " + std::to_string(hello.pid) +
                                    "): " + why);
    return caf::make_error(caf::sec::runtime_error, why);
  };
  if (state.phase != Phase::joining) return refuse("the job has started without this node");
  if (hello.build != kVersion)
    return refuse("it is version " + hello.build + " of troupe, the job runs " + kVersion);
  const std::size_t id = free_place(state, hello.wanted_node);
  if (id == state.nodes.size())
    return refuse(hello.wanted_node < 0
                      ? "all nodes that are not the head's own have joined already"
                      : "node " + std::to_string(hello.wanted_node) +
                            " does not exist or has joined already");
  NodeEntry& node = state.nodes[id];
  node.phase = NodePhase::joined;
  node.host = hello.host;
  node.pid = hello.pid;
  return NodeWelcome{NodeId{id}, state.resources->resolved_job};
}

/// Brings a layout up: from nothing at the start of a job, later from what is there.
void bring_up(Self self, EpochNumber epoch_number) {
  auto& state = self->state;
  state.phase = Phase::applying;
  transport::Transport& transport = *state.resources->transport;
  state.configuration = {epoch_number, state.resources->plan, {}};
  for (const NodeEntry& node : state.nodes) {
    state.configuration.nodes.push_back(node.ready);
    auto connected = connect_to(transport, node.ready);
    if (!connected.ok()) return fail(self, connected.error());
  }
  state.configuration.nodes.push_back(
      introduce(NodeId{state.nodes.size()}, transport, state.resources->data));
  for (const NodeEntry& node : state.nodes)
    send_to_node(self, node, apply_atom::value, state.configuration);
}

void node_ready(Self self, const NodeReady& ready) {
  auto& state = self->state;
  NodeEntry& node = state.nodes[ready.node.index()];
  if (state.phase != Phase::joining || node.phase != NodePhase::joined) return;
  node.ready = ready;
  node.phase = NodePhase::ready;
  node.handle = self->current_sender();
  self->monitor(node.handle);
  const std::string who = describe(node, ready.node.index());
  state.resources->logger.info(who + " joined");
  if (auto same = engine::same_data(state.resources->data, ready.data, who); !same.ok())
    return fail(self, same.error());
  if (all_in(state, NodePhase::ready)) bring_up(self, 1);
}

/// Asks for one plan at a time, as long as devices have room for another step.
void ask_for_plan(Self self) {
  auto& state = self->state;
  if (state.planning || state.last_planned || state.steps.size() >= kStepsAhead) return;
  state.planning = true;
  self->send(state.colleagues.scheduler, next_atom::value);
}

void start_training(Self self) {
  auto& state = self->state;
  state.phase = Phase::training;
  std::vector<caf::strong_actor_ptr> handles;
  for (const NodeEntry& node : state.nodes) handles.push_back(node.handle);
  self->send(state.colleagues.recorder, begin_atom::value, state.configuration);
  self->send(state.colleagues.scheduler, begin_atom::value, state.configuration, handles);
  state.last_finish = now(self);
  ask_for_plan(self);
}

void node_applied(Self self, NodeId id, EpochNumber epoch_number) {
  auto& state = self->state;
  if (state.phase != Phase::applying || epoch_number != state.configuration.epoch_number) return;
  state.nodes[id.index()].phase = NodePhase::applied;
  if (all_in(state, NodePhase::applied)) start_training(self);
}

void finish_step(Self self);

/// The step's outcome is known: tells the devices, or closes a step that no device ran.
void decide(Self self, RunningStep& step) {
  auto& state = self->state;
  const auto& iteration = step.batch->iteration;
  const engine::StepPolicy policy{
      state.length->learning_rate(step.batch->batch + 1, step.tokens_before),
      state.resources->setup.job.optimizer.max_grad_norm};
  step.outcome = step.ledger.outcome(iteration.trained_tokens, policy);
  if (iteration.samples.empty()) return;
  for (const NodeEntry& node : state.nodes) send_to_node(self, node, step.outcome->decision);
}

void planned(Self self, const PlannedBatchPtr& batch) {
  auto& state = self->state;
  if (state.phase != Phase::training) return;
  state.planning = false;
  self->send(state.colleagues.recorder, batch);
  for (const auto& dropped : batch->dropped) state.bad_ids.insert(dropped.why.id);
  const auto& resources = *state.resources;
  auto checked = engine::check_bad_samples(
      resources.setup.job, static_cast<std::int64_t>(state.bad_ids.size()), resources.data.records);
  if (!checked.ok()) return fail(self, checked.error());
  const bool idle = state.steps.empty();
  RunningStep step{batch,
                   engine::StepLedger(batch->batch + 1, state.configuration.epoch_number,
                                      state.configuration.plan.devices.size()),
                   {},
                   {},
                   state.planned_tokens,
                   idle ? milliseconds_between(state.last_finish, now(self)) : 0};
  for (const auto& sample : batch->iteration.samples) state.planned_tokens += sample.llm_tokens;
  state.last_planned = state.length->reached(batch->batch + 1, state.planned_tokens);
  state.steps.push_back(std::move(step));
  if (!batch->iteration.samples.empty())
    for (std::size_t i = 0; i < state.nodes.size(); ++i)
      send_to_node(self, state.nodes[i],
                   engine::slice_for(batch->iteration, state.configuration.plan, NodeId{i}));
  if (idle && batch->iteration.samples.empty()) {
    decide(self, state.steps.front());
    finish_step(self);
  }
  ask_for_plan(self);
}

void prepared(Self self, const engine::Prepared& report) {
  auto& state = self->state;
  RunningStep* step = find_step(state, report.step);
  if (state.phase != Phase::training || !step || !step->ledger.add(report)) return;
  if (step->ledger.complete()) decide(self, *step);
}

void begin_collecting(Self self);

/// The oldest step is complete: records it, and goes on or ends.
void finish_step(Self self) {
  auto& state = self->state;
  RunningStep step = std::move(state.steps.front());
  state.steps.pop_front();
  if (auto same = compare_hashes(state.configuration.plan, step.reports); !same.ok())
    return fail(self, same.error());
  const auto counted =
      state.skipped->add(step.ledger.step(), *step.outcome, step.batch->iteration.trained_tokens,
                         step.batch->span.size());
  const auto record = std::make_shared<const StepRecord>(make_record(state, step, now(self)));
  self->send(state.colleagues.recorder, record);
  if (state.resources->setup.job.balancer.adaptive_correction)
    self->send(state.colleagues.scheduler, step.batch, record);
  state.last_finish = now(self);
  if (!counted.ok()) return fail(self, counted.error());
  if (state.steps.empty() && state.last_planned) return begin_collecting(self);
  if (!state.steps.empty() && state.steps.front().batch->iteration.samples.empty()) {
    decide(self, state.steps.front());
    return finish_step(self);
  }
  ask_for_plan(self);
}

void device_finished(Self self, const engine::DeviceReport& report) {
  auto& state = self->state;
  RunningStep* step = find_step(state, report.step);
  if (state.phase != Phase::training || !step) return;
  if (report.epoch_number != state.configuration.epoch_number) return;
  step->reports.push_back(report);
  const std::size_t devices = state.configuration.plan.devices.size();
  while (!state.steps.empty() && state.phase == Phase::training &&
         state.steps.front().reports.size() == devices)
    finish_step(self);
}

void collect_next(Self self) {
  auto& state = self->state;
  if (state.collections.empty()) return end(self, {0, ""});
  state.offers.clear();
  state.offering_devices = 0;
  for (const NodeEntry& node : state.nodes)
    send_to_node(self, node, collect_atom::value, state.collections.front());
}

void begin_collecting(Self self) {
  auto& state = self->state;
  state.phase = Phase::collecting;
  if (state.resources->setup.job.train.dump_gradients)
    state.collections.push_back(Collection::first_gradients);
  state.collections.push_back(Collection::parameters);
  collect_next(self);
}

void offered(Self self, const Offers& offers) {
  auto& state = self->state;
  if (state.phase != Phase::collecting) return;
  state.offers.push_back(offers);
  if (++state.offering_devices < state.configuration.plan.devices.size()) return;
  const auto all = std::make_shared<const std::vector<Offers>>(state.offers);
  self->request(state.colleagues.recorder, std::chrono::seconds(120), collect_atom::value,
                state.collections.front(), state.configuration.epoch_number, all)
      .then(
          [self](finish_atom) {
            self->state.collections.pop_front();
            collect_next(self);
          },
          [self](const caf::error&) {
            fail(self, {Errc::timed_out, "the final parameters could not be collected", {}, {}});
          });
}

void node_lost(Self self, std::size_t id) {
  auto& state = self->state;
  NodeEntry& node = state.nodes[id];
  if (state.phase == Phase::ending) {
    node.phase = NodePhase::gone;
    return finish_if_all_gone(self);
  }
  const std::string why = node.how_ended.empty() ? "the connection to it was lost" : node.how_ended;
  const std::string what = describe(node, id) + " was lost: " + why;
  node.phase = NodePhase::gone;
  const std::string after =
      state.steps.empty()
          ? ""
          : "; step " + std::to_string(state.steps.front().ledger.step()) + " was not finished";
  fail(self, {Errc::transport_failed, what + after, {}, "start the job again"});
}

/// A local process ended. What it says about the reason is better than a lost connection.
void process_exited(Self self, std::int32_t pid, const std::string& how) {
  auto& state = self->state;
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    NodeEntry& node = state.nodes[i];
    if (node.pid != pid || node.phase == NodePhase::gone) continue;
    node.how_ended = how;
    return node_lost(self, i);
  }
  if (state.phase == Phase::joining)
    fail(self,
         {Errc::internal,
          "a local node process (pid " + std::to_string(pid) + ") " + how + " before it joined",
          {},
          "its own message stands above"});
}

void node_failed(Self self, std::size_t id, Error& error) {
  const std::string who = describe(self->state.nodes[id], id);
  error.where = who + (error.where.empty() ? "" : ", " + error.where);
  if (error.code != Errc::transport_failed) return fail(self, error);
  self->delayed_send(self, 2 * kReasonTimeout, failed_atom::value, error);
}

void connection_lost(Self self, const caf::actor_addr& source) {
  auto& state = self->state;
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    NodeEntry& node = state.nodes[i];
    if (!node.handle || caf::actor_cast<caf::actor_addr>(node.handle) != source) continue;
    if (node.phase == NodePhase::gone) return;
    if (state.phase == Phase::ending) return node_lost(self, i);
    self->delayed_send(self, kReasonTimeout, lost_atom::value, NodeId{i});
    return;
  }
}

void stop(Self self, std::int32_t signal) {
  auto& state = self->state;
  if (++state.signals > 1) {
    if (state.phase == Phase::ending) finish_if_all_gone(self, true);
    return;
  }
  const std::string name = signal == SIGINT ? "Ctrl-C" : "SIGTERM";
  const std::string where =
      state.phase == Phase::training && !state.steps.empty()
          ? " during step " + std::to_string(state.steps.front().ledger.step())
          : "";
  end(self,
      {128 + signal, "stopped by " + name + where + "; there is no checkpoint to resume from"});
}

void tick(Self self) {
  auto& state = self->state;
  const job::Cluster& cluster = state.resources->setup.job.cluster;
  if (state.phase == Phase::joining && now(self) > state.deadline)
    fail(self,
         late_error(state.nodes, state.resources->listen, cluster.local_nodes == cluster.nodes));
  finish_if_all_gone(self);
  if (state.phase != Phase::ended) self->delayed_send(self, kTick, tick_atom::value);
}

void start(Self self, HeadResources* resources, const SpawnColleagues& spawn) {
  auto& state = self->state;
  state.resources = resources;
  const job::Job& job = resources->setup.job;
  state.length.emplace(job, resources->data.records);
  state.skipped.emplace(job.train.max_nonfinite_in_a_row, resources->data.records);
  state.nodes.resize(static_cast<std::size_t>(job.cluster.nodes));
  state.deadline = now(self) + std::chrono::milliseconds(
                                   static_cast<std::int64_t>(job.cluster.join_timeout_s * 1000));
  state.last_finish = now(self);
  state.colleagues =
      spawn(self->system(), caf::actor_cast<SupervisorActor>(self), state.length->steps());
  self->set_down_handler([self](const caf::down_msg& down) { connection_lost(self, down.source); });
  self->delayed_send(self, kTick, tick_atom::value);
}

}  // namespace

SupervisorActor::behavior_type supervisor(Self self, HeadResources* resources,
                                          const SpawnColleagues& spawn) {
  start(self, resources, spawn);
  return {
      [self](join_atom, const NodeHello& hello) { return join(self, hello); },
      [self](const NodeReady& ready) { node_ready(self, ready); },
      [self](applied_atom, NodeId id, EpochNumber epoch) { node_applied(self, id, epoch); },
      [self](const engine::Prepared& report) { prepared(self, report); },
      [self](const engine::DeviceReport& report) { device_finished(self, report); },
      [self](const Offers& offers) { offered(self, offers); },
      [self](failed_atom, NodeId id, Error& error) { node_failed(self, id.index(), error); },
      [self](const PlannedBatchPtr& batch) { planned(self, batch); },
      [self](failed_atom, const Error& error) { fail(self, error); },
      [self](exited_atom, std::int32_t pid, const std::string& how) {
        process_exited(self, pid, how);
      },
      [self](stop_atom, std::int32_t signal) { stop(self, signal); },
      [self](lost_atom, NodeId id) {
        if (self->state.nodes[id.index()].phase != NodePhase::gone) node_lost(self, id.index());
      },
      [self](tick_atom) { tick(self); },
  };
}

}  // namespace troupe::actors
