// The binary: one subcommand per file of this folder.

#include <CLI/CLI.hpp>
#include <array>
#include <exception>
#include <iostream>

#include "app/commands.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::app {

namespace {

constexpr std::array kCommands{
    add_train,    add_node,    add_key,     add_validate, add_data,
    add_compare,  add_solve,   add_profile, add_balance,  add_plan,
    add_simulate, add_what_if, add_report,  add_trace,    add_failure_replay,
};

constexpr const char* kAbout =
    "Troupe trains multimodal language models on clusters whose machines fail\n"
    "and whose data is uneven.";

constexpr const char* kMore =
    "Start with:  troupe validate configs/demo.toml\n"
    "Each command explains itself:  troupe COMMAND --help\n"
    "Exit codes: 0 done; 1 failed while running; 2 command line, job file or JSON wrong;\n"
    "            3 data wrong; 75 stopped and resumable; 129/130/143 ended by a closed\n"
    "            terminal, Ctrl-C, SIGTERM.";

/// What a wrong word on the command line probably meant, as a fix.
std::string suggest(const CLI::App& root, int count, char** words) {
  std::vector<std::string> names;
  for (const auto* command : root.get_subcommands({})) names.push_back(command->get_name());
  const std::string first = count > 1 ? words[1] : "";
  for (const auto* command : root.get_subcommands({}))
    if (command->get_name() == first) return "`troupe " + first + " --help` shows what it takes";
  const auto near = nearest_word(first, names);
  return near.empty() ? "`troupe --help` lists the commands"
                      : "did you mean `troupe " + near + "`?";
}

int run(int count, char** words) {
  CLI::App root{kAbout, "troupe"};
  root.footer(kMore);
  root.require_subcommand(1);
  root.set_version_flag("--version", version_text());
  Commands commands{root};
  for (const auto add : kCommands) add(commands);
  try {
    root.parse(count, words);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return root.exit(e);
    // CLI11 lists what it expected over several lines; one is enough with the fix below it.
    std::string what = e.what();
    what = what.substr(0, what.find('\n'));
    if (count > 1 && words[1][0] != '-' && root.get_subcommands().empty())
      what = std::string("no command is called '") + words[1] + "'";
    return report(usage_error(what, suggest(root, count, words)));
  }
  return commands.exit_code;
}

}  // namespace

}  // namespace troupe::app

int main(int count, char** words) {
  try {
    return troupe::app::run(count, words);
  } catch (const std::exception& e) {
    return troupe::app::report({troupe::Errc::internal, std::string("defect: ") + e.what(),
                                "troupe", "please report it with the command line"});
  }
}
