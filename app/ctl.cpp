// `troupe ctl`: asks and orders a running job.

#include <CLI/CLI.hpp>
#include <caf/all.hpp>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "actors/link/system.hpp"
#include "app/commands.hpp"
#include "app/control_file.hpp"
#include "app/read_limits.hpp"
#include "app/run_argument.hpp"
#include "app/signals.hpp"
#include "app/terminal.hpp"
#include "engine/profiling/this_machine.hpp"
#include "runtime/job/read_layout.hpp"
#include "runtime/observe/job_status.hpp"
#include "runtime/vocabulary/printable.hpp"

namespace troupe::app {

namespace {

using namespace actors;
using Kind = ControlRequest::Kind;

/// A head that computes nothing answers at once; one that is stopped does not.
constexpr double kFindSeconds = 5;
constexpr std::chrono::seconds kAnswerTime{10};

struct Options {
  std::string run;
  std::int32_t node = 0;
  std::string layout;  ///< A file.
  ReadTimeout timeout;
  bool json = false;
};

Result<std::string> ask(caf::actor_system& system, const SupervisorActor& supervisor,
                        const ControlRequest& request) {
  std::optional<Result<std::string>> answer;
  caf::scoped_actor self(system);
  self->request(supervisor, kAnswerTime, control_atom::value, request)
      .receive([&](const std::string& text) { answer = text; },
               [&](const caf::error& error) {
                 const caf::message& context = error.context();
                 if (context.match_elements<std::string, std::string>())
                   answer = Error{Errc::unavailable,
                                  context.get_as<std::string>(0),
                                  {},
                                  context.get_as<std::string>(1)};
                 else
                   answer = Error{Errc::timed_out,
                                  "the job did not answer",
                                  {},
                                  "look whether its head is stopped or crowded"};
               });
  return *std::move(answer);
}

int control(const Options& options, Kind kind) {
  std::string joins;
  const auto asked = [&]() -> Result<std::string> {
    ControlRequest request{kind, NodeId{options.node}};
    if (kind == Kind::layout) {
      auto text = job::read_layout_text(options.layout);
      if (!text.ok()) return std::move(text).error();
      request.layout = std::move(text).value();
      request.file = options.layout;
    }
    if (auto there = check_run_folder(options.run); !there.ok()) return std::move(there).error();
    const auto file = read_control(options.run);
    if (!file.ok()) return file.error();
    const bool is_here = file.value().host == engine::host_name();
    joins = is_here ? file.value().local : file.value().far;
    const auto address = parse_host_port(joins);
    if (!address.ok()) return address.error();
    SystemConfig config;
    caf::actor_system system(config);
    auto supervisor = find_supervisor(
        system, address.value(), [&]() -> Result<door::JobKey> { return file.value().key; },
        kFindSeconds);
    if (!supervisor.ok()) {
      Error error = std::move(supervisor).error();
      error.fix = "look whether the job still runs: " + options.run +
                  "/train.log; where its head was lost, its nodes wait a while for another: troupe "
                  "train --resume " +
                  options.run;
      return error;
    }
    auto answer = ask(system, supervisor.value(), request);
    supervisor = Error{Errc::cancelled, {}, {}, {}};  // Lets go of it before the system ends.
    return answer;
  }();
  if (!asked.ok()) return report(asked.error());
  if (kind != Kind::status || options.json) {
    std::cout << (options.json ? asked.value() : printable(asked.value())) << "\n";
    return 0;
  }
  const auto status = observe::read_status(asked.value());
  if (!status.ok()) return report(status.error());
  std::cout << observe::status_text(status.value())
            << printable("nodes join by: " + join_command(joins, "")) << "\n";
  return 0;
}

}  // namespace

void add_ctl(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* group = commands.root.add_subcommand("ctl", "Ask or order a running job");
  group->add_option("RUN", options->run, "The job's run folder")->required()->type_name("FOLDER");
  options->timeout.add_to(*group);
  group->require_subcommand(1);
  const auto add = [&](const char* name, const char* about, Kind kind) {
    auto* command = group->add_subcommand(name, about);
    command->callback([&commands, options, kind] {
      commands.exit_code = options->timeout.limit([&] { return control(*options, kind); });
    });
    return command;
  };
  auto* status = add("status", "What it does, and who takes part", Kind::status);
  status->add_flag("--json", options->json, "For programs");
  add("checkpoint", "Save the state of the last finished step", Kind::checkpoint);
  add("stop", "Save, and end", Kind::stop);
  auto* drain = add("drain", "Let a node leave; its state goes to others first", Kind::drain);
  drain->add_option("NODE", options->node, "Its number")->required();
  auto* layout = add("layout", "Train on another layout from the next step on", Kind::layout);
  layout
      ->add_option("FILE", options->layout,
                   "[[parallel.pipelines]] or [[parallel.replicas]], as in a job file")
      ->required()
      ->type_name("FILE.toml");
}

}  // namespace troupe::app
