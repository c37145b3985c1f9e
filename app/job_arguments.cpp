#include <CLI/CLI.hpp>

#include "app/commands.hpp"

namespace troupe::app {

CLI::App* Commands::add(const std::string& name, const std::string& summary,
                        std::function<int()> run) {
  auto* command = root.add_subcommand(name, summary);
  command->callback([this, run = std::move(run)] { exit_code = run(); });
  return command;
}

void JobArguments::add_to(CLI::App& command) {
  command.add_option("JOB", file, "The job file (TOML)")->required()->type_name("FILE");
  command
      .add_option("OVERRIDES", overrides,
                  "Values that win over the file's: train.steps=10 modules.llm.freeze=true")
      ->type_name("KEY=VALUE");
  // One value each, so that a word behind it is not swallowed.
  command.add_option("--set", set_, "The same as a flag; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

std::vector<std::string> JobArguments::all() const {
  auto both = overrides;
  both.insert(both.end(), set_.begin(), set_.end());
  return both;
}

}  // namespace troupe::app
