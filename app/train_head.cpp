#include "app/train_head.hpp"

#include <unistd.h>

#include <caf/all.hpp>
#include <cmath>
#include <csignal>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "actors/link/system.hpp"
#include "actors/observing/hub_actor.hpp"
#include "actors/supervisor/head_actors.hpp"
#include "actors/supervisor/supervisor_actor.hpp"
#include "app/control_file.hpp"
#include "app/exchange_text.hpp"
#include "app/local_nodes.hpp"
#include "app/own_code.hpp"
#include "app/run_record.hpp"
#include "app/signals.hpp"
#include "app/stalled_read.hpp"
#include "app/taking_over.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "engine/iteration/exchange_count.hpp"
#include "engine/iteration/plan_summary.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/this_machine.hpp"
#include "engine/run/continued_run.hpp"
#include "engine/run/head_memory_file.hpp"
#include "runtime/observe/plan_words.hpp"
#include "runtime/vocabulary/first_line.hpp"
#include "transport/transport.hpp"

namespace troupe::app {

namespace {

using namespace actors;

void announce(const Opened& opened, const observe::Logger& logger) {
  const auto& job = opened.setup.job;
  std::int64_t parameters = 0, trained = 0;
  for (std::size_t m = 0; m < opened.setup.model.modules.size(); ++m) {
    const auto own = module_elements(opened.setup.model, ModuleId{m});
    parameters += own.all;
    trained += own.trained;
  }
  logger.info(job.job.name + ": " + with_unit(parameters) + " parameters (" + with_unit(trained) +
              " trained), " + counted(opened.data.records, "sample") + ", " +
              counted(job.cluster.nodes, "node") + ", " + observe::layout_words(opened.plan) +
              ", run folder " + job.job.run_dir.string());
  for (const auto& line : engine::stage_kind_lines(opened.plan, job.modules)) logger.info(line);
  const auto& profile = opened.profile;
  logger.info("layer costs: " + profile.file.string() +
              (profile.reused ? ""
                              : ", measured in " + std::to_string(std::lround(profile.measured_s)) +
                                    " s, because " + profile.reason));
  for (const auto& warning : profile.warnings) logger.warning(warning);
  const auto crowded = engine::crowded_cores(opened.plan, job.cluster, engine::core_count());
  if (!crowded.empty()) logger.warning(crowded);
  // Of a layout by hand the job itself was warned.
  if (job.parallel.layout.empty() && !engine::can_exchange(opened.plan)) {
    const auto none = exchange_text(opened.plan, job.balancer.exchange, {});
    if (!none.empty()) logger.warning(none);
  }
  for (const auto& reason : opened.reasons)
    logger.info("because " + reason.choice + ": " + reason.why);
}

/// How a job ended, and the last signal that was to end it, or 0.
struct Watched {
  JobEnd how;
  int signal = 0;
};

/// Passes signals and ended children on, and calls `look` in between, until the job has ended. What
/// a signal begins ends within `cluster.stop_timeout_s`, whatever the supervisor does, and after a
/// second one at once.
Watched watch(std::future<JobEnd>& ended, const SupervisorActor& supervisor, LocalNodes& nodes,
              double stop_timeout_s, const std::function<void()>& look) {
  int told = 0;
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
        if (ends_process(signal)) {
          told = signal;
          caf::anon_send(supervisor, stop_atom::value, static_cast<std::int32_t>(signal));
        }
        if (signal == SIGUSR1) caf::anon_send(supervisor, save_atom::value);
        for (const EndedChild& child : nodes.reap())
          caf::anon_send(supervisor, exited_atom::value, static_cast<std::int32_t>(child.pid),
                         child.how, static_cast<std::int32_t>(child.signal));
      });
  if (unheard == 0) return {ended.get(), told};
  nodes.kill_all();
  leave_on_signal(unheard, "by force: its supervisor did not end the job");
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
  HeadMemory memory = engine::recall_head_memory(run, opened.resume.progress, live.step);
  resume.progress.learned = std::move(memory.costs);
  resume.slow = std::move(memory.slow);
  resume.node_changes = memory.changes;
  auto& generation = resume.progress.generation;
  generation = std::max(generation, engine::newest_generation(run));
  // A later one goes out of the way.
  if (!opened.resume.is_start() && opened.resume.progress.step <= live.step)
    resume.saved_step = opened.resume.progress.step;
  resume.recorded_step = engine::last_recorded_step(run);
  return resume;
}

/// Tells who looks at the job from outside that it has ended. One that begins again is looked for.
void end_observing(caf::actor_system& system, const ObservingHubActor& hub, const JobEnd& how) {
  caf::scoped_actor self(system);
  if (how.again == 0)
    self->request(hub, kLeaveTimeOfListeners, over_atom::value, how.exit_code,
                  first_line(how.message))
        .receive([](over_atom) {}, [](const caf::error&) {});
  system.registry().erase(kObservingHub);
  self->send_exit(hub, caf::exit_reason::user_shutdown);
}

/// Of this machine; other nodes' are like it where their UCX is.
std::string way_of_rows(const transport::Transport& transport) {
  return transport.takes(MemoryKind::cuda)
             ? "messages leave GPUs from their own memory, which this UCX reads"
             : "messages leave GPUs by way of host memory: this UCX does not read theirs";
}

/// The end of a job, on the console and in its log.
void tell_end(const std::optional<Run>& run, const std::filesystem::path& run_dir,
              observe::Console& console, const JobEnd& how) {
  if (how.exit_code == 0) return run->logger.info("done: " + run_dir.string());
  if (how.again > 0) return run->logger.warning(how.message);
  if (run) run->file.error(how.message);
  console.status("");
  std::cerr << how.message << '\n';
}

/// The command that goes on from the newest checkpoint, at the door that nodes know.
std::vector<std::string> words_to_begin_again(const std::filesystem::path& run_dir,
                                              const HostPort& address, const JobEnd& how) {
  return {"troupe",
          "train",
          "--resume",
          run_dir.string(),
          "--again",
          std::to_string(how.again),
          "--because",
          first_line(how.message),
          "cluster.listen=" + address.text()};
}

}  // namespace

int train_as_head(Opened opened, Doors doors, std::unique_ptr<EndOnSignal> guard) {
  auto code = own_code();
  if (!code.ok()) return report(code.error());
  const job::Job job = opened.setup.job;
  const std::filesystem::path& run_dir = job.job.run_dir;
  observe::Console console(observe::detect_console(1));
  const HostPort& address = doors.address;
  std::optional<Run> run;  // Once it is known where the job goes on; by the supervisor's thread.
  HeadResources resources;
  const auto open = [&]() -> Status {
    const EndOnStalledRead reads(job.data.read_timeout_s);  // Of an older run's records.
    auto begun = open_run(opened, console, "head");
    if (!begun.ok()) return std::move(begun).error();
    run.emplace(std::move(begun).value());
    if (!opened.saves_only) announce(opened, run->logger);
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
  resources.incarnation = opened.incarnation;
  if (!opened.saves_only)
    resources.draw_templates = [&setup = resources.setup](const ParallelPlan& plan) {
      const EndOnStalledRead reads(setup.job.data.read_timeout_s);
      return engine::draw_templates(setup, plan);
    };
  resources.tries = opened.tries;
  resources.data = opened.data;
  resources.plugins = std::move(code).value();
  resources.stage_kinds = engine::stage_kind_names();
  resources.console = &console;
  resources.transport = std::move(doors.transport);
  resources.listen = reachable(address, address.port);
  resources.door = reachable(address, door::port_of(doors.listening));
  resources.who = "process " + std::to_string(getpid()) + " on " + engine::host_name();
  resources.on_end = [promise](JobEnd how) {
    promise->set_value(std::move(how));
    wake_main_thread();
  };
  LocalNodes nodes;
  WantedNodes wanted;
  std::optional<ControlFile> control;
  if (opened.gathers)
    resources.gather = GatherWish{
        gathering_window_s(job.cluster),
        opened.saves_only,
        opened.resume.is_start() ? 0 : opened.resume.progress.step,
        opened.goes_back,
        opened.without_nodes,
        [&](const JobProgress* live) -> Status {
          if (live != nullptr) {
            if (opened.saves_only) {  // It has opened no data, and the job is the run's own.
              opened.data.records = live->data.records;
              opened.data.hash = live->data.hash;
              resources.data = opened.data;
            } else if (auto same = check_same_job(job, opened.data, *live); !same.ok()) {
              return same;
            }
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
    const SupervisorActor actor = spawn_supervisor(system, &resources, head_actors(resources));
    const observe::Logger log = resources.logger;
    std::vector<std::string> modules;
    for (const auto& module : job.modules) modules.push_back(module.name);
    // Who plans is held up where a function of a plug-in does not return: the scheduler, which
    // others can do without at the end, or the supervisor itself.
    const auto end_time =
        std::chrono::ceil<std::chrono::milliseconds>(seconds(job.cluster.stop_timeout_s));
    const StallWatcher calls(look_at_calls(job.train.stall_timeout_s),
                             [log, actor, end_time](const Error& error) {
                               log.warning(error.message);
                               caf::anon_send(actor, failed_atom::value, error);
                               leave_at_latest(exit_code(error), end_time + kLeaveTime);
                             });
    const ObservingHubActor hub = system.spawn(observing_hub, job.job.name, std::move(modules),
                                               [log](const std::string& line) { log.info(line); });
    system.registry().put(kObservingHub, hub);
    const std::uint16_t port = publish(system, actor, std::move(doors.listening), doors.key.key,
                                       [log](const std::string& line) { log.warning(line); });
    const std::string joined = reachable(address, port);
    if (job.cluster.device == "cuda") log.info(way_of_rows(*resources.transport));
    const std::int32_t remote = job.cluster.nodes - job.cluster.local_nodes;
    if (remote > 0)
      log.info("waiting for " + std::to_string(remote) +
               " nodes: " + join_command(joined, job.cluster.key.string()));
    const std::string local = address.is_any() ? "127.0.0.1:" + std::to_string(port) : joined;
    control = ControlFile{engine::host_name(), local, joined, doors.key.key, getpid()};
    // Nodes that still wait find the way to the next head by it.
    before_leaving([run_dir, &run, own = *control] {
      if (run) remove_control(run_dir, own);
    });
    show_control(run_dir, *control, log);
    if (!opened.gathers) wanted.want(job.cluster.local_nodes, {});
    guard.reset();  // Until here lines are written that nobody may read; now signals are the job's.
    const auto [how, signal] = watch(ended, actor, nodes, job.cluster.stop_timeout_s, [&] {
      auto started = nodes.start(wanted.take(), local, doors.key.key.text());
      if (!started.ok()) caf::anon_send(actor, failed_atom::value, started.error());
    });
    wait_for_children(nodes, how);
    end_observing(system, hub, how);
    HostPort again_at = address;
    if (remote > 0) again_at.port = port;
    const auto words =
        how.again > 0 ? words_to_begin_again(run_dir, again_at, how) : std::vector<std::string>();
    if (run) record_end(run_dir, how.exit_code, how.message);
    say_last(how.exit_code, signal, words,
             [&, &end = how] { tell_end(run, run_dir, console, end); });
    system.await_all_actors_done();
    resources.transport.reset();
    if (!words.empty()) leave_into(words, how.exit_code);
    leave(how.exit_code);
  }
}

}  // namespace troupe::app
