// `troupe ctl`: asks and orders a running job.

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "actors/link/system.hpp"
#include "app/ask_head.hpp"
#include "app/commands.hpp"
#include "app/read_limits.hpp"
#include "app/run_argument.hpp"
#include "app/terminal.hpp"
#include "runtime/job/read_layout.hpp"
#include "runtime/observe/job_status.hpp"
#include "runtime/vocabulary/printable.hpp"

namespace troupe::app {

namespace {

using namespace actors;
using Kind = ControlRequest::Kind;

struct Options {
  std::string run;
  std::int32_t node = 0;
  std::string layout;  ///< A file.
  ReadTimeout timeout;
  bool json = false;
};

int control(const Options& options, Kind kind) {
  const auto asked = [&]() -> Result<HeadAnswer> {
    ControlRequest request{kind, NodeId{options.node}};
    if (kind == Kind::layout) {
      auto text = job::read_layout_text(options.layout);
      if (!text.ok()) return std::move(text).error();
      request.layout = std::move(text).value();
      request.file = options.layout;
    }
    if (auto there = check_run_folder(options.run); !there.ok()) return std::move(there).error();
    return ask_head(options.run, request);
  }();
  if (!asked.ok()) return report(asked.error());
  if (kind != Kind::status || options.json) {
    const std::string& text = asked.value().text;
    std::cout << (options.json ? text : printable(text)) << "\n";
    return 0;
  }
  const auto status = observe::read_status(asked.value().text);
  if (!status.ok()) return report(status.error());
  std::cout << observe::status_text(status.value())
            << printable("nodes join by: " + join_command(asked.value().joins, "")) << "\n";
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
