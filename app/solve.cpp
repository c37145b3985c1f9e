#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "app/commands.hpp"
#include "app/progress.hpp"
#include "app/read_limits.hpp"
#include "app/solve/problem.hpp"
#include "app/terminal.hpp"
#include "runtime/files/look_up.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::app {

namespace {

struct Options {
  std::string problem;
  std::string file = "-";
  bool list = false;
  std::string schema;
  ReadTimeout timeout;
};

Result<std::string> read_input(const std::string& file) {
  if (file == "-") {
    // Who types the input needs the line for it.
    std::optional<Progress> progress;
    if (isatty(STDIN_FILENO) == 0) progress.emplace("reading standard input");
    return std::string{std::istreambuf_iterator<char>(std::cin), {}};
  }
  if (!files::is_folder(file) && !files::is_file(file)) {  // A pipe: whoever writes may take long.
    std::ifstream pipe(file, std::ios::binary);
    if (pipe.is_open()) return std::string{std::istreambuf_iterator<char>(pipe), {}};
  }
  auto text = files::is_folder(file) ? std::nullopt : files::read_whole(file);
  if (!text)
    return Error{Errc::not_found, "cannot read this input", file,
                 "name a JSON file, or leave it out to read from stdin"};
  return std::move(*text);
}

int print_list() {
  std::size_t width = 0;
  const auto problems = all_problems();
  for (const auto& problem : problems) width = std::max(width, problem.name.size());
  for (const auto& problem : problems)
    std::cout << problem.name << std::string(width + 2 - problem.name.size(), ' ')
              << problem.summary << '\n';
  return kDone;
}

int print_schema(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& problem : all_problems()) {
    if (problem.name == name) return std::cout << problem.schema << '\n', kDone;
    names.push_back(problem.name);
  }
  const auto near = nearest_word(name, names);
  return report({Errc::not_found, "no problem is called '" + name + "'", "troupe solve --schema",
                 near.empty() ? "`troupe solve --list` names them"
                              : "did you mean `troupe solve --schema " + near + "`?"});
}

int run_solve(const Options& options) {
  if (options.list) return print_list();
  if (!options.schema.empty()) return print_schema(options.schema);
  if (options.problem.empty())
    return report(usage_error("solve: which problem?", "`troupe solve --list` names them"));
  const auto input = read_input(options.file);
  if (!input.ok()) return report(input.error());
  auto progress = std::make_optional<Progress>("solving " + options.problem);
  const auto output = solve(options.problem, input.value());
  progress.reset();
  if (!output.ok()) return report(output.error());
  std::cout << output.value().dump() << '\n';
  return kDone;
}

}  // namespace

void add_solve(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add(
      "solve", "Run one planner or balancer: JSON in, JSON out",
      [options] { return options->timeout.limit([&] { return run_solve(*options); }); });
  command->add_option("PROBLEM", options->problem, "Its name, as in --list");
  command->add_option("FILE", options->file, "Input; - or nothing: stdin")->type_name("JSON");
  command->add_flag("--list", options->list, "Name all problems");
  command->add_option("--schema", options->schema, "Print the input a problem takes, with units")
      ->type_name("PROBLEM");
  options->timeout.add_to(*command);
  command->footer(
      "Example:  echo '{\"costs\": [3, 1, 2], \"stages\": 2}' | troupe solve partition");
}

}  // namespace troupe::app
