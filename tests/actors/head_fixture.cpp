#include "tests/actors/head_fixture.hpp"

#include "engine/state/state_memory.hpp"
#include "tests/engine/measured_events.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::actors {

void one_pipeline(job::Job& job) {
  job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}}},
                                    {1, 0, {{"llm", LayerRange{0, 1}}}},
                                    {2, 0, {{"llm", LayerRange{1, 2}}}},
                                    {3, 0, {{"llm", LayerRange{2, 4}}}}}};
}

void no_room_beside(job::Job& job) {
  const auto plan = engine::make_parallel_plan(engine::prepare(job).value()).value();
  std::int64_t room = 1;
  job.cluster.device_memory_gib = 1;
  while (!engine::check_state_memory(job, plan, Bytes{room}).ok()) room += 64;
  job.cluster.device_memory_gib = static_cast<double>(room) / 1024 / 1024 / 1024;
}

template <class... Values>
void Head::send(Values... values) {
  caf::anon_send(actor, std::move(values)...);
  system.run();
}

Head::Head(std::int64_t steps, const std::function<void(job::Job&)>& edit,
           engine::ResumePoint resume, const std::function<void(Head&)>& arrange) {
  job::Job job = engine::tiny_job();
  job.train.duration = {job::DurationUnit::steps, steps};
  job.train.max_nonfinite_in_a_row = 2;
  job.optimizer.lr = job.optimizer.min_lr = 0.5;
  job.cluster.join_timeout_s = job.cluster.open_timeout_s = 2;
  job.cluster.local_nodes = 0;
  job.cluster.heartbeat_timeout_s = 100;
  if (edit) edit(job);
  resources.setup = engine::prepare(job).value();
  resources.plan = engine::make_parallel_plan(resources.setup).value();
  resources.later = engine::later_layouts(resources.setup).value();
  resources.data = {60, 7};
  resources.resume = std::move(resume);
  resources.listen = "127.0.0.1:7000";
  resources.resolved_job = "the job";
  resources.build = "1.0 (abc)";
  resources.run_id = "5f0c";
  resources.incarnation = 2;
  resources.on_end = [this](JobEnd how) { ended = std::move(how); };
  transport::TransportOptions options;
  options.hub = std::make_shared<transport::InprocHub>();
  for (options.self = 0; options.self < 5; ++options.self)
    transports_.push_back(transport::create_transport("inproc", options).value());
  resources.transport = std::move(transports_.back());
  if (arrange) arrange(*this);
  actor = spawn_supervisor(
      system.get(), &resources,
      [this](caf::actor_system& at, const SupervisorActor&, std::int64_t) -> ActorHandles {
        actors = {at.spawn(fake_scheduler, &scheduler), at.spawn(fake_recorder, &recorder),
                  at.spawn(fake_keeper, &keeper)};
        return actors;
      });
  system.run();
}

Head::~Head() {
  recorder.promise.reset();
  recorder.synced.reset();
  recorder.collected.reset();
  for (const auto& node : askers_) caf::anon_send_exit(node, caf::exit_reason::kill);
  caf::anon_send_exit(actors.scheduler, caf::exit_reason::kill);
  caf::anon_send_exit(actors.recorder, caf::exit_reason::kill);
  caf::anon_send_exit(actors.keeper, caf::exit_reason::kill);
  caf::anon_send_exit(actor, caf::exit_reason::kill);
  system.run();
}

std::string Head::join(const NodeHello& hello) {
  JoinAnswer& answer = *answers_.emplace_back(std::make_unique<JoinAnswer>());
  askers_.push_back(system.get().spawn(joining_node, actor, hello, &seen, &answer));
  system.run();
  refusal = answer.why;
  if (!answer.place) return answer.why.message;
  nodes[answer.place->index()] = askers_.back();
  return std::to_string(answer.place->value);
}

std::string Head::join(const std::string& host, std::int32_t wanted, const std::string& build) {
  const bool is_own = wanted >= 0 && wanted < resources.setup.job.cluster.local_nodes;
  return join({host, 100 + static_cast<int>(askers_.size()), wanted, build, {}, {}, 0, is_own});
}

std::string Head::join_with(NodeHolding holding, const std::string& build,
                            const std::string& run_id, std::int64_t incarnation) {
  const NodeId node = holding.ready.node;
  auto plugins = std::move(holding.ready.plugins);
  holding.ready = introduce(node, *transports_[node.index()], {60, 7});
  holding.ready.plugins = std::move(plugins);
  return join(
      {"host", 100 + node.value, node.value, build, {std::move(holding)}, run_id, incarnation});
}

std::string Head::ask(const ControlRequest& request) {
  std::string answer;
  system.get().spawn([&answer, request, head = actor](caf::event_based_actor* self) {
    self->request(head, caf::infinite, control_atom::value, request)
        .then([&answer](const std::string& text) { answer = text; },
              [&answer](const caf::error& error) {
                answer = "no: " + error.context().get_as<std::string>(0) +
                         "; fix: " + error.context().get_as<std::string>(1);
              });
  });
  system.run();
  return answer;
}

void Head::pass(std::chrono::milliseconds time, const std::vector<std::size_t>& living) {
  for (constexpr std::chrono::milliseconds kStep{200}; time.count() > 0; time -= kStep) {
    for (const std::size_t id : living) tell(alive_atom::value, NodeId{id});
    system.pass(kStep);
  }
}

void Head::ready(std::size_t id, engine::DataIdentity data,
                 std::vector<engine::PluginIdentity> plugins, std::int64_t memory) {
  NodeReady ready = introduce(NodeId{id}, *transports_[id], data);
  ready.plugins = std::move(plugins), ready.device_memory = memory;
  caf::send_as(nodes[id], actor, std::move(ready));
  system.run();
}

void Head::join_all() {
  const std::int32_t local = resources.setup.job.cluster.local_nodes;
  for (std::int32_t id = 0; id < 4; ++id) {
    join("host", id < local ? id : -1);
    ready(static_cast<std::size_t>(id));
  }
}

void Head::bring_up(EpochNumber epoch_number) {
  for (std::size_t id = 0; id < 4; ++id) tell(fetched_atom::value, NodeId{id}, epoch_number, 0.0);
  for (std::size_t id = 0; id < 4; ++id) tell(applied_atom::value, NodeId{id}, epoch_number);
}

void Head::start_training() {
  join_all();
  bring_up(1);
}

void Head::plan(std::int64_t batch, double plan_ms) {
  auto planned =
      engine::plan_tiny_batch(resources.setup, scheduler.begins.back().plan, store_, batch);
  REQUIRE(planned.ok());
  planned.value().iteration.epoch_number = scheduler.begins.back().epoch_number;
  planned.value().plan_ms = plan_ms;
  planned.value().prediction.profile_step_ms = 11;
  if (profile_stage_ms > 0)
    planned.value().prediction.profile_stage_ms.assign(scheduler.begins.back().plan.stages.size(),
                                                       profile_stage_ms);
  planned.value().prediction.calibrated_step_ms = 12;
  trained_tokens = planned.value().iteration.trained_tokens;
  tell(std::make_shared<const engine::PlannedBatch>(std::move(planned).value()));
}

void Head::prepared(std::size_t device, std::int64_t step, double squared, double loss,
                    EpochNumber epoch_number) {
  engine::Prepared report{step, epoch_number, DeviceId{device}, {}, {}};
  if (squared > 0) report.norms.push_back({GroupId{device}, squared, true});
  if (loss != 0) report.losses.push_back({ReplicaId{0}, MicrobatchId{device}, PartId{0}, loss, {}});
  tell(report);
}

void Head::finished(std::size_t device, std::int64_t step, EpochNumber epoch_number,
                    std::uint64_t hash) {
  tell(engine::DeviceReport{
      step, epoch_number, DeviceId{device}, {}, {{GroupId{0}, 0, hash}}, {}, {}, 0, {}});
}

void Head::finished_in(std::size_t device, std::int64_t step, std::int64_t stage_ms) {
  const ParallelPlan& plan = scheduler.begins.back().plan;
  engine::DeviceReport report{step, 1, DeviceId{device}, {}, {{GroupId{0}, 0, 7}}, {}, {}, 0, {}};
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (plan.stages[s].devices.front() == DeviceId{device})
      report.events.push_back(
          engine::slice(ActionKind::forward, static_cast<std::int32_t>(s), stage_ms));
  tell(report);
}

void Head::kill(std::int32_t pid) {
  tell(exited_atom::value, pid, std::string("was killed by signal 9"), std::int32_t{9});
}

void Head::leave(const std::vector<std::size_t>& ids) {
  for (const std::size_t id : ids) caf::anon_send_exit(nodes[id], caf::exit_reason::kill);
  system.run();
}

void Head::run_step(std::int64_t step, double loss) {
  for (std::size_t device = 0; device < 4; ++device) prepared(device, step, 1, loss);
  for (std::size_t device = 0; device < 4; ++device) finished(device, step);
}

// What tests tell it.
template void Head::send(alive_atom, NodeId);
template void Head::send(applied_atom, NodeId, EpochNumber);
template void Head::send(engine::DeviceReport);
template void Head::send(engine::Prepared);
template void Head::send(exited_atom, std::int32_t, std::string, std::int32_t);
template void Head::send(failed_atom, NodeId, Error);
template void Head::send(failed_atom, NodeId, EpochNumber, Error);
template void Head::send(failed_atom, Error);
template void Head::send(fetched_atom, NodeId, EpochNumber, double);
template void Head::send(KeptCheckpointPtr);
template void Head::send(lost_atom, NodeId, NodeId, EpochNumber, std::string);
template void Head::send(next_atom, EpochNumber, Error);
template void Head::send(NodeId, engine::LongWaits);
template void Head::send(NodeId, engine::LongWorks);
template void Head::send(NodeId, engine::FailedWork);
template void Head::send(Offers);
template void Head::send(PlannedBatchPtr);
template void Head::send(RefusedBatchPtr);
template void Head::send(save_atom);
template void Head::send(save_atom, std::int64_t, LearnedCostsPtr);
template void Head::send(SaveReport);
template void Head::send(stop_atom, std::int32_t);
template void Head::send(TemplateSetPtr);
template void Head::send(unreached_atom, NodeId, NodeId, EpochNumber, std::string);

}  // namespace troupe::actors
