// `troupe help`: the same as --help, for those who ask in words.

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "app/commands.hpp"
#include "app/key_page.hpp"
#include "app/near_miss.hpp"
#include "app/terminal.hpp"

namespace troupe::app {

namespace {

int help(const CLI::App& root, const std::vector<std::string>& words) {
  if (!words.empty() && words.front() == "keys") {
    if (words.size() > 2)
      return report(usage_error("one section or key at a time", "as in `troupe help keys train`"));
    return print_keys(words.size() == 2 ? words.back() : "");
  }
  const CLI::App* command = &root;
  std::string path = "troupe";
  for (const auto& word : words) {
    const auto* next = find_command(*command, word);
    if (next == nullptr) return report(unknown_command(*command, path, word));
    command = next;
    path += " " + word;
  }
  // Not `command->help()`: that of the root would explain `help`, the command that was given.
  std::cout << command->get_formatter()->make_help(command, path, CLI::AppFormatMode::Normal);
  return kDone;
}

}  // namespace

void add_help(Commands& commands) {
  auto words = std::make_shared<std::vector<std::string>>();
  auto* command = commands.add("help", "Explain a command or the keys of job files",
                               [&root = commands.root, words] { return help(root, *words); });
  command
      ->add_option(
          "COMMAND", *words,
          "As in `troupe help data check`; `troupe help keys train` explains keys of a job file")
      ->type_name("");
}

}  // namespace troupe::app
