#include "actors/supervisor_actor.hpp"

#include "actors/exceptions.hpp"
#include "actors/supervisor_end.hpp"
#include "actors/supervisor_layout.hpp"
#include "actors/supervisor_records.hpp"
#include "actors/supervisor_save.hpp"
#include "actors/supervisor_watch.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = SupervisorState::Phase;
using NodePhase = NodeEntry::Phase;

constexpr std::size_t kStepsAhead = 2;
/// The recorder gives up earlier and says why.
constexpr auto kCollectTimeout = std::chrono::seconds(120);

caf::error refuse(Self self, const NodeHello& hello, const std::string& why,
                  const std::string& fix) {
  self->state.resources->logger.warning("refused " + hello.host + " (pid " +
                                        std::to_string(hello.pid) + "): " + why);
  return caf::make_error(caf::sec::runtime_error, why, fix);
}

caf::result<NodeWelcome> join(Self self, const NodeHello& hello) {
  auto& state = self->state;
  const std::string& build = state.resources->build;
  if (hello.build != build)
    return refuse(self, hello, "it is build " + hello.build + " of troupe, the job runs " + build,
                  "build the same sources on every machine: one commit, and any local edits of it "
                  "(troupe --version)");
  if (state.phase == Phase::ending)
    return refuse(self, hello,
                  "the job ends: " + state.how.message.substr(0, state.how.message.find('\n')),
                  "start the job again, and then its nodes");
  if (state.phase != Phase::joining)
    return refuse(self, hello, "the job has started without this node",
                  "start the job again, and all its nodes within cluster.join_timeout_s");
  const std::size_t count = state.nodes.size();
  const std::size_t id = free_place(state, hello.wanted_node);
  if (id == count && hello.wanted_node < 0)
    return refuse(self, hello, "all nodes that are not the head's own have joined already",
                  "raise cluster.nodes where the job is to have more");
  if (id == count)
    return refuse(
        self, hello,
        "node " + std::to_string(hello.wanted_node) + " does not exist or has joined already",
        "take a free id below " + std::to_string(count) +
            ", or leave --node out: any free one is given");
  NodeEntry& node = state.nodes[id];
  node.phase = NodePhase::joined;
  node.host = hello.host;
  node.pid = hello.pid;
  node.handle = self->current_sender();
  self->monitor(node.handle);
  const job::Cluster& cluster = state.resources->setup.job.cluster;
  return NodeWelcome{NodeId{id}, state.resources->resolved_job, cluster.heartbeat_interval_s,
                     cluster.heartbeat_timeout_s};
}

void node_ready(Self self, const NodeReady& ready) {
  auto& state = self->state;
  NodeEntry& node = state.nodes[ready.node.index()];
  if (state.phase != Phase::joining || node.phase != NodePhase::joined) return;
  node.ready = ready;
  node.phase = NodePhase::ready;
  const std::string who = describe(node, ready.node.index());
  state.resources->logger.info(who + " joined");
  if (auto same = engine::same_data(state.resources->data, ready.data, who); !same.ok())
    return fail(self, same.error());
  engine::learn_sizes(state.resources->data, ready.data);
  node.ready.data = {};  // Its peers need its address alone.
  if (all_in(state, NodePhase::ready)) begin_job(self);
}

/// Asks for one plan at a time, as long as devices have room for another step. A step of another
/// layout waits until all steps before it have ended.
void ask_for_plan(Self self) {
  auto& state = self->state;
  if (state.phase != Phase::training || state.planning || state.last_planned) return;
  if (state.stopping) return;
  if (state.steps.size() >= kStepsAhead) return;
  while (change_is_due(state))
    if (!state.steps.empty() || change_layout(self)) return;
  state.planning = true;
  self->send(state.colleagues.scheduler, next_atom::value);
}

void begin_collecting(Self self);

void start_training(Self self) {
  auto& state = self->state;
  state.phase = Phase::training;
  std::vector<caf::strong_actor_ptr> handles;
  for (const NodeEntry& node : state.nodes) handles.push_back(node.handle);
  self->send(state.colleagues.recorder, begin_atom::value, state.configuration);
  self->send(state.colleagues.scheduler, begin_atom::value, state.configuration, handles);
  state.last_finish = now(self);
  if (!state.is_announced && !state.resources->resume.is_start())
    self->send(state.colleagues.recorder,
               std::make_shared<const observe::RunEvent>(resumed_event(state)));
  state.is_announced = true;
  if (state.last_planned)
    return begin_collecting(self);  // A job that had ended goes on with nothing.
  if (state.saves.wanted || state.stopping) save_if_due(self);
  ask_for_plan(self);
}

/// Keeps of the shares what batches to come look back at.
void note_deal(SupervisorState& state, const engine::PlannedBatch& batch) {
  auto& deals = state.progress.deals;
  if (!batch.dealt.empty()) deals.push_back({batch.batch, batch.dealt});
  const std::int64_t lag = state.resources->setup.job.data.prefetch + 1;
  while (deals.size() > 1 && deals[1].batch <= batch.batch - lag) deals.erase(deals.begin());
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
  step.waiting_for = all_devices(state.configuration.plan);
  for (const NodeId node : state.configuration.plan.nodes())
    send_to_node(self, state.nodes[node.index()], step.outcome->decision);
}

TokenCount tokens_of(const engine::PlannedBatch& batch) {
  TokenCount tokens = 0;
  for (const auto& sample : batch.iteration.samples) tokens += sample.llm_tokens;
  return tokens;
}

void planned(Self self, const PlannedBatchPtr& batch) {
  auto& state = self->state;
  if (state.phase != Phase::training || state.stopping) return;
  if (batch->iteration.epoch_number != state.configuration.epoch_number) return;
  state.planning = false;
  ++state.planned_steps;
  self->send(state.colleagues.recorder, batch);
  for (const auto& dropped : batch->dropped) state.bad_ids.emplace(dropped.why.id, batch->batch);
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
                   idle ? milliseconds_between(state.last_finish, now(self)) : 0,
                   all_devices(state.configuration.plan)};
  state.planned_tokens += tokens_of(*batch);
  state.last_planned = state.length->reached(batch->batch + 1, state.planned_tokens);
  state.steps.push_back(std::move(step));
  if (!batch->iteration.samples.empty())
    for (const NodeId node : state.configuration.plan.nodes())
      send_to_node(self, state.nodes[node.index()],
                   engine::slice_for(batch->iteration, state.configuration.plan, node));
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
  step->waiting_for.erase(report.device);
  // A job that stops saves what is done; nothing new begins to change it.
  if (step->ledger.complete() && !state.stopping) decide(self, *step);
}

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
  state.progress.step = step.ledger.step();
  state.progress.tokens = step.tokens_before + tokens_of(*step.batch);
  note_deal(state, *step.batch);
  const auto record = std::make_shared<const StepRecord>(make_record(state, step, now(self)));
  state.saves.written_ms = 0;
  self->send(state.colleagues.recorder, record);
  self->send(state.colleagues.scheduler, step.batch, record);
  state.stalls.ended(now(self) - state.last_finish);
  state.last_finish = now(self);
  if (!counted.ok()) return fail(self, counted.error());
  save_if_due(self);
  if (state.stopping || state.phase != Phase::training) return;
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
  step->waiting_for.erase(report.device);
  const std::size_t devices = state.configuration.plan.devices.size();
  while (!state.steps.empty() && state.phase == Phase::training &&
         state.steps.front().reports.size() == devices)
    finish_step(self);
}

void collect_next(Self self) {
  auto& state = self->state;
  if (state.collections.empty()) {
    state.saves.ends_job = true;
    if (!saves_at_end(state)) end(self, {0, ""});
    return;
  }
  state.offers.clear();
  state.offering_devices = 0;
  for (const NodeEntry& node : state.nodes)
    send_to_node(self, node, collect_atom::value, state.collections.front());
}

void begin_collecting(Self self) {
  auto& state = self->state;
  state.phase = Phase::collecting;
  // A job that goes on after step 1 has them no more; they were written before.
  if (state.resources->setup.job.train.dump_gradients && state.resources->resume.is_start())
    state.collections.push_back(Collection::first_gradients);
  state.collections.push_back(Collection::parameters);
  collect_next(self);
}

void offered(Self self, const Offers& offers) {
  auto& state = self->state;
  if (state.phase != Phase::collecting) return;
  state.offers.push_back(offers);
  if (++state.offering_devices < state.devices.size()) return;
  const auto all = std::make_shared<const std::vector<Offers>>(state.offers);
  self->request(state.colleagues.recorder, kCollectTimeout, collect_atom::value,
                state.collections.front(), state.configuration.epoch_number, all)
      .then(
          [self](finish_atom) {
            self->state.collections.pop_front();
            collect_next(self);
          },
          [self](const caf::error&) {
            if (const auto& lost = self->state.lost_while_collected) return fail(self, *lost);
            fail(self, {Errc::timed_out,
                        "the final parameters could not be collected within " +
                            std::to_string(kCollectTimeout.count()) + " s",
                        self->state.resources->setup.job.job.run_dir.string(),
                        "look at the network between the nodes and this machine and at the disk of "
                        "the run folder, then start the job again"});
          });
}

void start(Self self, HeadResources* resources, const SpawnColleagues& spawn) {
  auto& state = self->state;
  state.resources = resources;
  const job::Job& job = resources->setup.job;
  state.length.emplace(job, resources->data.records);
  const JobProgress& before = resources->resume.progress;
  state.skipped.emplace(job.train.max_nonfinite_in_a_row, resources->data.records, before.skipped);
  state.progress = before;
  state.progress.bad.clear();
  state.progress.data = engine::data_order(job, resources->data);
  for (const auto& [id, batch] : before.bad) state.bad_ids.emplace(id, batch);
  state.planned_steps = state.saves.last_step = before.step;
  state.planned_tokens = before.tokens;
  state.configuration.epoch_number = before.generation;
  state.last_planned = before.step > 0 && state.length->reached(before.step, before.tokens);
  state.saves.last_begun = now(self);
  state.nodes.resize(static_cast<std::size_t>(job.cluster.nodes));
  state.deadline = now(self) + seconds(job.cluster.join_timeout_s);
  state.last_finish = now(self);
  state.colleagues =
      spawn(self->system(), caf::actor_cast<SupervisorActor>(self), state.length->steps());
  self->set_down_handler([self](const caf::down_msg& down) { connection_lost(self, down.source); });
  watch(self);
}

}  // namespace

SupervisorActor::behavior_type supervisor(Self self, HeadResources* resources,
                                          const SpawnColleagues& spawn) {
  tell_of_exceptions(self, "the supervisor", [self](const Error& error) {
    fail(self, error);
    finish_if_all_gone(self, true);  // It hears no answer any more.
  });
  start(self, resources, spawn);
  return {
      [self](join_atom, const NodeHello& hello) { return join(self, hello); },
      [self](const NodeReady& ready) { node_ready(self, ready); },
      [self](fetched_atom, NodeId id, EpochNumber epoch) { node_fetched(self, id, epoch); },
      [self](applied_atom, NodeId id, EpochNumber epoch) {
        if (node_applied(self, id, epoch)) start_training(self);
      },
      [self](const engine::Prepared& report) { prepared(self, report); },
      [self](const engine::DeviceReport& report) { device_finished(self, report); },
      [self](const Offers& offers) { offered(self, offers); },
      [self](failed_atom, NodeId id, Error& error) { node_failed(self, id.index(), error); },
      [self](const PlannedBatchPtr& batch) { planned(self, batch); },
      [self](failed_atom, const Error& error) {
        fail(self, self->state.lost_while_collected.value_or(error));
      },
      [self](exited_atom, std::int32_t pid, const std::string& how) {
        process_exited(self, pid, how);
      },
      [self](stop_atom, std::int32_t signal) { stop(self, signal); },
      [self](save_atom) { want_save(self); },
      [self](const SaveReport& report) { share_saved(self, report); },
      [self](const KeptCheckpointPtr& kept) { checkpoint_kept(self, *kept); },
      [self](lost_atom, NodeId id) { node_lost(self, id.index()); },
      [self](alive_atom, NodeId id) { self->state.nodes[id.index()].silence.heard(); },
      [self](tick_atom) { watch(self); },
  };
}

}  // namespace troupe::actors
