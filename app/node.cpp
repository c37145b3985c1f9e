// `troupe node`: one node process of a job.

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <caf/all.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "actors/link/heartbeat.hpp"
#include "actors/link/system.hpp"
#include "actors/node/node_actor.hpp"
#include "actors/node/peers.hpp"
#include "actors/observing/presenter_actor.hpp"
#include "app/commands.hpp"
#include "app/head_places.hpp"
#include "app/keys.hpp"
#include "app/node_end.hpp"
#include "app/own_code.hpp"
#include "app/signals.hpp"
#include "app/spawn.hpp"
#include "app/stalled_read.hpp"
#include "app/terminal.hpp"
#include "app/transport_options.hpp"
#include "app/version.hpp"
#include "engine/execution/device_place.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/profiling/profile_quiet.hpp"
#include "engine/profiling/this_machine.hpp"
#include "engine/setup/kept_lengths.hpp"
#include "engine/setup/source_nodes.hpp"
#include "runtime/files/look_up.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/vocabulary/first_line.hpp"
#include "transport/registry.hpp"

namespace troupe::app {

namespace {

using namespace actors;

struct Options {
  std::string join;
  std::string job_file;
  std::string key_file;
  std::int32_t node = -1;
  std::int32_t parent = 0;
  double timeout_s = 60;
};

/// Tells whoever started this node where it stands. Local nodes are silent: the head speaks for
/// them.
void tell(const Options& options, const std::string& text) {
  if (options.parent == 0) std::cout << text << std::endl;
}

std::string name_of(NodeId node) { return "node " + std::to_string(node.value); }

/// The head's paths hold on machines that have the data at the same place.
Status look_for_data(const job::Job& job, NodeId node) {
  for (std::size_t s = 0; s < job.data.sources.size(); ++s) {
    const auto& source = job.data.sources[s];
    if (!engine::sees_source(job, s, node)) continue;
    for (const auto& path : {source.json, source.media})
      if (!path.empty() && !files::is_there(path))
        return Error{Errc::not_found, path.string() + " is not on this machine", "data.sources",
                     "put the data there, or start this node with --job and a job file whose "
                     "data.sources say where they are here"};
  }
  return Done{};
}

/// What is wrong with the job as it was sent. Where its plug-ins lie on the head's machine says
/// nothing of this one.
Error as_seen_here(Error problem, const Options& options) {
  if (problem.code != Errc::not_found || !problem.message.starts_with("plugins.libraries["))
    return problem;
  problem.where = "plugins.libraries";
  problem.fix = options.job_file.empty()
                    ? "put the plug-in there, or start this node with --job and a job file whose "
                      "plugins.libraries say where it is here"
                    : "name it in plugins.libraries of " + options.job_file;
  return problem;
}

/// Opens everything a node works with, and introduces it.
Result<NodeReady> open_resources(const NodeWelcome& welcome, const Options& options,
                                 NodeResources& resources) {
  std::optional<job::LoadedJob> own;
  if (!options.job_file.empty()) {
    // First: its plug-ins are those of this machine.
    auto loaded = job::load_job(options.job_file, {});
    if (!loaded.ok()) return std::move(loaded).error();
    own = std::move(loaded).value();
  }
  auto reading =
      job::parse_job(welcome.resolved_job, "resolved.toml", {}, job::Paths::of_another_machine);
  if (!reading.ok()) return as_seen_here(reading.problems.front(), options);
  job::Job job = std::move(reading.loaded.job);
  tell(options, name_of(welcome.node) + " of job '" + job.job.name + "'");
  if (own) {
    // Where they are; who sees them is the job's to say.
    for (std::size_t s = 0; s < own->job.data.sources.size(); ++s)
      own->job.data.sources[s].nodes =
          s < job.data.sources.size() ? job.data.sources[s].nodes : std::vector<std::int32_t>{};
    job.data.sources = std::move(own->job.data.sources);
  } else if (Status there = look_for_data(job, welcome.node); !there.ok()) {
    return std::move(there).error();
  }
  if (auto place = engine::usable_place(job.cluster.device, 0, job.train.deterministic);
      !place.ok())
    return std::move(place).error();
  auto setup = engine::prepare(job);
  if (!setup.ok()) return std::move(setup).error();
  resources.setup = std::move(setup).value();
  engine::see_as(welcome.node, resources.setup.job, resources.setup.data);
  engine::keep_lengths(resources.setup, welcome.run_folder);
  auto dataset = data::Dataset::open(resources.setup.data);
  if (!dataset.ok()) return std::move(dataset).error();
  resources.dataset = std::make_shared<const data::Dataset>(std::move(dataset).value());
  auto transport = transport::create_transport(job.cluster.transport,
                                               transport_options(job, welcome.node.value));
  if (!transport.ok()) return std::move(transport).error();
  resources.transport = std::move(transport).value();
  auto ready = introduce(welcome.node, *resources.transport,
                         engine::identify(*resources.dataset, resources.setup.data.seed));
  auto code = own_code();
  if (!code.ok()) return std::move(code).error();
  ready.plugins = std::move(code).value();
  ready.stage_kinds = engine::stage_kind_names();
  // Of the head's own nodes the head knows better, whose machine the profile is of.
  if (options.parent == 0) {
    ready.device_memory = engine::memory_of_lone_node(job.cluster).count();
    ready.probe_ms = engine::fastest_probe_ms(job.cluster.device, job.cluster.threads_per_device);
  }
  return ready;
}

/// Looks for a new head of the job, by one thread after the other.
class HeadSearch {
 public:
  /// Once at each place where it may be; null: nobody is there.
  caf::strong_actor_ptr look(caf::actor_system& system, const HeadClues& clues) {
    constexpr double kTryS = 0.5;
    const std::lock_guard lock(mutex_);
    for (const HeadPlace& place : head_places(clues, found_last_)) {
      const auto found = find_supervisor(system, place.address, place.key, kTryS);
      if (!found.ok()) continue;
      found_last_ = place.address.text();
      return caf::actor_cast<caf::strong_actor_ptr>(found.value());
    }
    return {};
  }

 private:
  std::mutex mutex_;  ///< A search that was called off may not have ended.
  std::string found_last_;
};

/// What this node was given to show its head; empty: nothing that another head could use.
std::string own_key(const Options& options) {
  const auto address = parse_host_port(options.join);
  if (!address.ok()) return "";
  const auto source = node_key(options.key_file, options.job_file, address.value());
  if (!source.ok()) return "";
  const auto key = source.value()();
  return key.ok() ? key.value().text() : "";
}

/// A head on this node's machine that saves what the nodes hold and ends the job.
class SavingHead {
 public:
  /// Once; where another node's is first the run folder is locked, and this one ends.
  void start(const job::Job& job, const std::filesystem::path& run, const Options& options) {
    const std::string key = own_key(options);
    const bool is_near = key.empty() || parse_host_port(job.cluster.listen).value().is_loopback();
    std::vector<std::string> words{
        "troupe",
        "train",
        "--resume",
        run.string(),
        "--save-and-end",
        "cluster.local_nodes=0",
        "cluster.key=",
        "observe.metrics_listen=",
        is_near ? "cluster.listen=127.0.0.1:0" : "cluster.listen=0.0.0.0:0"};
    if (!options.job_file.empty()) {  // It says where plug-ins are on this machine.
      words.emplace_back("--job-of-node");
      words.push_back(options.job_file);
    }
    const auto started = spawn_self(std::move(words), key);
    if (started.ok())
      pid_ = started.value();
    else
      std::cerr << "troupe: " + to_string(started.error()) + "\n";
  }

  /// It must not go with this process, which may be all that its machine runs.
  void wait(std::chrono::milliseconds time) const {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0 &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

 private:
  std::atomic<pid_t> pid_ = 0;
};

/// Finds the job. Signals end the process meanwhile.
Result<SupervisorActor> look_for_job(caf::actor_system& system, const Options& options) {
  const EndOnSignal guard(options.parent == 0 ? "before it joined the job" : "");
  const auto address = parse_host_port(options.join);
  if (!address.ok()) return address.error();
  const auto key = [&] {
    // A job file has a limit of its own.
    std::optional<EndOnStalledRead> reads;
    if (!options.key_file.empty()) reads.emplace(std::max(options.timeout_s, 0.1), "--timeout");
    return node_key(options.key_file, options.job_file, address.value());
  }();
  if (!key.ok()) return key.error();
  tell(options, "looking for the job at " + options.join);
  return find_supervisor(system, address.value(), key.value(), options.timeout_s);
}

/// Until the old head has gone and the next one listens it may take some tries.
constexpr std::chrono::milliseconds kBeforeNext{300};

/// Says how this node ended, in one line unless the fault is its own. A local node shares its
/// terminal with the head, which says what it told its nodes.
void say_how(const JobEnd& how, const NodeResources& resources, const Options& options) {
  const NodeId node = resources.node;
  if (how.exit_code == 0)
    return tell(options,
                name_of(node) + ": " + (how.message.empty() ? "the job is done" : how.message));
  if (!how.was_told && !how.message.empty()) std::cerr << "troupe: " + how.message + "\n";
  if (how.was_told && !how.message.empty() && options.parent == 0) {
    const bool is_saved = how.exit_code == kResumable && how.again == 0;
    // Where the port is any free one, the next head has another.
    const auto door = parse_host_port(resources.setup.job.cluster.listen);
    const bool stays = door.ok() && door.value().port != 0;
    std::cerr << name_of(node) + (how.again > 0 ? " begins again: " : " ends: ") +
                     first_line(how.message) +
                     (!is_saved ? "\n"
                      : stays   ? "; this command joins it again\n"
                                : "; it can be joined again where it listens then\n");
  }
}

/// Lets listeners take what waits for them, within reason, and ends who shows it.
void end_presenting(caf::actor_system& system, const PresenterActor& shown_by,
                    observers::Audience& audience) {
  constexpr std::chrono::seconds kPatience{1};
  audience.listeners().on_waiting({});
  caf::scoped_actor self(system);
  self->request(shown_by, kPatience, over_atom::value)
      .receive([](over_atom) {}, [](const caf::error&) {});
  self->send_exit(shown_by, caf::exit_reason::user_shutdown);
}

int run_node(const Options& options) {
  // Local nodes are started through /proc, which would show them as `exe`.
  prctl(PR_SET_NAME, "troupe node");
  // A local node must not outlive the process that started it.
  if (options.parent != 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != options.parent) return kFailed;
  }
  block_signals({SIGUSR1});  // The head saves on it; some systems send it to all.
  SystemConfig config;
  caf::actor_system system(config);
  const auto supervisor = look_for_job(system, options);
  if (!supervisor.ok()) {
    return report(supervisor.error());
  }
  NodeResources resources;
  std::filesystem::path run_dir;
  SavingHead saving_head;
  HeadSearch head_search;
  TimeToEnd time;
  const PresenterActor shown_by = system.spawn(presenter, &resources.audience.listeners());
  auto promise = std::make_shared<std::promise<JobEnd>>();
  auto ended = promise->get_future();
  NodeStart start{
      {engine::host_name(), static_cast<std::int32_t>(getpid()), options.node, build_id()},
      options.join,
      [&](const NodeWelcome& welcome) {
        auto ready = open_resources(welcome, options, resources);
        if (!ready.ok()) return ready;
        const job::Job& job = resources.setup.job;
        time.stop_s = job.cluster.stop_timeout_s;
        time.drain_s = job.cluster.drain_timeout_s;
        run_dir = welcome.run_folder;
        if (!job.observe.observers.empty())
          resources.audience.seat(std::make_unique<observers::Observing>(
              job.observe.observers, job.job.name, welcome.node.value, run_dir));
        time.waits_for_head = job.cluster.head_timeout_s > 0;
        wake_main_thread();
        return ready;
      },
      [promise](JobEnd how) {
        promise->set_value(std::move(how));
        wake_main_thread();
      },
      [&] {
        return head_search.look(
            system, {run_dir, options.job_file, options.join, resources.setup.job.cluster.listen,
                     [&](const HostPort& address) {
                       return node_key(options.key_file, options.job_file, address);
                     }});
      },
      [&options](const std::string& text, bool speaks_for_all) {
        if (options.parent == 0 || speaks_for_all) std::cerr << "troupe: " + text + "\n";
      },
      [&] { saving_head.start(resources.setup.job, run_dir, options); },
      [&system, shown_by](const SupervisorActor& head, NodeId place) {
        look_up(system, head.node(), kObservingHub, std::chrono::minutes(1),
                [shown_by, place](const caf::strong_actor_ptr& hub) {
                  caf::anon_send(shown_by, here_atom::value, hub, place.value);
                });
      },
      [&] { time.is_draining = true; }};
  start.hello.is_heads_own = options.parent != 0;
  const std::string when = options.parent == 0 ? "as a node of " + options.join : "";
  const NodeActor actor = system.spawn(node, &resources, supervisor.value(), std::move(start));
  const Waited waited = wait_for_end(ended, actor, time);
  const int signal = waited.signal;
  const JobEnd how = signal != 0 ? JobEnd{128 + signal, ""} : ended.get();
  resources.audience.end();
  end_presenting(system, shown_by, resources.audience);
  saving_head.wait(std::chrono::ceil<std::chrono::milliseconds>(seconds(time.stop_s)));
  // The head starts local ones itself.
  const auto words =
      how.again > 0 && options.parent == 0 ? own_words() : std::vector<std::string>();
  say_last(how.exit_code, signal, words, [&] {
    if (waited.is_late && time.is_draining) say_stayed_too_long(resources.node, time.drain_s);
    if (signal != 0)
      report_signal(signal, when);
    else
      say_how(how, resources, options);
  });
  system.await_all_actors_done();
  engine::release_lengths(resources.setup);
  resources.transport.reset();
  if (!words.empty()) {
    std::this_thread::sleep_for(kBeforeNext);
    leave_into(words, how.exit_code);
  }
  leave(how.exit_code);
}

}  // namespace

void add_node(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add("node", "Join a job as one node, one process per machine",
                               [options] { return run_node(*options); });
  command->add_option("--join", options->join, "Where `troupe train` listens")
      ->required()
      ->type_name("HOST:PORT");
  command->add_option("--job", options->job_file,
                      "Take the data paths and plug-ins from this job file instead of the job's");
  command->add_option("--key", options->key_file,
                      "The job's key; default: TROUPE_KEY, or of your job on this machine");
  command->add_option("--node", options->node, "Node id to take; default: any free one");
  command
      ->add_option("--timeout", options->timeout_s, "Seconds to look for the job, and for its key")
      ->capture_default_str();
  command->add_option("--parent", options->parent)->group("");  // Set by `troupe train`.
}

}  // namespace troupe::app
