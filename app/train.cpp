// `troupe train`: the head of a job, or one of the reference runs.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <caf/all.hpp>
#include <cmath>
#include <csignal>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "actors/head_colleagues.hpp"
#include "actors/supervisor_actor.hpp"
#include "actors/system.hpp"
#include "app/commands.hpp"
#include "app/control_file.hpp"
#include "app/doors.hpp"
#include "app/local_nodes.hpp"
#include "app/resuming.hpp"
#include "app/run_argument.hpp"
#include "app/run_record.hpp"
#include "app/signals.hpp"
#include "app/stalled_read.hpp"
#include "app/taking_over.hpp"
#include "app/terminal.hpp"
#include "app/train_reference.hpp"
#include "app/training_run.hpp"
#include "app/version.hpp"
#include "engine/choose_layout.hpp"
#include "engine/continued_run.hpp"
#include "engine/plan_summary.hpp"
#include "engine/profile_data.hpp"
#include "engine/run_lock.hpp"
#include "engine/this_machine.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/observe/plan_words.hpp"

namespace troupe::app {

namespace {

using namespace actors;

struct Options {
  JobArguments job;
  bool reference = false;
  std::string microbatches;
  bool saves_only = false;  ///< Saves what nodes hold whose head was lost, and ends.
  ResumeWish wish;
};

void announce(const Opened& opened, const observe::Logger& logger) {
  const auto& job = opened.setup.job;
  std::int64_t parameters = 0, trained = 0;
  for (const auto& module : opened.setup.model.modules)
    for (const auto& layer : module.layers) {
      parameters += layer.parameter_elements + layer.constant_elements;
      if (!module.freeze) trained += layer.parameter_elements;
    }
  logger.info(job.job.name + ": " + with_unit(parameters) + " parameters (" + with_unit(trained) +
              " trained), " + counted(opened.data.records, "sample") + ", " +
              counted(job.cluster.nodes, "node") + ", " + observe::layout_words(opened.plan) +
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

// ---- the head
// -------------------------------------------------------------------------------------

/// Passes signals and ended children on, and calls `look` in between, until the job has ended. What
/// a signal begins ends within `cluster.stop_timeout_s`, whatever the supervisor does, and after a
/// second one at once.
JobEnd watch(std::future<JobEnd>& ended, const SupervisorActor& supervisor, LocalNodes& nodes,
             double stop_timeout_s, const std::function<void()>& look) {
  const auto first = std::chrono::ceil<std::chrono::milliseconds>(seconds(stop_timeout_s));
  const int unheard = take_signals_until(
      [&] {
        look();
        return ended.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      },
      {SIGCHLD, SIGUSR1},
      [&] {
        return EndLimits{first + kLeaveTime, kLeaveTime};
      },
      [&](int signal) {
        if (ends_process(signal))
          caf::anon_send(supervisor, stop_atom::value, static_cast<std::int32_t>(signal));
        if (signal == SIGUSR1) caf::anon_send(supervisor, save_atom::value);
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

/// What the head tells `troupe ctl`, and nodes that look for it.
void show_control(const std::filesystem::path& run, const ControlFile& control,
                  const observe::Logger& logger) {
  if (auto told = write_control(run, control); !told.ok())
    logger.warning("troupe ctl cannot reach this job: " + to_string(told.error()));
}

/// Before it is known where the job goes on, the log is the older run's.
Result<observe::Logger> log_of_older_run(const job::Job& job, observe::Console& console) {
  return observe::Logger::create(
      &console, {.node_name = "head", .file = job.job.run_dir / engine::RunFolder::kLogFile});
}

/// A job that goes on with the state of its nodes.
engine::ResumePoint live_resume(const Opened& opened, const JobProgress& live) {
  engine::ResumePoint resume;
  resume.is_live = true;
  resume.progress = live;
  const auto& run = opened.setup.job.job.run_dir;
  auto& generation = resume.progress.generation;
  generation = std::max(generation, engine::newest_generation(run));
  // A later one goes out of the way.
  if (!opened.resume.is_start() && opened.resume.progress.step <= live.step)
    resume.saved_step = opened.resume.progress.step;
  resume.recorded_step = engine::last_recorded_step(run);
  return resume;
}

/// The end of a job, on the console and in its run folder.
void tell_end(const std::optional<Run>& run, const std::filesystem::path& run_dir,
              observe::Console& console, const JobEnd& how) {
  if (run) record_end(run_dir, how.exit_code, how.message);
  if (how.exit_code == 0) return run->logger.info("done: " + run_dir.string());
  if (run) run->file.error(how.message);
  console.status("");
  std::cerr << how.message << '\n';
}

int train_as_head(Opened opened, Doors doors) {
  const job::Job job = opened.setup.job;
  const std::filesystem::path& run_dir = job.job.run_dir;
  observe::Console console(observe::detect_console(1));
  const HostPort& address = doors.address;
  std::optional<Run> run;  // Once it is known where the job goes on; by the supervisor's thread.
  HeadResources resources;
  const auto open = [&]() -> Status {
    auto begun = open_run(opened, console, "head");
    if (!begun.ok()) return std::move(begun).error();
    run.emplace(std::move(begun).value());
    announce(opened, run->logger);
    resources.folder = run->folder;
    resources.logger = run->logger;
    resources.resume = opened.resume;
    return Done{};
  };
  if (!opened.gathers) {
    if (auto begun = open(); !begun.ok()) return report(begun.error());
  } else {
    auto log = log_of_older_run(job, console);
    if (!log.ok()) return report(log.error());
    resources.logger = std::move(log).value();
  }

  auto promise = std::make_shared<std::promise<JobEnd>>();
  auto ended = promise->get_future();
  resources.setup = opened.setup;
  resources.plan = opened.plan;
  resources.later = opened.later;
  resources.resolved_job = opened.resolved;
  resources.build = build_id();
  resources.run_id = opened.run_id;
  resources.data = opened.data;
  resources.console = &console;
  resources.transport = std::move(doors.transport);
  resources.listen = reachable(address, address.port);
  resources.who = "process " + std::to_string(getpid()) + " on " + engine::host_name();
  resources.on_end = [promise](JobEnd how) {
    promise->set_value(std::move(how));
    wake_main_thread();
  };
  JobEnd how;
  LocalNodes nodes;
  WantedNodes wanted;
  std::optional<ControlFile> control;
  if (opened.gathers)
    resources.gather = GatherWish{
        gathering_window_s(job.cluster),
        opened.saves_only,
        opened.resume.is_start() ? 0 : opened.resume.progress.step,
        opened.without_nodes,
        opened.samples,
        [&](const JobProgress* live) -> Status {
          if (live != nullptr) {
            if (auto same = check_same_job(job, opened.data, *live); !same.ok()) return same;
            opened.resume = live_resume(opened, *live);
          }
          if (auto begun = open(); !begun.ok()) return begun;
          show_control(run_dir, *control, run->logger);  // The folder may be another one now.
          return Done{};
        },
        [&](const std::set<NodeId>& there) { wanted.want(job.cluster.local_nodes, there); }};
  {
    SystemConfig config;
    caf::actor_system system(config);
    // The door is opened to nodes below; until then nobody waits.
    const SupervisorActor actor = system.spawn(supervisor, &resources, head_colleagues(resources));
    const observe::Logger log = resources.logger;
    const std::uint16_t port = publish(system, actor, std::move(doors.listening), doors.key.key,
                                       [log](const std::string& line) { log.warning(line); });
    const std::string joined = reachable(address, port);
    const std::int32_t remote = job.cluster.nodes - job.cluster.local_nodes;
    if (remote > 0)
      log.info("waiting for " + std::to_string(remote) + " nodes: troupe node --join " + joined);
    const std::string local = address.is_any() ? "127.0.0.1:" + std::to_string(port) : joined;
    // Nodes that still wait find the way to the next head by it.
    before_leaving([run_dir, &run] {
      if (run) remove_control(run_dir);
    });
    control = ControlFile{engine::host_name(), local, joined, doors.key.key};
    show_control(run_dir, *control, log);
    if (!opened.gathers) wanted.want(job.cluster.local_nodes, {});
    how = watch(ended, actor, nodes, job.cluster.stop_timeout_s, [&] {
      auto started = nodes.start(wanted.take(), local, doors.key.key.text());
      if (!started.ok()) caf::anon_send(actor, failed_atom::value, started.error());
    });
    wait_for_children(nodes, how);
    tell_end(run, run_dir, console, how);
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

/// Of a head that would only save: there is nobody whose state it could.
Error nothing_to_save() {
  return {Errc::unavailable, "no nodes wait that hold all of the model", "--save-and-end",
          "start the job again: it goes on from its checkpoint"};
}

/// What is refused at once comes first; then what takes time; the run folder is touched last.
int train_reserved(const Options& options, job::LoadedJob loaded, const engine::RunLock& lock,
                   const ChosenCheckpoint& chosen, std::unique_ptr<EndOnSignal> guard) {
  std::optional<Doors> doors;
  if (!options.reference) {
    auto opened = open_doors(loaded.job);
    if (!opened.ok()) return report(opened.error());
    doors.emplace(std::move(opened).value());
  }
  auto endpoint = open_metrics(loaded.job.observe);
  if (!endpoint.ok()) return report(endpoint.error());
  auto reads = std::make_unique<EndOnStalledRead>(loaded.job.data.read_timeout_s);
  const bool gathers = !options.reference && may_have_waiting_nodes(loaded.job, options.wish);
  if (options.saves_only && !gathers) return report(nothing_to_save());
  auto opened = open_job(std::move(loaded), !options.reference || !options.microbatches.empty(),
                         chosen.checkpoint.get());
  if (!opened.ok()) return report(opened.error());
  opened.value().run_id =
      run_id(opened.value().setup.job.job.run_dir, gathers || chosen.checkpoint != nullptr);
  opened.value().gathers = gathers;
  opened.value().saves_only = options.saves_only;
  if (gathers) {
    auto samples = engine::draw_shapes(opened.value().setup, engine::kLayoutSamples, /*seed=*/0);
    if (!samples.ok()) return report(samples.error());
    opened.value().samples = std::move(samples).value();
  }
  opened.value().without_nodes = options.saves_only ? nothing_to_save() : chosen.status;
  opened.value().left_behind = lock.left_behind();
  opened.value().endpoint = std::move(endpoint).value();
  opened.value().warnings.insert(opened.value().warnings.begin(), chosen.warnings.begin(),
                                 chosen.warnings.end());
  guard.reset();
  if (options.reference) return train_by_reference(opened.value(), options.microbatches);
  reads.reset();  // From here on the nodes read, and say so themselves.
  return train_as_head(std::move(opened).value(), std::move(*doors));
}

/// The job of the command line: a file, or what the run that goes on wrote of its own.
Result<job::LoadedJob> load(Options& options) {
  ResumeWish& wish = options.wish;
  std::error_code code;
  // `--resume job.toml`: the word is the job's.
  if (options.job.file.empty() && std::filesystem::is_regular_file(wish.run, code))
    options.job.file = std::exchange(wish.run, "latest");
  if (wish.fresh && wish.resume)
    return usage_error("--fresh and --resume ask for different things", "leave one of them out");
  auto overrides = options.job.all();
  // Nor are values: `--resume train.steps=40`, and `--resume RUN train.steps=40` without a job.
  const auto is_value = [&](const std::string& word) {
    return word.find('=') != std::string::npos && !std::filesystem::exists(word, code);
  };
  if (is_value(wish.run)) overrides.insert(overrides.begin(), std::exchange(wish.run, "latest"));
  if (wish.resume && is_value(options.job.file))
    overrides.insert(overrides.begin(), std::exchange(options.job.file, ""));
  if (const std::string run = wish.named_run(); !run.empty()) {
    if (auto there = check_run_folder(run); !there.ok()) return std::move(there).error();
    if (options.job.file.empty()) options.job.file = run + "/resolved.toml";
    overrides.push_back("job.run_dir=" + run);
  }
  if (options.job.file.empty())
    return usage_error("no job file", "troupe train JOB.toml, or troupe train --resume RUN");
  return job::load_job(options.job.file, overrides);
}

int train(Options options) {
  block_signals({SIGCHLD, SIGUSR1});
  auto guard = std::make_unique<EndOnSignal>("before the job started");
  auto loaded = load(options);
  if (!loaded.ok()) return report(loaded.error());
  if (!options.reference && !options.microbatches.empty())
    return report(usage_error("--microbatches goes with --reference", "add --reference"));
  auto lock = reserve(loaded.value().job.job.run_dir);
  if (!lock.ok()) return report(lock.error());
  auto chosen = choose_checkpoint(loaded.value().job, options.wish);
  if (!chosen.ok()) {
    // Nodes that kept their state make up for it.
    if (options.reference || !may_have_waiting_nodes(loaded.value().job, options.wish))
      return report(chosen.error());
    ChosenCheckpoint none;
    none.status = chosen.error();
    chosen = std::move(none);
  }
  const int code = train_reserved(options, std::move(loaded).value(), *lock.value(), chosen.value(),
                                  std::move(guard));
  lock.value()->release();
  return code;
}

}  // namespace

void add_train(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add("train", "Run a job; starts its local node processes itself",
                               [options, &root = commands.root] {
                                 options->wish.resume =
                                     !root.get_subcommand("train")->get_option("--resume")->empty();
                                 return train(*options);
                               });
  options->job.add_to(*command);
  command->get_option("JOB")->required(false);
  command
      ->add_option("--resume", options->wish.run,
                   "Go on from the newest checkpoint: of this run, or of the job's own")
      ->type_name("[RUN|latest]")
      ->expected(0, 1);
  command->add_flag("--fresh", options->wish.fresh,
                    "Begin anew where a run was cut off; it is moved aside");
  command->add_flag("--reference", options->reference,
                    "One process, one sample at a time: the oracle");
  command->add_flag("--save-and-end", options->saves_only)->group("");  // Of a node without a head.
  command
      ->add_option("--microbatches", options->microbatches,
                   "With --reference: `plan`, or a run folder whose plans are replayed")
      ->type_name("plan|RUN");
}

}  // namespace troupe::app
