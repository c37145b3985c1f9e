// `troupe node`: one node process of a job.

#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <caf/all.hpp>
#include <csignal>
#include <future>
#include <iostream>
#include <memory>

#include "actors/node_actor.hpp"
#include "actors/peers.hpp"
#include "actors/system.hpp"
#include "app/commands.hpp"
#include "app/signals.hpp"
#include "app/terminal.hpp"
#include "app/transport_options.hpp"
#include "app/version.hpp"
#include "runtime/job/load_job.hpp"
#include "transport/registry.hpp"

namespace troupe::app {

namespace {

using namespace actors;

struct Options {
  std::string join;
  std::string job_file;
  std::int32_t node = -1;
  std::int32_t parent = 0;
  double timeout_s = 60;
};

/// Asks for a place in the job. `self` stands for this process until its node's actor does.
Result<NodeWelcome> ask_to_join(caf::scoped_actor& self, const SupervisorActor& supervisor,
                                const Options& options) {
  Result<NodeWelcome> answer = Error{Errc::internal, "no answer", {}, {}};
  const NodeHello hello{host_name(), static_cast<std::int32_t>(getpid()), options.node, build_id()};
  self->request(supervisor, std::chrono::seconds(30), join_atom::value, hello)
      .receive([&](NodeWelcome& welcome) { answer = std::move(welcome); },
               [&](const caf::error& error) {
                 const caf::message& context = error.context();
                 if (context.match_elements<std::string, std::string>())
                   answer = Error{Errc::transport_failed,
                                  "the supervisor refused: " + context.get_as<std::string>(0),
                                  options.join, context.get_as<std::string>(1)};
                 else
                   answer = Error{Errc::timed_out, "the supervisor did not answer within 30 s",
                                  options.join, "look whether `troupe train` still runs there"};
               });
  return answer;
}

/// Opens everything a node works with.
Result<std::unique_ptr<NodeResources>> open_resources(const NodeWelcome& welcome,
                                                      const Options& options) {
  auto reading = job::parse_job(welcome.resolved_job, "resolved.toml", {});
  if (!reading.ok()) return reading.problems.front();
  job::Job job = std::move(reading.loaded.job);
  if (!options.job_file.empty()) {
    auto own = job::read_job(options.job_file, {});
    if (!own.ok()) return own.problems.front();
    job.data.sources = own.loaded.job.data.sources;
  }
  auto resources = std::make_unique<NodeResources>();
  resources->node = welcome.node;
  auto setup = engine::prepare(job);
  if (!setup.ok()) return std::move(setup).error();
  resources->setup = std::move(setup).value();
  auto dataset = data::Dataset::open(resources->setup.data);
  if (!dataset.ok()) return std::move(dataset).error();
  resources->dataset = std::make_shared<const data::Dataset>(std::move(dataset).value());
  auto transport = transport::create_transport(job.cluster.transport,
                                               transport_options(job, welcome.node.value));
  if (!transport.ok()) return std::move(transport).error();
  resources->transport = std::move(transport).value();
  return resources;
}

/// One line on why this node ends. A local node shares its terminal with the head, which says it.
void say_why(const JobEnd& how, NodeId node, bool is_local) {
  if (how.message.empty() || (is_local && how.was_told)) return;
  const std::string line = how.message.substr(0, how.message.find('\n'));
  std::cerr << "node " << node.value << " ends: " << line << '\n';
}

/// Tells whoever started this node where it stands. Local nodes are silent: the head speaks for
/// them.
void tell(const Options& options, const std::string& text) {
  if (options.parent == 0) std::cout << text << std::endl;
}

/// A place in a job, and everything to work there.
struct Place {
  SupervisorActor supervisor;
  std::unique_ptr<NodeResources> resources;
};

/// Finds the job, gets a place in it and opens what it needs. Signals end the process meanwhile.
Result<Place> take_place(caf::actor_system& system, caf::scoped_actor& self,
                         const Options& options) {
  const EndOnSignal guard(options.parent == 0 ? "before it joined the job" : "");
  const auto address = parse_host_port(options.join);
  if (!address.ok()) return address.error();
  tell(options, "looking for the job at " + options.join);
  auto supervisor = find_supervisor(system, address.value(), options.timeout_s);
  if (!supervisor.ok()) return std::move(supervisor).error();
  auto welcome = ask_to_join(self, supervisor.value(), options);
  if (!welcome.ok()) return std::move(welcome).error();
  auto resources = open_resources(welcome.value(), options);
  if (!resources.ok()) {
    caf::anon_send(supervisor.value(), failed_atom::value, welcome.value().node, resources.error());
    return std::move(resources).error();
  }
  return Place{supervisor.value(), std::move(resources).value()};
}

/// Waits until the node's actor is done. A signal ends it by way of the supervisor, so that all
/// others hear why; a second one, or a supervisor that does not answer, ends the process at once.
JobEnd wait_for_end(std::future<JobEnd>& ended, const NodeActor& node) {
  constexpr std::chrono::seconds kAnswerTime{2};
  int signal = 0;
  auto deadline = std::chrono::steady_clock::time_point::max();
  while (ended.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    const int seen = wait_for_signal({SIGINT, SIGTERM}, std::chrono::milliseconds(50));
    if (std::chrono::steady_clock::now() > deadline || (seen != 0 && signal != 0)) break;
    if (seen == 0) continue;
    signal = seen;
    deadline = std::chrono::steady_clock::now() + kAnswerTime;
    caf::anon_send(node, stop_atom::value, static_cast<std::int32_t>(signal));
  }
  if (signal == 0) return ended.get();
  return {128 + signal, "stopped by " + signal_name(signal), true};
}

int run_node(const Options& options) {
  // Local nodes are started through /proc, which would show them as `exe`.
  prctl(PR_SET_NAME, "troupe node");
  // A local node must not outlive the process that started it.
  if (options.parent != 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != options.parent) return kFailed;
  }
  block_signals({SIGINT, SIGTERM});
  SystemConfig config;
  caf::actor_system system(config);
  caf::scoped_actor self(system, true);  // Hidden: not waited for below.
  auto place = take_place(system, self, options);
  if (!place.ok()) {
    // An attempt to connect may still be under way, and the actor system would wait for it.
    leave_at_latest(exit_code(place.error()), kLeaveTime);
    return report(place.error());
  }
  NodeResources& resources = *place.value().resources;
  const std::string name = "node " + std::to_string(resources.node.value);
  tell(options, name + " of job '" + resources.setup.job.job.name + "'");
  auto promise = std::make_shared<std::promise<JobEnd>>();
  auto ended = promise->get_future();
  const NodeActor actor =
      system.spawn(node, &resources, place.value().supervisor,
                   [promise](JobEnd how) { promise->set_value(std::move(how)); });
  caf::send_as(
      actor, place.value().supervisor,
      introduce(resources.node, *resources.transport, engine::identify(*resources.dataset)));
  const JobEnd how = wait_for_end(ended, actor);
  if (how.exit_code == 0) tell(options, name + ": the job is done");
  say_why(how, resources.node, options.parent != 0);
  leave_at_latest(how.exit_code, kLeaveTime);
  system.await_all_actors_done();
  resources.transport.reset();
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
                      "Take the data paths from this job file instead of the supervisor's");
  command->add_option("--node", options->node, "Node id to take; default: any free one");
  command->add_option("--timeout", options->timeout_s, "Seconds to look for the supervisor")
      ->capture_default_str();
  command->add_option("--parent", options->parent)->group("");  // Set by `troupe train`.
}

}  // namespace troupe::app
