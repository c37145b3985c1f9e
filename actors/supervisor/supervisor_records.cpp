#include "actors/supervisor/supervisor_records.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "actors/link/system.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "engine/iteration/exchange_count.hpp"
#include "engine/iteration/phase_exchange.hpp"
#include "engine/profiling/profile_check.hpp"
#include "runtime/observe/plan_words.hpp"
#include "runtime/observe/stage_work.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "scheduler/layout/layout_request.hpp"

namespace troupe::actors {

std::string describe(const Membership& members, NodeId node) {
  return "node " + std::to_string(node.value) + " (" + members[node].host + ", pid " +
         std::to_string(members[node].pid) + ")";
}

namespace {

/// The nodes that `wanted` accepts, described and separated by commas.
template <class Wanted>
std::string names(const Membership& members, Wanted wanted) {
  std::string text;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const NodeId node{i};
    if (!wanted(members[node])) continue;
    text += (text.empty() ? "" : ", ") + (members[node].phase == Member::Phase::missing
                                              ? "node " + std::to_string(i)
                                              : describe(members, node));
  }
  return text;
}

std::string names(const Membership& members, Member::Phase phase) {
  return names(members, [phase](const Member& member) { return member.phase == phase; });
}

std::string in_seconds(double seconds) { return std::to_string(std::lround(seconds)) + " s"; }

}  // namespace

std::string still_opening(const Membership& members) {
  return names(members, Member::Phase::joined);
}

std::string roll_call(const Membership& members) {
  using Phase = Member::Phase;
  std::string text =
      std::to_string(std::count_if(members.all().begin(), members.all().end(), takes_part)) +
      " of " + std::to_string(members.size()) + " nodes joined";
  for (const auto& [label, list] :
       {std::pair{"here", names(members, takes_part)},
        std::pair{"still opening data and devices", still_opening(members)},
        std::pair{"lost", names(members, Phase::gone)},
        std::pair{"missing", names(members, Phase::missing)}})
    if (!list.empty()) text += std::string("; ") + label + ": " + list;
  return text;
}

Error late_error(const Membership& members, const std::string& listen, const std::string& key_file,
                 bool all_local) {
  std::string fix = "start the missing nodes with `" +
                    (listen.empty() ? "troupe node --join HOST:PORT` (the port is in the log)"
                                    : join_command(listen, key_file) + "`") +
                    ", check that they reach this address, or ";
  if (all_local && listen.empty()) fix = "give this machine more time to start its nodes: ";
  const bool all_came = std::ranges::all_of(members.all(), actors::is_there);
  if (all_came) fix = "look at the load and the disks of the nodes that are not ready, or ";
  return {Errc::timed_out, roll_call(members), listen,
          fix + (all_came ? "raise cluster.open_timeout_s" : "raise cluster.join_timeout_s")};
}

Error slow_set_up(const SupervisorState& state, const std::vector<NodeId>& late, Time now) {
  std::string who, works, fix;
  for (const NodeId node : late) {
    who += (who.empty() ? "" : ", ") + describe(state.job.members, node);
    works += long_work_text(state, node, now);
    // What is of no step was done for this layout, as stages are made.
    for (const KnownWork& known : state.links[node.index()].long_work)
      if (known.work.step == 0) fix = known.work.error.fix;
  }
  if (fix.empty())
    fix = "look at the load and memory of these machines, or raise cluster.join_timeout_s";
  return {Errc::timed_out,
          "the model was not set up within " +
              in_seconds(state.resources->setup.job.cluster.join_timeout_s) +
              "; still at it: " + who + works,
          {},
          std::move(fix)};
}

void add_copies(const LayoutChange& change, observe::RunEvent& event) {
  const double in_all_ms = milliseconds_between(change.begun, change.fetched);
  event.connect_ms = std::min(change.connect_ms, in_all_ms);
  event.copy_ms = in_all_ms - event.connect_ms;
  event.copy_bytes = change.moves.sent_bytes;
  std::set<NodeId> senders;
  for (const StateMove& move : change.moves.moves)
    if (!move.is_from_seed() && move.from.node != move.to.node) senders.insert(move.from.node);
  event.senders = static_cast<std::int32_t>(senders.size());
}

double samples_per_s(const observe::StepMetrics& metrics) {
  const double busy_ms = metrics.step_ms - metrics.data_wait_ms - metrics.plan_wait_ms;
  return busy_ms > 0 ? 1000 * static_cast<double>(metrics.samples) / busy_ms : 0;
}

std::string change_text(const SupervisorState& state, Time now) {
  const auto took = [](double ms) { return std::to_string(std::lround(ms)) + " ms"; };
  const LayoutChange& change = state.change;
  observe::RunEvent event;
  add_copies(change, event);
  const auto bytes = [](std::int64_t count) {
    return scheduler::byte_text(static_cast<double>(count));
  };
  return "from step " + std::to_string(state.job.loop.planned_steps() + 1) + " on layout " +
         std::to_string(state.job.members.generation()) + ", " +
         observe::layout_words(state.configuration.plan) + ": " + bytes(change.moves.sent_bytes) +
         " of state between nodes, the busiest device sent " + bytes(change.moves.max_sent_bytes) +
         ", " + took(event.copy_ms) + " behind " + took(event.connect_ms) +
         " of connecting; stages built in " + took(milliseconds_between(change.fetched, now)) +
         (change.why.empty() ? "" : "; " + change.why);
}

observe::RunEvent resumed_event(const SupervisorState& state) {
  const engine::ResumePoint& resume = state.resources->resume;
  const std::set<NodeId> nodes = state.configuration.plan.nodes();
  observe::RunEvent event;
  event.time = engine::utc_now();
  event.step = resume.progress.step + 1;
  event.generation = state.job.members.generation();
  event.kind = "resumed";
  event.nodes = {nodes.begin(), nodes.end()};
  event.why = (resume.why.empty() ? "" : resume.why + "; ") + "from " + resume.folder.string() +
              (resume.changes.empty() ? "" : "; changed: " + job::changes_text(resume.changes));
  add_copies(state.change, event);
  event.tolerance_left = state.job.members.losses_borne();
  return event;
}

observe::RunEvent change_event(const SupervisorState& state, Time now) {
  const LayoutChange& change = state.change;
  const std::set<NodeId> nodes = state.configuration.plan.nodes();
  observe::RunEvent event;
  event.time = engine::utc_now();
  event.step = state.job.loop.planned_steps() + 1;
  event.generation = state.job.members.generation();
  event.kind = "layout";
  event.nodes = {nodes.begin(), nodes.end()};
  event.why = change.why.empty() ? observe::layout_words(state.configuration.plan) : change.why;
  event.decide_ms = milliseconds_between(change.due, change.begun);
  add_copies(change, event);
  event.rebuild_ms = milliseconds_between(change.fetched, now);
  event.samples_per_s_before = state.samples_per_s_before;
  event.tolerance_left = tolerance_of(change.want);
  return event;
}

std::string work_text(const KnownWork& known, Time now) {
  return known.work.error.message + " (" +
         in_seconds(std::chrono::duration<double>(now - known.since).count()) + " so far)";
}

namespace {

/// What its nodes said of devices that a step waits for; else what it may be.
std::string why_stalled(const SupervisorState& state, const RunningStep& step, Time now) {
  std::string text;
  for (std::size_t i = 0; i < state.links.size(); ++i)
    for (const KnownWork& known : state.links[i].long_work)
      if (known.work.epoch_number == state.job.members.generation() &&
          step.waiting_for.contains(known.device))
        text += (text.empty() ? "" : "; ") + describe(state.job.members, NodeId{i}) + ": " +
                work_text(known, now);
  return text.empty() ? "a slow device, or nodes that do not reach each other" : text;
}

/// What keeps the next step from its plan.
std::string why_unplanned() {
  const auto call = plugins::oldest_user_call();
  return call ? call->function + ", which has not returned" : "its samples and its plan";
}

}  // namespace

std::string stall_text(const SupervisorState& state, Time now) {
  const ParallelPlan& plan = state.configuration.plan;
  const auto waited = std::chrono::duration<double>(now - state.last_finish).count();
  const std::string since = " for " + in_seconds(waited);
  if (state.job.loop.is_idle())
    return "no step has run" + since + ": the next one waits for " + why_unplanned();
  const RunningStep& step = state.job.loop.under_way().front();
  std::string devices;
  for (const DeviceId device : step.waiting_for)
    devices += (devices.empty() ? "" : ", ") + ("device " + std::to_string(device.value)) +
               " (node " + std::to_string(plan.devices[device.index()].node.value) + ")";
  return "step " + std::to_string(step.votes.step()) + " has not ended" + since +
         "; it waits for " + (step.outcome ? "the end of " : "the gradients of ") + devices +
         ". All nodes answer: " + why_stalled(state, step, now);
}

std::string long_work_text(const SupervisorState& state, NodeId node, Time now) {
  std::string text;
  for (const KnownWork& known : state.links[node.index()].long_work)
    text += "; " + work_text(known, now);
  return text;
}

Error stalled_error(const SupervisorState& state, Time now) {
  return {Errc::timed_out, stall_text(state, now), "train.stall_timeout_s",
          "look at these machines and at the network between them, then start the job again; raise "
          "train.stall_timeout_s where steps may take longer"};
}

double milliseconds_between(Time begin, Time end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
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
    metrics.offloaded_bytes = std::max(metrics.offloaded_bytes, report.peak_offloaded);
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
  metrics.can_exchange = engine::can_exchange(plan);
  metrics.exchanged = prediction.exchanged;
  for (std::size_t g = 0; g < prediction.phases.size(); ++g) {
    const engine::PhaseBalance& phase = prediction.phases[g];
    const engine::FarRows& far = prediction.far_rows[g];
    metrics.phases.push_back({plan.module_groups[g].name, phase.drawn, phase.planned, phase.bound,
                              measured_imbalance(plan, ModuleGroupId{g}, work), far.planned,
                              far.bound, prediction.exchanges(g)});
  }
}

}  // namespace

StepRecord make_record(const SupervisorState& state, const RunningStep& step, Time now) {
  StepRecord record;
  observe::StepMetrics& metrics = record.metrics;
  const auto& batch = *step.batch;
  const engine::StepOutcome& outcome = *step.outcome;
  metrics.step = step.votes.step();
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
  metrics.nodes = static_cast<std::int32_t>(state.job.members.present().size());
  metrics.work = {batch.model_flops,
                  static_cast<std::int32_t>(state.configuration.plan.devices.size()),
                  state.resources->setup.job.cluster.device_tflops};
  metrics.epoch_number = state.job.members.generation();
  metrics.skipped_steps = state.job.loop.skipped_steps();
  metrics.bad_samples = state.job.loop.bad_samples();
  metrics.checkpoint_ms = state.saves.written_ms;
  for (const auto& report : step.reports)
    metrics.checkpoint_stall_ms = std::max(metrics.checkpoint_stall_ms, report.stall_ms);
  for (const auto& report : step.reports) record.observed.add(report.observed);
  for (const auto& report : step.reports)
    record.events.insert(record.events.end(), report.events.begin(), report.events.end());
  for (const auto& event : record.events)
    if (const ActionKind kind = event.action.kind; kind == ActionKind::offload ||
                                                   kind == ActionKind::offload_state ||
                                                   kind == ActionKind::evict_parameters)
      metrics.moved_to_host_bytes += Bytes{event.bytes};
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

NodeWelcome welcome_to(const SupervisorState& state, NodeId node) {
  const job::Job& job = state.resources->setup.job;
  std::error_code unknown;  // Of a folder that has no name, in tests.
  return {node,
          state.resources->resolved_job,
          job.cluster.heartbeat_interval_s,
          job.cluster.heartbeat_timeout_s,
          job.data.read_timeout_s,
          job.train.stall_timeout_s,
          std::filesystem::absolute(job.job.run_dir, unknown).string(),
          state.resources->run_id,
          state.resources->incarnation};
}

}  // namespace troupe::actors
