#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "app/commands.hpp"
#include "app/planning.hpp"
#include "app/progress.hpp"
#include "app/replay/failure_trace.hpp"
#include "app/replay/replay_model.hpp"
#include "app/stalled_read.hpp"
#include "app/terminal.hpp"
#include "app/text_table.hpp"
#include "engine/setup/job_setup.hpp"
#include "scheduler/cost/profile.hpp"
#include "scheduler/recovery/failure_events.hpp"

namespace troupe::app {

namespace {

using scheduler::RecoveryMode;
using scheduler::ReplayResult;
using scheduler::TimeShares;

constexpr double kMsPerHour = 3.6e6;

struct Options {
  JobArguments job;
  std::string cluster;
  std::string trace;
  double failure_every_s = 0;
  std::string arrivals = "periodic";
  double hours = 0;
  std::string recovery = "both";
  std::int64_t checkpoint_every = 10;
  std::int64_t live_checkpoint_every = 0;
  double link_gb_per_s = 25;
  double storage_gb_per_s = 1;
  double node_storage_gb_per_s = 0;
  double coordination_s = 2;
  double restart_s = 30;
  std::uint64_t seed = 0;
  ReplayModelOptions model;
  bool json = false;
};

// One row of the result per cause of time.
struct Cause {
  const char* name;
  const char* key;
  double TimeShares::*ms;
};
constexpr std::array<Cause, 7> kCauses{{
    {"training", "training", &TimeShares::training_ms},
    {"lost work", "lost_work", &TimeShares::lost_work_ms},
    {"saving checkpoints", "checkpoint", &TimeShares::checkpoint_ms},
    {"detecting losses", "detection", &TimeShares::detection_ms},
    {"new pipelines, restarts", "reconfigure", &TimeShares::reconfigure_ms},
    {"copying, loading", "copy", &TimeShares::copy_ms},
    {"stopped", "stopped", &TimeShares::stopped_ms},
}};

/// The job and its model; none of its data is used.
Result<engine::JobSetup> read_setup(const JobArguments& arguments) {
  auto job = read_job_on_paper(arguments, false);
  if (!job.ok()) return std::move(job).error();
  return engine::prepare(job.value().job);
}

/// `read_timeout_s`: a trace that is not read within that time ends the process.
Result<FailureTrace> read_events(const Options& options, std::int64_t nodes,
                                 double read_timeout_s) {
  if (!options.trace.empty()) {
    const EndOnStalledRead reads(read_timeout_s);
    return read_failure_trace(options.trace, options.seed);
  }
  // Until fewer than half of the nodes are left, unless the hours say otherwise.
  const double every_ms = options.failure_every_s * 1000;
  FailureTrace made;
  for (std::int64_t node = 0; node < nodes; ++node) made.nodes.push_back(node);
  made.peak_nodes = nodes;
  const std::int64_t until_half = nodes - (nodes + 1) / 2 + 1;
  if (options.arrivals == "random") {
    made.events = scheduler::random_failures(nodes, nodes, every_ms, options.seed);
    made.end_ms = made.events[std::size_t(until_half - 1)].time_ms;
  } else {
    made.events = scheduler::periodic_failures(nodes, nodes, every_ms, options.seed);
    made.end_ms = double(until_half) * every_ms;
  }
  if (options.hours > 0) made.end_ms = options.hours * kMsPerHour;
  return made;
}

struct Played {
  RecoveryMode mode;
  ReplayResult result;

  const char* name() const { return mode == RecoveryMode::live ? "live" : "checkpoint"; }
  std::int64_t count(scheduler::EventOutcome outcome) const {
    return std::count_if(result.events.begin(), result.events.end(),
                         [&](const auto& event) { return event.outcome == outcome; });
  }
};

Result<std::vector<Played>> play(const Options& options, const engine::JobSetup& setup,
                                 const PlannedCluster& cluster, const FailureTrace& trace) {
  Progress progress("making pipeline templates");
  auto model = recovery_model(setup.job, setup.model, setup.modules(),
                              {trace.peak_nodes, cluster.shape.devices_per_node, cluster.device},
                              options.model);
  if (!model.ok()) return model.error();
  scheduler::ReplayRequest request;
  request.model = std::move(model).value();
  request.costs.detection_ms = setup.job.cluster.heartbeat_timeout_s * 1000;
  request.costs.coordination_ms = options.coordination_s * 1000;
  request.costs.restart_ms = options.restart_s * 1000;
  request.costs.link_bytes_per_ms = options.link_gb_per_s * 1e6;
  request.costs.storage_bytes_per_ms = options.storage_gb_per_s * 1e6;
  request.costs.node_storage_bytes_per_ms = options.node_storage_gb_per_s * 1e6;
  request.nodes = trace.nodes;
  request.events = trace.events;
  request.duration_ms = options.hours > 0 ? options.hours * kMsPerHour : trace.end_ms;
  std::vector<Played> all;
  for (const auto mode : {RecoveryMode::live, RecoveryMode::restart}) {
    if (options.recovery == (mode == RecoveryMode::live ? "checkpoint" : "live")) continue;
    request.mode = mode;
    progress.now("replaying " + std::to_string(trace.events.size()) + " events, recovery " +
                 (mode == RecoveryMode::live ? "live" : "from checkpoints"));
    request.costs.checkpoint_iterations =
        mode == RecoveryMode::live ? options.live_checkpoint_every : options.checkpoint_every;
    auto result = scheduler::replay_failures(request);
    if (!result.ok()) return result.error();
    all.push_back({mode, std::move(result).value()});
  }
  return all;
}

Json event_json(const scheduler::EventRecord& event) {
  return {{"time_ms", event.time_ms},
          {"outcome", scheduler::to_string(event.outcome)},
          {"nodes", event.nodes},
          {"idle", event.idle},
          {"pipelines", event.pipelines},
          {"iteration_ms", event.iteration_ms},
          {"lost_work_ms", event.lost_work_ms},
          {"lost_iterations", event.lost_iterations},
          {"recovery_ms", event.recovery_ms},
          {"copied_bytes", event.copied_bytes}};
}

void print_json(const PlannedCluster& cluster, const std::vector<Played>& all) {
  Json json{{"device", cluster.device.name},
            {"costs", scheduler::to_string(scheduler::CostOrigin::computed)},
            {"duration_ms", all.front().result.time.total_ms()}};
  for (const auto& played : all) {
    const auto& result = played.result;
    Json shares, events = Json::array();
    for (const auto& cause : kCauses)
      shares[cause.key] = result.time.*cause.ms / result.time.total_ms();
    for (const auto& event : result.events) events.push_back(event_json(event));
    json["recovery"][played.name()] = {
        {"samples", result.samples},
        {"samples_per_s", result.samples_per_s},
        {"iterations", result.iterations},
        {"repeated_iterations", result.repeated_iterations},
        {"idle_share", result.idle_share},
        {"time_share", std::move(shares)},
        {"reconfigurations", played.count(scheduler::EventOutcome::reconfigured)},
        {"restarts", played.count(scheduler::EventOutcome::restarted)},
        {"stops", played.count(scheduler::EventOutcome::stopped)},
        {"events", std::move(events)}};
  }
  std::cout << json.dump(2) << '\n';
}

std::string decimals(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

template <class Cell>
void print_row(const std::string& name, const std::vector<Played>& all, Cell cell) {
  std::cout << "  " << name << std::string(name.size() < 32 ? 32 - name.size() : 1, ' ');
  for (const auto& played : all) {
    const std::string text = cell(played);
    std::cout << std::string(text.size() < 14 ? 14 - text.size() : 1, ' ') << text;
  }
  std::cout << '\n';
}

void print_table(const Options& options, const engine::JobSetup& setup,
                 const PlannedCluster& cluster, const FailureTrace& trace,
                 const std::vector<Played>& all) {
  using scheduler::EventOutcome;
  const double hours = all.front().result.time.total_ms() / kMsPerHour;
  std::cout << setup.job.job.name << ": " << decimals(hours, 2) << " h, " << trace.nodes.size()
            << " nodes at first, " << trace.peak_nodes << " at most, "
            << cluster.shape.devices_per_node << " x " << cluster.device.name << " each\n"
            << "layer costs computed from " << options.model.compute_share
            << " of the peak rate, not measured\n\n";
  print_row("recovery", all, [](const Played& p) { return std::string(p.name()); });
  print_row("samples", all, [](const Played& p) { return with_commas(p.result.samples); });
  print_row("samples/s", all, [](const Played& p) { return decimals(p.result.samples_per_s, 3); });
  for (const auto& cause : kCauses)
    print_row(std::string("time: ") + cause.name, all, [&](const Played& p) {
      return decimals(100 * (p.result.time.*cause.ms) / p.result.time.total_ms(), 2) + "%";
    });
  print_row("idle nodes", all,
            [](const Played& p) { return decimals(100 * p.result.idle_share, 2) + "%"; });
  const auto counted = [&](const char* name, EventOutcome outcome) {
    print_row(name, all, [&](const Played& p) { return with_commas(p.count(outcome)); });
  };
  counted("reconfigurations", EventOutcome::reconfigured);
  counted("restarts", EventOutcome::restarted);
  counted("stops", EventOutcome::stopped);
  print_row("iterations trained twice", all,
            [](const Played& p) { return with_commas(p.result.repeated_iterations); });
}

int run_replay(const Options& options) {
  if (options.trace.empty() == (options.failure_every_s == 0))
    return report(usage_error("replay: which failures?",
                              "give either --failures TRACE or --failure-every 10m"));
  const auto setup = read_setup(options.job);
  if (!setup.ok()) return report(setup.error());
  const auto cluster = parse_cluster(options.cluster);
  if (!cluster.ok()) return report(cluster.error());
  const auto trace =
      read_events(options, cluster.value().shape.nodes, setup.value().job.data.read_timeout_s);
  if (!trace.ok()) return report(trace.error());
  const auto all = play(options, setup.value(), cluster.value(), trace.value());
  if (!all.ok()) return report(all.error());
  if (options.json) {
    print_json(cluster.value(), all.value());
  } else {
    print_table(options, setup.value(), cluster.value(), trace.value(), all.value());
  }
  return kDone;
}

void add_costs(CLI::App& command, Options& options) {
  const auto number = [&](const char* flag, auto& value, const char* help) {
    command.add_option(flag, value, help)->capture_default_str();
  };
  number("--checkpoint-every", options.checkpoint_every,
         "Iterations, with recovery from checkpoints; 0: none");
  number("--live-checkpoint-every", options.live_checkpoint_every,
         "Iterations, with live recovery; 0: none");
  number("--link-gb-per-s", options.link_gb_per_s, "A node's network, one direction");
  number("--storage-gb-per-s", options.storage_gb_per_s, "All checkpoint storage together");
  number("--node-storage-gb-per-s", options.node_storage_gb_per_s,
         "One node's checkpoints, written or read; 0: as its network");
  number("--coordination-s", options.coordination_s, "Live: plan, groups and connections");
  number("--restart-s", options.restart_s, "Checkpoint: processes and model, without loading");
  number("--seed", options.seed, "Which node fails, and when, where the trace does not say it");
  command.add_option("--microbatch-size", options.model.microbatch_size, "Samples")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--compute-share", options.model.compute_share,
                  "Of the peak rate that layers attain")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  command.add_flag("--recompute", options.model.recompute,
                   "Run layers forward again in backward instead of keeping activations");
}

}  // namespace

void add_failure_replay(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add("replay", "Play hours of failures through, without machines",
                               [options] { return run_replay(*options); });
  options->job.add_to(*command);
  command->add_option("--cluster", options->cluster, "Nodes x devices x kind: 30x1xA40-48G")
      ->required()
      ->type_name("NxGxDEVICE");
  command
      ->add_option("--failures", options->trace,
                   "Nodes that come and go: .csv `ms,add|remove,name` or .txt `date, time, "
                   "count`; it also says how many nodes there are")
      ->type_name("TRACE");
  const std::map<std::string, double> units{{"s", 1}, {"m", 60}, {"h", 3600}};
  command
      ->add_option("--failure-every", options->failure_every_s,
                   "A node fails each 10m (s, m, h) and stays away")
      ->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::UNIT_REQUIRED, "TIME"))
      ->check(CLI::Range(1.0, 1e9));
  command
      ->add_option("--arrivals", options->arrivals,
                   "With --failure-every: exactly then, or at random with that mean (see --seed)")
      ->check(CLI::IsMember({"periodic", "random"}))
      ->capture_default_str();
  command
      ->add_option("--hours", options->hours,
                   "How long; else the whole trace, or until fewer than half of the nodes "
                   "are left")
      ->check(CLI::Range(1e-3, 1e5));
  command->add_option("--recovery", options->recovery, "Which recovery to play")
      ->check(CLI::IsMember({"live", "checkpoint", "both"}))
      ->capture_default_str();
  add_costs(*command, *options);
  command->add_flag("--json", options->json, "Print one JSON object instead");
}

}  // namespace troupe::app
