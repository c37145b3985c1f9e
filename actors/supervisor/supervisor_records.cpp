#include "actors/supervisor/supervisor_records.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "actors/link/system.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "engine/iteration/phase_exchange.hpp"
#include "engine/profiling/profile_check.hpp"
#include "runtime/observe/plan_words.hpp"
#include "runtime/observe/stage_work.hpp"
#include "scheduler/layout/layout_request.hpp"

namespace troupe::actors {

std::string describe(const NodeEntry& node, std::size_t id) {
  return "node " + std::to_string(id) + " (" + node.host + ", pid " + std::to_string(node.pid) +
         ")";
}

namespace {

/// The nodes that `wanted` accepts, described and separated by commas.
template <class Wanted>
std::string names(const std::vector<NodeEntry>& nodes, Wanted wanted) {
  std::string text;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!wanted(nodes[i])) continue;
    text += (text.empty() ? "" : ", ") + (nodes[i].phase == NodeEntry::Phase::missing
                                              ? "node " + std::to_string(i)
                                              : describe(nodes[i], i));
  }
  return text;
}

std::string names(const std::vector<NodeEntry>& nodes, NodeEntry::Phase phase) {
  return names(nodes, [phase](const NodeEntry& node) { return node.phase == phase; });
}

std::string in_seconds(double seconds) { return std::to_string(std::lround(seconds)) + " s"; }

}  // namespace

std::string roll_call(const std::vector<NodeEntry>& nodes) {
  using Phase = NodeEntry::Phase;
  const auto joined = [](const NodeEntry& node) {
    return node.phase != Phase::missing && node.phase != Phase::joined;
  };
  std::string text = std::to_string(std::count_if(nodes.begin(), nodes.end(), joined)) + " of " +
                     std::to_string(nodes.size()) + " nodes joined";
  for (const auto& [label, list] :
       {std::pair{"here", names(nodes, joined)},
        std::pair{"still opening data and devices", names(nodes, Phase::joined)},
        std::pair{"missing", names(nodes, Phase::missing)}})
    if (!list.empty()) text += std::string("; ") + label + ": " + list;
  return text;
}

Error late_error(const std::vector<NodeEntry>& nodes, const std::string& listen,
                 const std::string& key_file, bool all_local) {
  std::string fix = "start the missing nodes with `" +
                    (listen.empty() ? "troupe node --join HOST:PORT` (the port is in the log)"
                                    : join_command(listen, key_file) + "`") +
                    ", check that they reach this address, or ";
  if (all_local && listen.empty()) fix = "give this machine more time to start its nodes: ";
  if (names(nodes, NodeEntry::Phase::missing).empty())
    fix = "look at the load and the disks of the nodes that are not ready, or ";
  return {Errc::timed_out, roll_call(nodes), listen, fix + "raise cluster.join_timeout_s"};
}

Error slow_set_up(const std::vector<NodeEntry>& nodes, double timeout_s) {
  return {Errc::timed_out,
          "the model was not set up within " + in_seconds(timeout_s) + "; still at it: " +
              names(nodes,
                    [](const NodeEntry& node) {
                      return takes_part(node) && node.phase != NodeEntry::Phase::applied;
                    }),
          {},
          "look at the load and memory of these machines, or raise cluster.join_timeout_s"};
}

std::set<DeviceId> all_devices(const ParallelPlan& plan) {
  std::set<DeviceId> devices;
  for (std::size_t i = 0; i < plan.devices.size(); ++i) devices.insert(DeviceId{i});
  return devices;
}

std::string change_text(const SupervisorState& state, Time now) {
  const auto took = [](Time begin, Time end) {
    return std::to_string(std::lround(milliseconds_between(begin, end))) + " ms";
  };
  const LayoutChange& change = state.change;
  const auto bytes = [](std::int64_t count) {
    return scheduler::byte_text(static_cast<double>(count));
  };
  return "from step " + std::to_string(state.planned_steps + 1) + " on layout " +
         std::to_string(state.configuration.epoch_number) + ", " +
         observe::layout_words(state.configuration.plan) + ": " + bytes(change.moves.sent_bytes) +
         " of state between nodes, the busiest device sent " + bytes(change.moves.max_sent_bytes) +
         ", " + took(change.begun, change.fetched) + "; stages built in " +
         took(change.fetched, now) + (change.why.empty() ? "" : "; " + change.why);
}

std::int32_t tolerance_of(const StatePlacement& placement) {
  std::size_t fewest = std::numeric_limits<std::int32_t>::max();
  for (const Shard& shard : placement) {
    std::set<NodeId> nodes;
    for (const DeviceSlot& holder : shard.holders) nodes.insert(holder.node);
    fewest = std::min(fewest, nodes.size());
  }
  return placement.empty() ? 0 : static_cast<std::int32_t>(fewest) - 1;
}

observe::RunEvent resumed_event(const SupervisorState& state) {
  const engine::ResumePoint& resume = state.resources->resume;
  const std::set<NodeId> nodes = state.configuration.plan.nodes();
  observe::RunEvent event;
  event.time = engine::utc_now();
  event.step = resume.progress.step + 1;
  event.generation = state.configuration.epoch_number;
  event.kind = "resumed";
  event.nodes = {nodes.begin(), nodes.end()};
  event.why = (resume.why.empty() ? "" : resume.why + "; ") + "from " + resume.folder.string() +
              (resume.changes.empty() ? "" : "; changed: " + job::changes_text(resume.changes));
  event.copy_ms = milliseconds_between(state.change.begun, state.change.fetched);
  event.tolerance_left = tolerance_of(state.placed);
  return event;
}

observe::RunEvent change_event(const SupervisorState& state, Time now) {
  const LayoutChange& change = state.change;
  const std::set<NodeId> nodes = state.configuration.plan.nodes();
  observe::RunEvent event;
  event.time = engine::utc_now();
  event.step = state.planned_steps + 1;
  event.generation = state.configuration.epoch_number;
  event.kind = "layout";
  event.nodes = {nodes.begin(), nodes.end()};
  event.why = change.why.empty() ? observe::layout_words(state.configuration.plan) : change.why;
  event.decide_ms = milliseconds_between(change.due, change.begun);
  event.copy_ms = milliseconds_between(change.begun, change.fetched);
  event.copy_bytes = change.moves.sent_bytes;
  event.rebuild_ms = milliseconds_between(change.fetched, now);
  event.tolerance_left = tolerance_of(change.want);
  return event;
}

std::string stall_text(const SupervisorState& state, Time now) {
  const ParallelPlan& plan = state.configuration.plan;
  const auto waited = std::chrono::duration<double>(now - state.last_finish).count();
  const std::string since = " for " + in_seconds(waited);
  if (state.steps.empty())
    return "no step has run" + since + ": the next one waits for its samples and its plan";
  const RunningStep& step = state.steps.front();
  std::string devices;
  for (const DeviceId device : step.waiting_for)
    devices += (devices.empty() ? "" : ", ") + ("device " + std::to_string(device.value)) +
               " (node " + std::to_string(plan.devices[device.index()].node.value) + ")";
  return "step " + std::to_string(step.ledger.step()) + " has not ended" + since +
         "; it waits for " + (step.outcome ? "the end of " : "the gradients of ") + devices +
         ". All nodes answer: a slow device, or nodes that do not reach each other";
}

Error stalled_error(const SupervisorState& state, Time now) {
  return {Errc::timed_out, stall_text(state, now), "train.stall_timeout_s",
          "look at these machines and at the network between them, then start the job again; raise "
          "train.stall_timeout_s where steps may take longer"};
}

double milliseconds_between(SupervisorState::Time begin, SupervisorState::Time end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

Status compare_hashes(const ParallelPlan& plan, const std::vector<engine::DeviceReport>& reports) {
  std::map<GroupId, std::uint64_t> hashes;
  for (const auto& report : reports) {
    for (const auto& holder : report.hashes) {
      const auto [first, inserted] = hashes.emplace(holder.group, holder.hash);
      if (!inserted && first->second != holder.hash)
        return Error{Errc::internal,
                     "holders of '" + plan.groups[holder.group.index()].name +
                         "' disagree after step " + std::to_string(report.step),
                     "device " + std::to_string(report.device.value),
                     {}};
    }
  }
  return Done{};
}

namespace {

/// What the plan said, and what can be held against it.
void add_prediction(const engine::Prediction& prediction, const RunningStep& step,
                    StepRecord& record) {
  observe::StepMetrics& metrics = record.metrics;
  record.prediction = prediction;
  metrics.profile_step_ms = prediction.profile_step_ms;
  metrics.calibrated_step_ms = prediction.calibrated_step_ms;
  metrics.imbalance_in_order = prediction.imbalance_in_order;
  metrics.imbalance_planned = prediction.imbalance;
  metrics.deferred_samples = prediction.deferred_samples;
  metrics.held_rows = prediction.held_rows;
  metrics.held_bytes = prediction.held_bytes;
  metrics.corrected_shapes = prediction.corrected_shapes;
  for (const Bytes promised : prediction.activations)
    metrics.promised_activation_bytes = std::max(metrics.promised_activation_bytes, promised);
  constexpr double kSmallDevice = 0.1;
  const auto fullest = static_cast<double>(metrics.promised_activation_bytes.count());
  for (const auto& report : step.reports) {
    metrics.activation_bytes = std::max(metrics.activation_bytes, report.peak_activations);
    if (report.device.index() >= prediction.activations.size()) continue;
    const auto promised =
        static_cast<double>(prediction.activations[report.device.index()].count());
    if (promised > 0 && promised >= kSmallDevice * fullest)
      metrics.activations_over_promise =
          std::max(metrics.activations_over_promise,
                   static_cast<double>(report.peak_activations.count()) / promised);
  }
}

/// Largest over mean time in the busiest stages of a group's replicas.
double measured_imbalance(const ParallelPlan& plan, ModuleGroupId group,
                          std::span<const observe::StageWork> work) {
  std::map<ReplicaId, std::int64_t> busiest_ns;
  for (const ReplicaId replica : engine::replicas_of(plan, group)) busiest_ns[replica] = 0;
  for (const auto& stage : work) {
    const auto found = busiest_ns.find(plan.at(stage.stage).replica);
    if (found != busiest_ns.end()) found->second = std::max(found->second, stage.work_ns);
  }
  std::int64_t largest = 0, sum = 0;
  for (const auto& [replica, ns] : busiest_ns) largest = std::max(largest, ns), sum += ns;
  const auto count = static_cast<double>(busiest_ns.size());
  return sum > 0 ? static_cast<double>(largest) * count / static_cast<double>(sum) : 1;
}

void add_phases(const ParallelPlan& plan, const engine::Prediction& prediction,
                std::span<const observe::StageWork> work, observe::StepMetrics& metrics) {
  for (std::size_t g = 0; g < prediction.phases.size(); ++g) {
    const engine::PhaseBalance& phase = prediction.phases[g];
    const engine::FarRows& far = prediction.far_rows[g];
    metrics.phases.push_back({plan.module_groups[g].name, phase.drawn, phase.planned, phase.bound,
                              measured_imbalance(plan, ModuleGroupId{g}, work), far.planned,
                              far.bound});
  }
}

}  // namespace

StepRecord make_record(const SupervisorState& state, const RunningStep& step,
                       SupervisorState::Time now) {
  StepRecord record;
  observe::StepMetrics& metrics = record.metrics;
  const auto& batch = *step.batch;
  const engine::StepOutcome& outcome = *step.outcome;
  metrics.step = step.ledger.step();
  metrics.loss = outcome.loss;
  metrics.auxiliary_losses = outcome.auxiliary;
  metrics.lr = outcome.decision.learning_rate;
  metrics.grad_norm = outcome.grad_norm;
  metrics.skipped = outcome.decision.reason;
  for (const auto& sample : batch.iteration.samples) {
    metrics.tokens += sample.llm_tokens;
    if (outcome.decision.commit) record.ids.push_back(sample.id);
  }
  metrics.samples = static_cast<std::int64_t>(batch.iteration.samples.size());
  metrics.trained_tokens = batch.iteration.trained_tokens;
  metrics.step_ms = milliseconds_between(state.last_finish, now);
  metrics.plan_ms = batch.plan_ms;
  metrics.plan_wait_ms = std::min(step.wait_ms, batch.plan_ms);
  metrics.data_wait_ms = step.wait_ms - metrics.plan_wait_ms;
  metrics.nodes =
      static_cast<std::int32_t>(std::count_if(state.nodes.begin(), state.nodes.end(), takes_part));
  metrics.work = {batch.model_flops,
                  static_cast<std::int32_t>(state.configuration.plan.devices.size()),
                  state.resources->setup.job.cluster.device_tflops};
  metrics.epoch_number = state.configuration.epoch_number;
  metrics.skipped_steps = state.skipped->count();
  metrics.bad_samples = std::ssize(state.bad_ids);
  metrics.checkpoint_ms = state.saves.written_ms;
  for (const auto& report : step.reports)
    metrics.checkpoint_stall_ms = std::max(metrics.checkpoint_stall_ms, report.stall_ms);
  for (const auto& report : step.reports) record.observed.add(report.observed);
  for (const auto& report : step.reports)
    record.events.insert(record.events.end(), report.events.begin(), report.events.end());
  const auto work = observe::stage_work(record.events);
  const auto devices = static_cast<std::int32_t>(state.configuration.plan.devices.size());
  const auto balance = observe::step_balance(work, devices);
  metrics.times = observe::step_times(record.events, devices);
  metrics.bubble = balance.bubble;
  metrics.imbalance = balance.imbalance;
  record.nonfinite_samples = outcome.nonfinite_samples;
  add_prediction(batch.prediction, step, record);
  add_phases(state.configuration.plan, batch.prediction, work, metrics);
  return record;
}

std::size_t free_place(const SupervisorState& state, std::int32_t wanted) {
  const auto local = static_cast<std::size_t>(state.resources->setup.job.cluster.local_nodes);
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    const NodeEntry::Phase phase = state.nodes[i].phase;
    // The head starts its own nodes once.
    const bool is_local = i < local && phase == NodeEntry::Phase::missing;
    const bool suits = wanted < 0 ? !is_local : static_cast<std::size_t>(wanted) == i;
    if (suits && (phase == NodeEntry::Phase::missing || phase == NodeEntry::Phase::gone)) return i;
  }
  return state.nodes.size();
}

bool all_in(const SupervisorState& state, NodeEntry::Phase phase) {
  const auto& told = state.configuration.nodes;
  return std::all_of(told.begin(), told.end(), [&](const NodeReady& ready) {
    return ready.node.index() >= state.nodes.size() ||  // The head.
           state.nodes[ready.node.index()].phase == phase;
  });
}

NodeWelcome welcome_to(const SupervisorState& state, NodeId node) {
  const job::Job& job = state.resources->setup.job;
  std::error_code unknown;  // Of a folder that has no name, in tests.
  return {node,
          state.resources->resolved_job,
          job.cluster.heartbeat_interval_s,
          job.cluster.heartbeat_timeout_s,
          job.data.read_timeout_s,
          std::filesystem::absolute(job.job.run_dir, unknown).string(),
          state.resources->run_id};
}

JobProgress progress_now(const SupervisorState& state) {
  JobProgress progress = state.progress;
  progress.generation = state.configuration.epoch_number;
  progress.skipped = state.skipped->counts();
  for (const auto& [id, batch] : state.bad_ids)
    if (batch < progress.step) progress.bad.push_back({id, batch});
  return progress;
}

RunningStep* find_step(SupervisorState& state, std::int64_t number) {
  for (RunningStep& step : state.steps)
    if (step.ledger.step() == number) return &step;
  return nullptr;
}

}  // namespace troupe::actors
