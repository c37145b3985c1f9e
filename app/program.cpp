#include "app/program.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>

#include "app/commands.hpp"
#include "app/crash.hpp"
#include "app/descriptors.hpp"
#include "app/near_miss.hpp"
#include "app/own_code.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "runtime/vocabulary/first_line.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::app {

namespace {

constexpr std::array kCommands{
    add_train,   add_node,           add_checkpoint, add_ctl,     add_key,    add_validate,
    add_check,   add_doctor,         add_data,       add_compare, add_solve,  add_profile,
    add_balance, add_plan,           add_simulate,   add_what_if, add_report, add_trace,
    add_observe, add_failure_replay, add_new,        add_help,
};

constexpr const char* kAbout =
    "Troupe trains multimodal language models on clusters whose machines fail\n"
    "and whose data is uneven.";

constexpr const char* kMore =
    "Start with:  troupe validate configs/demo.toml\n"
    "Each command explains itself:  troupe help COMMAND\n"
    "Keys of job files:  troupe help keys\n"
    "Exit codes: 0 done; 1 failed while running; 2 command line, job file or JSON wrong;\n"
    "            3 data wrong; 75 stopped and resumable; 129/130/143 ended by a closed\n"
    "            terminal, Ctrl-C, SIGTERM.";

/// A word that was understood has a value that is refused.
bool is_value_wrong(const CLI::ParseError& error) {
  return dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr &&
         dynamic_cast<const CLI::RequiredError*>(&error) == nullptr;
}

/// Whether all output was taken. Who ignores SIGPIPE goes on when its reader leaves (`train`).
bool said_all() {
  struct sigaction action {};
  const bool may_lose = sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
  return static_cast<bool>(std::cout.flush()) || may_lose;
}

Error cannot_write() {
  return {Errc::io_failed, "the output could not be written, and is not complete", "stdout",
          "look whether the disk that it goes to is full"};
}

int run(int count, char** words) {
  // Before there are threads. Without it cuBLAS may add up in another order from run to run.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  CLI::App root{kAbout, "troupe"};
  root.footer(kMore);
  root.require_subcommand(1);
  root.set_version_flag("-v,--version", version_text());
  Commands commands{root};
  for (const auto add : kCommands) add(commands);
  try {
    root.parse(count, words);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return root.exit(e);
    // CLI11 lists what it expected over several lines; one is enough with the fix below it.
    return report(
        explain_refusal(root, {words + 1, words + count}, first_line(e.what()), is_value_wrong(e)));
  }
  return said_all() ? commands.exit_code : report(cannot_write());
}

/// What the user's function answers; where it throws, that it does.
Status registered(const std::function<Status()>& register_own) {
  if (!register_own) return Done{};
  bool has_answered = false;
  Status answer = call_guarded(Errc::internal, [&] {
    Status own = register_own();
    has_answered = true;
    return own;
  });
  if (has_answered) return answer;
  return Error{Errc::internal,
               "what this program registers its parts with " + answer.error().message,
               {},
               "correct the program"};
}

}  // namespace

}  // namespace troupe::app

namespace troupe {

int run_program(int count, char** words, const std::function<Status()>& register_own) {
  app::make_room_for_descriptors();
  app::report_crashes();
  if (register_own) app::note_own_program();
  try {
    const Status registered = app::registered(register_own);
    return registered.ok() ? app::run(count, words) : app::report(registered.error());
  } catch (const UserFault& fault) {
    return app::report(fault.error());
  } catch (const std::exception& e) {
    return app::report({Errc::internal, std::string("defect: ") + e.what(), "troupe",
                        "please report it with the command line"});
  }
}

}  // namespace troupe
