#include "actors/supervisor_records.hpp"

#include <algorithm>
#include <map>

#include "runtime/observe/stage_work.hpp"

namespace troupe::actors {

std::string describe(const NodeEntry& node, std::size_t id) {
  return "node " + std::to_string(id) + " (" + node.host + ", pid " + std::to_string(node.pid) +
         ")";
}

std::string roll_call(const std::vector<NodeEntry>& nodes) {
  std::string joined, missing;
  std::size_t count = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeEntry& node = nodes[i];
    std::string& list = node.phase == NodeEntry::Phase::missing ? missing : joined;
    if (node.phase != NodeEntry::Phase::missing) ++count;
    list +=
        (list.empty() ? "" : ", ") +
        (node.phase == NodeEntry::Phase::missing ? "node " + std::to_string(i) : describe(node, i));
  }
  std::string text =
      std::to_string(count) + " of " + std::to_string(nodes.size()) + " nodes joined";
  if (!joined.empty()) text += "; here: " + joined;
  if (!missing.empty()) text += "; missing: " + missing;
  return text;
}

Error late_error(const std::vector<NodeEntry>& nodes, const std::string& listen, bool all_local) {
  std::string fix = "start the missing nodes with `troupe node --join " +
                    (listen.empty() ? "HOST:PORT` (the port is in the log)" : listen + "`") +
                    ", check that they reach this address, or ";
  if (all_local && listen.empty()) fix = "give this machine more time to start its nodes: ";
  return {Errc::timed_out, roll_call(nodes), listen, fix + "raise cluster.join_timeout_s"};
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
  record.predicted_stage_ms = prediction.stage_ms;
  record.predicted_events = prediction.events;
  metrics.predicted_step_ms = prediction.step_ms;
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

}  // namespace

StepRecord make_record(const SupervisorState& state, const RunningStep& step,
                       SupervisorState::Time now) {
  StepRecord record;
  observe::StepMetrics& metrics = record.metrics;
  const auto& batch = *step.batch;
  const engine::StepOutcome& outcome = *step.outcome;
  metrics.step = step.ledger.step();
  metrics.loss = outcome.loss;
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
  metrics.nodes = static_cast<std::int32_t>(state.nodes.size());
  metrics.epoch_number = state.configuration.epoch_number;
  metrics.skipped_steps = state.skipped->count();
  metrics.bad_samples = std::ssize(state.bad_ids);
  for (const auto& report : step.reports)
    record.events.insert(record.events.end(), report.events.begin(), report.events.end());
  const auto work = observe::stage_work(record.events);
  const auto balance = observe::step_balance(
      work, static_cast<std::int32_t>(state.configuration.plan.devices.size()));
  metrics.bubble = balance.bubble;
  metrics.imbalance = balance.imbalance;
  record.nonfinite_samples = outcome.nonfinite_samples;
  add_prediction(batch.prediction, step, record);
  return record;
}

std::size_t free_place(const SupervisorState& state, std::int32_t wanted) {
  const auto local = static_cast<std::size_t>(state.resources->setup.job.cluster.local_nodes);
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    const bool suits = wanted < 0 ? i >= local : static_cast<std::size_t>(wanted) == i;
    if (suits && state.nodes[i].phase == NodeEntry::Phase::missing) return i;
  }
  return state.nodes.size();
}

bool all_in(const SupervisorState& state, NodeEntry::Phase phase) {
  return std::all_of(state.nodes.begin(), state.nodes.end(),
                     [&](const NodeEntry& node) { return node.phase == phase; });
}

RunningStep* find_step(SupervisorState& state, std::int64_t number) {
  for (RunningStep& step : state.steps)
    if (step.ledger.step() == number) return &step;
  return nullptr;
}

}  // namespace troupe::actors
