#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "app/commands.hpp"
#include "app/failure_replay_text.hpp"
#include "app/planning.hpp"
#include "app/progress.hpp"
#include "app/replay/failure_trace.hpp"
#include "app/replay/own_nodes.hpp"
#include "app/replay/replay_model.hpp"
#include "app/replay/run_costs.hpp"
#include "app/stalled_read.hpp"
#include "app/terminal.hpp"
#include "engine/setup/job_setup.hpp"
#include "scheduler/cost/profile.hpp"
#include "scheduler/recovery/failure_events.hpp"

namespace troupe::app {

namespace {

using scheduler::RecoveryMode;
using scheduler::ReplayResult;

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
  std::optional<double> link_gb_per_s;
  double storage_gb_per_s = 1;
  double node_storage_gb_per_s = 0;
  std::string lost = "killed";
  std::string costs_from;
  std::optional<double> detect_ms, loss_ms, join_ms, coordination_s, first_step_ms, turnover_ms;
  std::optional<double> pace;
  double start_ms = 1000;
  double restart_s = 30;
  std::uint64_t seed = 0;
  ReplayModelOptions model;
  bool json = false;
};

/// Of a node's network where nothing is known of it: 200 Gbit/s.
constexpr double kLinkGbPerS = 25;

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

// ---- what changes cost ----

/// All that the network does not tell. What the command line says comes before a run's word.
Result<scheduler::RecoveryCosts> costs_of(const Options& options, const job::Job& job,
                                          ReplayFacts& facts) {
  scheduler::RecoveryCosts costs;
  if (!options.costs_from.empty()) {
    const EndOnStalledRead reads(job.data.read_timeout_s);
    const auto found = read_run_costs(options.costs_from);
    if (!found.ok()) return found.error();
    const RunCosts& run = found.value();
    if (run.loss) costs.loss = *run.loss;
    if (run.join) costs.join = *run.join;
    costs.turnover_ms = run.turnover_ms.value_or(costs.turnover_ms);
    facts.pace = run.pace.value_or(1);
    facts.changes_from = options.costs_from;
  }
  const auto in_all = [](scheduler::ChangeCosts& change, std::optional<double> ms) {
    if (ms) change = {change.detect_ms, 0, 0, *ms, change.first_step_ms, false};
  };
  std::optional<double> both;
  if (options.coordination_s) both = 1000 * *options.coordination_s;
  in_all(costs.loss, options.loss_ms ? options.loss_ms : both);
  in_all(costs.join, options.join_ms ? options.join_ms : both);
  // Who says nothing is missed after that time; who is killed, by its connections.
  if (options.lost == "silent") costs.loss.detect_ms = job.cluster.heartbeat_timeout_s * 1000;
  costs.loss.detect_ms = options.detect_ms.value_or(costs.loss.detect_ms);
  for (auto* change : {&costs.loss, &costs.join})
    change->first_step_ms = options.first_step_ms.value_or(change->first_step_ms);
  costs.turnover_ms = options.turnover_ms.value_or(costs.turnover_ms);
  costs.restart_ms = options.restart_s * 1000;
  costs.link_bytes_per_ms = options.link_gb_per_s.value_or(kLinkGbPerS) * 1e6;
  costs.storage_bytes_per_ms = options.storage_gb_per_s * 1e6;
  costs.node_storage_bytes_per_ms = options.node_storage_gb_per_s * 1e6;
  facts.pace = options.pace.value_or(facts.pace);
  return costs;
}

// ---- playing ----

/// Plays one way to recover.
using Player =
    std::function<Result<ReplayResult>(RecoveryMode mode, const scheduler::RecoveryCosts& costs)>;
using Arrivals = std::vector<scheduler::NodeArrival>;

struct Machines {
  std::int64_t nodes = 0;  ///< Of failures that no trace tells.
  double read_timeout_s = 0;
  /// What plays, once it is known how many nodes there are at most.
  std::function<Result<Player>(const FailureTrace& trace, const Arrivals& arrivals,
                               double duration_ms)>
      prepare;
};

Result<std::vector<PlayedRecovery>> play(const Options& options, const Machines& machines,
                                         FailureTrace& trace, const ReplayFacts& facts) {
  auto progress = std::make_optional<Progress>("making pipeline templates");
  const double duration_ms = options.hours > 0 ? options.hours * kMsPerHour : trace.end_ms;
  const Arrivals arrivals = scheduler::arrivals_of(trace.nodes, trace.events, facts.start_ms);
  trace.events = scheduler::after_start(trace.events, facts.start_ms);
  const auto player = machines.prepare(trace, arrivals, duration_ms);
  if (!player.ok()) return player.error();
  std::vector<PlayedRecovery> all;
  for (const auto mode : {RecoveryMode::live, RecoveryMode::restart}) {
    if (options.recovery == (mode == RecoveryMode::live ? "checkpoint" : "live")) continue;
    progress->now("replaying " + std::to_string(trace.events.size()) + " events, recovery " +
                  (mode == RecoveryMode::live ? "live" : "from checkpoints"));
    auto costs = facts.changes;
    costs.checkpoint_iterations =
        mode == RecoveryMode::live ? options.live_checkpoint_every : options.checkpoint_every;
    auto result = player.value()(mode, costs);
    if (!result.ok()) return result.error();
    all.push_back({mode, std::move(result).value()});
  }
  return all;
}

scheduler::ReplayRequest template_request(scheduler::RecoveryModel model, const FailureTrace& trace,
                                          double duration_ms) {
  scheduler::ReplayRequest request;
  request.model = std::move(model);
  request.nodes = trace.nodes;
  request.events = trace.events;
  request.duration_ms = duration_ms;
  return request;
}

Result<ReplayResult> play_templates(scheduler::ReplayRequest request, RecoveryMode mode,
                                    const scheduler::RecoveryCosts& costs) {
  request.mode = mode;
  request.costs = costs;
  return scheduler::replay_failures(request);
}

/// Machines that are not here, without the job's data. Families are not waited for without an end.
Result<Machines> planned_machines(const Options& options, ReplayFacts& facts) {
  auto job = read_job_on_paper(options.job, false);
  if (!job.ok()) return std::move(job).error();
  auto reads = std::make_shared<EndOnStalledRead>(job.value().job);
  auto setup = engine::prepare(job.value().job);
  if (!setup.ok()) return std::move(setup).error();
  const auto cluster = parse_cluster(options.cluster);
  if (!cluster.ok()) return cluster.error();
  auto costs = costs_of(options, setup.value().job, facts);
  if (!costs.ok()) return std::move(costs).error();
  facts.changes = costs.value();
  facts.device = cluster.value().device.name;
  facts.costs = scheduler::to_string(scheduler::CostOrigin::computed);
  char share[32];
  std::snprintf(share, sizeof share, "%g", options.model.compute_share);
  facts.costs_words =
      std::string("layer costs computed from ") + share + " of the peak rate, not measured";
  facts.sums =
      "sums of gradients take no time by any cluster.sums: templates of pipelines know none";
  facts.pace = 1;
  facts.job = setup.value().job.job.name;
  facts.node = std::to_string(cluster.value().shape.devices_per_node) + " x " + facts.device;
  Machines made{cluster.value().shape.nodes, setup.value().job.data.read_timeout_s, {}};
  made.prepare = [&options, reads = std::move(reads), cluster = cluster.value(),
                  setup = std::move(setup).value()](const FailureTrace& trace, const Arrivals&,
                                                    double duration_ms) -> Result<Player> {
    auto model = recovery_model(setup.job, setup.model, setup.modules(),
                                {trace.peak_nodes, cluster.shape.devices_per_node, cluster.device},
                                options.model);
    if (!model.ok()) return std::move(model).error();
    return Player([request = template_request(std::move(model).value(), trace, duration_ms)](
                      RecoveryMode mode, const scheduler::RecoveryCosts& costs) {
      return play_templates(request, mode, costs);
    });
  };
  return made;
}

/// The job's own nodes, by its profile, its data and its layout.
Result<Machines> own_machines(const Options& options, ReplayFacts& facts) {
  PlanningArguments arguments;
  arguments.job = options.job;
  auto opened = open_planning(arguments);
  if (!opened.ok()) return std::move(opened).error();
  const std::shared_ptr<Planning> planning = std::move(opened).value();
  engine::JobSetup& setup = planning->setup;
  setup.costs = std::make_shared<const engine::PlanningCosts>(engine::PlanningCosts{
      planning->model, planning->request.prediction, planning->request.device_memory});
  auto costs = costs_of(options, setup.job, facts);
  if (!costs.ok()) return std::move(costs).error();
  facts.changes = costs.value();
  facts.device = planning->device;
  facts.costs = planning->costs;
  char pace[32];
  std::snprintf(pace, sizeof pace, "%g", facts.pace);
  facts.costs_words = "layer costs " + facts.costs + "; a step takes " + pace + " times as long";
  if (planning->sums) facts.sums = planning->sums->choice + ": " + planning->sums->why;
  facts.job = setup.job.job.name;
  facts.node = std::to_string(setup.job.cluster.devices_per_node) + " x " + facts.device;
  Machines made{setup.job.cluster.nodes, setup.job.data.read_timeout_s, {}};
  made.prepare = [&options, planning, pace = facts.pace](const FailureTrace& trace,
                                                         const Arrivals& arrivals,
                                                         double duration_ms) -> Result<Player> {
    auto job = replayed_job(planning->setup, planning->request.samples, pace);
    if (!job.ok()) return std::move(job).error();
    if (options.link_gb_per_s) job.value().network_bytes_per_ms = *options.link_gb_per_s * 1e6;
    auto model = restart_model(job.value(), planning->setup.job.train.microbatches);
    if (!model.ok()) return std::move(model).error();
    scheduler::JobReplayRequest live{std::move(job).value(), {},          trace.nodes,
                                     trace.events,           duration_ms, arrivals};
    return Player([planning, live = std::move(live),
                   request = template_request(std::move(model).value(), trace, duration_ms)](
                      RecoveryMode mode, const scheduler::RecoveryCosts& costs) {
      if (mode == RecoveryMode::restart) return play_templates(request, mode, costs);
      auto with_costs = live;
      with_costs.costs = costs;
      return scheduler::replay_job(with_costs);
    });
  };
  return made;
}

int run_replay(const Options& options) {
  if (options.trace.empty() == (options.failure_every_s == 0))
    return report(usage_error("replay: which failures?",
                              "give either --failures TRACE or --failure-every 10m"));
  ReplayFacts facts;
  facts.start_ms = options.start_ms;
  const auto machines =
      options.cluster.empty() ? own_machines(options, facts) : planned_machines(options, facts);
  if (!machines.ok()) return report(machines.error());
  auto trace = read_events(options, machines.value().nodes, machines.value().read_timeout_s);
  if (!trace.ok()) return report(trace.error());
  const auto all = play(options, machines.value(), trace.value(), facts);
  if (!all.ok()) return report(all.error());
  facts.nodes = std::ssize(trace.value().nodes);
  facts.peak_nodes = trace.value().peak_nodes;
  options.json ? print_replay_json(facts, all.value()) : print_replay(facts, all.value());
  return kDone;
}

// ---- options ----

void add_changes(CLI::App& command, Options& options) {
  const CLI::Range ms(0.0, 1e9);
  command
      .add_option("--lost", options.lost,
                  "How nodes are lost: killed, which their connections tell at once, or silent, "
                  "which takes cluster.heartbeat_timeout_s")
      ->check(CLI::IsMember({"killed", "silent"}))
      ->capture_default_str();
  command
      .add_option("--costs-from", options.costs_from,
                  "Take what changes cost from a run that had some: medians of the phases in "
                  "its events.jsonl, and of its steps beside its profile")
      ->type_name("RUN");
  command.add_option("--detect-ms", options.detect_ms, "Until a loss is known [5]")->check(ms);
  command
      .add_option("--loss-ms", options.loss_ms,
                  "Live: a loss, beside detection, copies and the step that is lost [120]")
      ->check(ms);
  command.add_option("--join-ms", options.join_ms, "Live: a join, beside copies [120]")->check(ms);
  command
      .add_option("--coordination-s", options.coordination_s,
                  "The older word for --loss-ms and --join-ms, both, in seconds")
      ->check(CLI::Range(0.0, 1e6));
  command
      .add_option("--first-step-ms", options.first_step_ms,
                  "Live: the first step after a change, beyond a usual one [0]")
      ->check(ms);
  command
      .add_option("--turnover-ms", options.turnover_ms,
                  "Live: a layout during which a joining node's state comes [50]")
      ->check(ms);
  command
      .add_option("--start-ms", options.start_ms,
                  "From the start of a node until it can join: process, data, connections")
      ->check(ms)
      ->capture_default_str();
}

void add_costs(CLI::App& command, Options& options) {
  const auto number = [&](const char* flag, auto& value, const char* help) {
    command.add_option(flag, value, help)->capture_default_str();
  };
  number("--checkpoint-every", options.checkpoint_every,
         "Iterations, with recovery from checkpoints; 0: none");
  number("--live-checkpoint-every", options.live_checkpoint_every,
         "Iterations, with live recovery; 0: none");
  command.add_option("--link-gb-per-s", options.link_gb_per_s,
                     "A node's network, one direction [25; without --cluster: the profile's]");
  number("--storage-gb-per-s", options.storage_gb_per_s, "All checkpoint storage together");
  number("--node-storage-gb-per-s", options.node_storage_gb_per_s,
         "One node's checkpoints, written or read; 0: as its network");
  number("--restart-s", options.restart_s, "Checkpoint: processes and model, without loading");
  number("--seed", options.seed, "Which node fails, and when, where the trace does not say it");
}

/// What only one of the two ways to know machines has.
void add_machines(CLI::App& command, Options& options) {
  auto* cluster = command.add_option("--cluster", options.cluster,
                                     "Machines that are not here, with computed layer costs: nodes "
                                     "x devices x kind, as 30x1xA40-48G. Else the job's own nodes, "
                                     "layout, data and profile");
  cluster->type_name("NxGxDEVICE");
  command
      .add_option("--pace", options.pace,
                  "Without --cluster: steps take so many times what the profile says [1]")
      ->check(CLI::Range(1e-3, 1e3))
      ->excludes(cluster);
  command.add_option("--microbatch-size", options.model.microbatch_size, "With --cluster: samples")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->needs(cluster);
  command
      .add_option("--compute-share", options.model.compute_share,
                  "With --cluster: of the peak rate that layers attain")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str()
      ->needs(cluster);
  command
      .add_flag("--recompute", options.model.recompute,
                "With --cluster: run layers forward again in backward instead of keeping "
                "activations")
      ->needs(cluster);
}

}  // namespace

void add_failure_replay(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add("replay", "Play hours of failures through, without machines",
                               [options] { return run_replay(*options); });
  options->job.add_to(*command);
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
  add_machines(*command, *options);
  add_changes(*command, *options);
  add_costs(*command, *options);
  command->add_flag("--json", options->json, "Print one JSON object instead");
}

}  // namespace troupe::app
