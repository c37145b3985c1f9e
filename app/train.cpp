// `troupe train`: the head of a job, or one of the reference runs.

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <caf/all.hpp>
#include <cmath>
#include <csignal>
#include <future>
#include <iostream>
#include <memory>
#include <thread>

#include "actors/head_colleagues.hpp"
#include "actors/supervisor_actor.hpp"
#include "actors/system.hpp"
#include "app/commands.hpp"
#include "app/doors.hpp"
#include "app/local_nodes.hpp"
#include "app/run_record.hpp"
#include "app/signals.hpp"
#include "app/stalled_read.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "engine/choose_layout.hpp"
#include "engine/data_warnings.hpp"
#include "engine/nominal_profile.hpp"
#include "engine/plan_summary.hpp"
#include "engine/profile_run.hpp"
#include "engine/reference.hpp"
#include "engine/run_lock.hpp"
#include "engine/state_memory.hpp"
#include "engine/this_machine.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/observe/plan_words.hpp"

namespace troupe::app {

namespace {

using namespace actors;

/// For measuring layers at the start of a job; `troupe profile` takes longer and is more exact.
constexpr double kProfileSeconds = 5;

struct Options {
  JobArguments job;
  bool reference = false;
  std::string microbatches;
};

struct Opened {
  job::LoadedJob loaded;
  engine::JobSetup setup;
  engine::DataIdentity data;
  engine::ObtainedProfile profile;
  ParallelPlan plan;
  std::vector<ParallelPlan> later;               ///< That the job changes to while it runs.
  std::vector<scheduler::LayoutReason> reasons;  ///< Of a chosen layout.
  std::string resolved;
  std::vector<std::string> warnings;  ///< What of the job has no effect: a line each.
  std::string left_behind;            ///< Whose lock of the run folder was taken over.
};

/// Layer costs that plans are predicted with: a file, or measured now, which takes some seconds.
Result<engine::ObtainedProfile> obtain_costs(engine::JobSetup& setup) {
  observe::Console console(observe::detect_console(1));
  engine::ProfileOptions options;
  options.budget_s = kProfileSeconds;
  options.on_progress = [&console](const std::string& kind, double share) {
    if (console.options().terminal)
      console.status("measuring " + kind + " (" + std::to_string(std::lround(100 * share)) + " %)");
  };
  auto obtained = engine::use_profile(setup, options);
  if (console.options().terminal) console.status("");
  return obtained;
}

/// Everything that can be wrong with a job before anything is started or written.
Result<Opened> open_job(job::LoadedJob loaded, bool predicted) {
  Opened opened;
  auto setup = engine::prepare(loaded.job);
  if (!setup.ok()) return std::move(setup).error();
  auto dataset = data::Dataset::open(setup.value().data);
  if (!dataset.ok()) return std::move(dataset).error();
  opened.data = engine::identify(dataset.value(), setup.value().data.seed);
  for (const auto& warning : loaded.warnings)
    opened.warnings.push_back(engine::warning_text(warning));
  for (const auto& warning : engine::data_warnings(loaded, dataset.value()))
    opened.warnings.push_back(engine::warning_text(warning));
  // A model that fits nowhere is refused before its layers are measured.
  const auto first = engine::choose_layout(setup.value());
  if (!first.ok()) return first.error();
  auto later = engine::later_layouts(setup.value());
  if (!later.ok()) return std::move(later).error();
  opened.later = std::move(later).value();
  auto all = opened.later;
  all.push_back(first.value().plan);
  for (const ParallelPlan& plan : all) {
    auto fits =
        engine::check_state_memory(loaded.job, plan, engine::memory_at_hand(loaded.job.cluster));
    if (!fits.ok()) return std::move(fits).error();
  }
  if (predicted) {
    auto profile = obtain_costs(setup.value());
    if (!profile.ok()) return std::move(profile).error();
    opened.profile = std::move(profile).value();
  }
  auto layout = engine::choose_layout(setup.value());
  if (!layout.ok()) return std::move(layout).error();
  opened.resolved = job::to_toml(loaded);
  opened.setup = std::move(setup).value();
  opened.plan = std::move(layout.value().plan);
  opened.reasons = std::move(layout.value().reasons);
  opened.loaded = std::move(loaded);
  return opened;
}

/// The run folder, and the log that goes to the console and to `train.log` in there.
struct Run {
  std::shared_ptr<engine::RunFolder> folder;
  observe::Logger logger;
  observe::Logger file;  ///< `train.log` alone: for what the console is told in another way.
};

Result<Run> open_run(const Opened& opened, observe::Console& console, const std::string& name) {
  auto folder = engine::RunFolder::create(opened.setup.job.job.run_dir, opened.resolved);
  if (!folder.ok()) return std::move(folder).error();
  const observe::LoggerOptions options{.node_name = name,
                                       .file = folder.value().path() / engine::RunFolder::kLogFile};
  auto logger = observe::Logger::create(&console, options);
  if (!logger.ok()) return std::move(logger).error();
  auto file = observe::Logger::create(nullptr, options);
  if (!file.ok()) return std::move(file).error();
  const observe::Logger& log = logger.value();
  if (!opened.left_behind.empty())
    log.info("the run folder was still locked by " + opened.left_behind + ", which is gone");
  if (const auto& moved = folder.value().moved_to())
    log.info("an older run was moved to " + moved->string());
  for (const auto& warning : opened.warnings) log.warning(warning);
  if (auto noted = record_begin(folder.value().path(), opened.setup.job); !noted.ok())
    return std::move(noted).error();
  return Run{std::make_shared<engine::RunFolder>(std::move(folder).value()),
             std::move(logger).value(), std::move(file).value()};
}

void announce(const Opened& opened, const observe::Logger& logger) {
  const auto& job = opened.setup.job;
  std::int64_t parameters = 0, trained = 0;
  for (const auto& module : opened.setup.model.modules)
    for (const auto& layer : module.layers) {
      parameters += layer.parameter_elements + layer.constant_elements;
      if (!module.freeze) trained += layer.parameter_elements;
    }
  logger.info(job.job.name + ": " + with_unit(parameters) + " parameters (" + with_unit(trained) +
              " trained), " + with_commas(opened.data.records) + " samples, " +
              std::to_string(job.cluster.nodes) + " nodes, " + observe::layout_words(opened.plan) +
              ", run folder " + job.job.run_dir.string());
  const auto& profile = opened.profile;
  logger.info("layer costs: " + profile.file.string() +
              (profile.reused ? ""
                              : ", measured in " + std::to_string(std::lround(profile.measured_s)) +
                                    " s, because " + profile.reason));
  for (const auto& warning : profile.warnings) logger.warning(warning);
  const auto crowded = engine::crowded_cores(opened.plan, job.cluster, engine::core_count());
  if (!crowded.empty()) logger.warning(crowded);
  for (const auto& reason : opened.reasons)
    logger.info("because " + reason.choice + ": " + reason.why);
}

// ---- the reference runs
// ---------------------------------------------------------------------------

int train_by_reference(const Options& options, const Opened& opened) {
  observe::Console console(observe::detect_console(1));
  auto run = open_run(opened, console, "reference");
  if (!run.ok()) return report(run.error());
  const auto& [folder, logger, log_file] = run.value();
  at::set_num_threads(opened.setup.job.cluster.threads_per_device);
  std::atomic<bool> stop{false}, done{false};
  int signal = 0;
  std::atomic<std::int64_t> step{1};
  const auto stopped = [&] { return "before step " + std::to_string(step) + " was done"; };
  std::thread watcher([&] {
    while (!done && !stop)
      if ((signal = wait_for_signal({}, std::chrono::milliseconds(50))) != 0) stop = true;
    // A step may take long, and nothing of it is kept.
    const auto deadline = std::chrono::steady_clock::now() + kLeaveTime;
    while (!done && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (done) return;
    record_end(folder->path(), 128 + signal, "stopped " + stopped());
    leave(report_signal(signal, stopped()));
  });
  std::optional<observe::StepReporter> reporter;
  engine::ReferenceOptions reference;
  reference.stop = &stop;
  const auto& train = opened.setup.job.train;
  const auto per_epoch = data::batches_per_epoch(opened.data.records, train.global_batch_size);
  reference.on_step = [&](const observe::StepMetrics& metrics, std::int64_t total_steps) {
    if (!reporter)
      reporter.emplace(console, logger,
                       observe::TrainingGoal{total_steps, train.duration.tokens(), per_epoch});
    reporter->report(metrics);
    step = metrics.step + 1;
  };
  Status trained = Done{};
  if (options.microbatches.empty()) {
    trained = engine::train_reference(opened.setup, *folder, reference);
  } else {
    std::optional<std::filesystem::path> recorded;
    if (options.microbatches != "plan") recorded = options.microbatches;
    trained = engine::train_plan_reference(opened.setup, recorded, *folder, reference);
  }
  done = true;
  watcher.join();
  if (reporter) reporter->finish();
  const auto end = [&](int code, const std::string& message) {
    if (code != kDone) log_file.error(message);
    record_end(folder->path(), code, message);
    return code;
  };
  if (stop)
    return end(report_signal(signal, stopped()),
               "stopped by " + actors::signal_name(signal) + " " + stopped());
  if (!trained.ok()) return end(report(trained.error()), to_string(trained.error()));
  end(kDone, "");
  logger.info("done: " + folder->path().string());
  return kDone;
}

// ---- the head
// -------------------------------------------------------------------------------------

/// Passes signals and ended children on until the job has ended. What a signal begins ends within
/// `cluster.stop_timeout_s`, whatever the supervisor does, and after a second one at once.
JobEnd watch(std::future<JobEnd>& ended, const SupervisorActor& supervisor, LocalNodes& nodes,
             double stop_timeout_s) {
  const auto first = std::chrono::ceil<std::chrono::milliseconds>(seconds(stop_timeout_s));
  const int unheard = take_signals_until(
      [&] { return ended.wait_for(std::chrono::seconds(0)) == std::future_status::ready; },
      {SIGCHLD}, {first + kLeaveTime, kLeaveTime},
      [&](int signal) {
        if (ends_process(signal))
          caf::anon_send(supervisor, stop_atom::value, static_cast<std::int32_t>(signal));
        for (const EndedChild& child : nodes.reap())
          caf::anon_send(supervisor, exited_atom::value, static_cast<std::int32_t>(child.pid),
                         child.how);
      });
  if (unheard == 0) return ended.get();
  nodes.kill_all();
  leave(report_signal(unheard, "by force: its supervisor did not end the job"));
}

/// Kills local nodes that will not end by themselves and waits for the others, which leave at once;
/// what is left after that is killed too.
void wait_for_children(LocalNodes& nodes, const JobEnd& how) {
  for (const NodeId node : how.left) nodes.kill_node(node);
  const auto deadline = std::chrono::steady_clock::now() + 2 * kLeaveTime;
  while (!nodes.empty() && std::chrono::steady_clock::now() < deadline) {
    nodes.reap();
    wait_for_signal_only({SIGCHLD}, std::chrono::milliseconds(20));
  }
  nodes.kill_all();
}

std::string reachable(const HostPort& address, std::uint16_t port) {
  if (port == 0) return "";  // Not known before it is bound.
  return (address.is_any() ? engine::host_name() : address.host) + ":" + std::to_string(port);
}

int train_as_head(Opened opened, Doors doors) {
  const job::Job job = opened.setup.job;
  observe::Console console(observe::detect_console(1));
  const HostPort& address = doors.address;
  auto run = open_run(opened, console, "head");
  if (!run.ok()) return report(run.error());
  const auto& [folder, logger, log_file] = run.value();
  announce(opened, logger);

  auto promise = std::make_shared<std::promise<JobEnd>>();
  auto ended = promise->get_future();
  HeadResources resources{std::move(opened.setup),
                          std::move(opened.plan),
                          std::move(opened.later),
                          std::move(opened.resolved),
                          build_id(),
                          opened.data,
                          folder,
                          &console,
                          logger,
                          std::move(doors.transport),
                          reachable(address, address.port),
                          [promise](JobEnd how) {
                            promise->set_value(std::move(how));
                            wake_main_thread();
                          }};
  JobEnd how;
  LocalNodes nodes;
  {
    SystemConfig config;
    caf::actor_system system(config);
    const SupervisorActor actor = system.spawn(supervisor, &resources, head_colleagues(resources));
    const std::uint16_t port =
        publish(system, actor, std::move(doors.listening), doors.key.key,
                [log = logger](const std::string& line) { log.warning(line); });
    const std::string joined = reachable(address, port);
    const std::int32_t remote = job.cluster.nodes - job.cluster.local_nodes;
    if (remote > 0)
      logger.info("waiting for " + std::to_string(remote) + " nodes: troupe node --join " + joined);
    const std::string local = address.is_any() ? "127.0.0.1:" + std::to_string(port) : joined;
    auto started = nodes.start(job.cluster.local_nodes, local, doors.key.key.text());
    if (!started.ok()) caf::anon_send(actor, failed_atom::value, started.error());
    how = watch(ended, actor, nodes, job.cluster.stop_timeout_s);
    wait_for_children(nodes, how);
    record_end(job.job.run_dir, how.exit_code, how.message);
    if (how.exit_code == 0) {
      logger.info("done: " + job.job.run_dir.string());
    } else {
      log_file.error(how.message);
      console.status("");
      std::cerr << how.message << '\n';
    }
    leave_at_latest(how.exit_code, kLeaveTime);
    system.await_all_actors_done();
    resources.transport.reset();
    leave(how.exit_code);
  }
}

/// The run folder for this process alone, until the job ends.
Result<std::shared_ptr<engine::RunLock>> reserve(const std::filesystem::path& run_dir) {
  auto lock = engine::RunLock::take(run_dir);
  if (!lock.ok()) return std::move(lock).error();
  if (auto fits = engine::RunFolder::check(run_dir); !fits.ok()) return std::move(fits).error();
  auto shared = std::make_shared<engine::RunLock>(std::move(lock).value());
  before_leaving([shared] { shared->release(); });
  return shared;
}

/// What is refused at once comes first; then what takes time; the run folder is touched last.
int train_reserved(const Options& options, job::LoadedJob loaded, const engine::RunLock& lock,
                   std::unique_ptr<EndOnSignal> guard) {
  std::optional<Doors> doors;
  if (!options.reference) {
    auto opened = open_doors(loaded.job);
    if (!opened.ok()) return report(opened.error());
    doors.emplace(std::move(opened).value());
  }
  auto reads = std::make_unique<EndOnStalledRead>(loaded.job.data.read_timeout_s);
  auto opened = open_job(std::move(loaded), !options.reference || !options.microbatches.empty());
  if (!opened.ok()) return report(opened.error());
  opened.value().left_behind = lock.left_behind();
  guard.reset();
  if (options.reference) return train_by_reference(options, opened.value());
  reads.reset();  // From here on the nodes read, and say so themselves.
  return train_as_head(std::move(opened).value(), std::move(*doors));
}

int train(const Options& options) {
  block_signals({SIGCHLD});
  auto guard = std::make_unique<EndOnSignal>("before the job started");
  auto loaded = job::load_job(options.job.file, options.job.all());
  if (!loaded.ok()) return report(loaded.error());
  if (!options.reference && !options.microbatches.empty())
    return report(usage_error("--microbatches goes with --reference", "add --reference"));
  auto lock = reserve(loaded.value().job.job.run_dir);
  if (!lock.ok()) return report(lock.error());
  const int code =
      train_reserved(options, std::move(loaded).value(), *lock.value(), std::move(guard));
  lock.value()->release();
  return code;
}

}  // namespace

void add_train(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add("train", "Run a job; starts its local node processes itself",
                               [options] { return train(*options); });
  options->job.add_to(*command);
  command->add_flag("--reference", options->reference,
                    "One process, one sample at a time: the oracle");
  command
      ->add_option("--microbatches", options->microbatches,
                   "With --reference: `plan`, or a run folder whose plans are replayed")
      ->type_name("plan|RUN");
}

}  // namespace troupe::app
