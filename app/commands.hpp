// The commands of the binary. Each has a file of its own that adds one subcommand.
//
// A command parses its arguments, calls the library, prints the result and sets the exit code. To
// add one: a function `void add_NAME(Commands& commands)` in app/NAME.cpp, a line below, and a row
// in the table of main.cpp.

#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::app {

/// The command line being described, and what the chosen command returned.
struct Commands {
  CLI::App& root;
  /// Set by the chosen command's callback.
  int exit_code = 0;

  /// Adds a subcommand whose `run` decides the exit code. Options are added to what it returns;
  /// whatever they fill must live as long as the callback (use a shared_ptr).
  CLI::App* add(const std::string& name, const std::string& summary, std::function<int()> run);
};

/// `JOB.toml [key.path=value ...] [--set key=value ...]`, as every command that reads a job has it.
struct JobArguments {
  std::string file;
  std::vector<std::string> overrides;  ///< In the order of the command line: words, then --set.

  void add_to(CLI::App& command);
  /// Both kinds together. Call once, after parsing.
  std::vector<std::string> all() const;

 private:
  std::vector<std::string> set_;
};

void add_help(Commands& commands);
void add_train(Commands& commands);
void add_node(Commands& commands);
void add_checkpoint(Commands& commands);
void add_ctl(Commands& commands);
void add_key(Commands& commands);
void add_new(Commands& commands);
void add_validate(Commands& commands);
void add_check(Commands& commands);
void add_doctor(Commands& commands);
void add_compare(Commands& commands);
void add_data(Commands& commands);
void add_solve(Commands& commands);
void add_profile(Commands& commands);
void add_balance(Commands& commands);
void add_plan(Commands& commands);
void add_report(Commands& commands);
void add_trace(Commands& commands);
void add_observe(Commands& commands);
void add_simulate(Commands& commands);
void add_what_if(Commands& commands);
void add_failure_replay(Commands& commands);

}  // namespace troupe::app
