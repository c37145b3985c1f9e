// The whole command line of `troupe` as a function: a program of one's own is this, and what it
// registers before.
//
//   int main(int count, char** words) { return troupe::run_program(count, words, register_own); }
//
// `register_own` adds model families, policies, schedules, formats of data, observers or stages, as
// the function that a plug-in names does (runtime/plugins/entry_point.hpp). Linked with
// `troupe::engine` of the installed CMake package; what holds for plug-ins holds for it, except
// that the linker, and not the program, sees whether both were made for each other. All processes
// of a job run copies of its one file: a node of another build is refused, by a hash of it.

#pragma once

#include <functional>

#include "runtime/vocabulary/result.hpp"

namespace troupe {

/// Runs one command to its end, in the process and with the exit codes of `troupe`. Local nodes are
/// processes of the same program, so they register the same. Where `register_own` answers with an
/// error, that is printed and nothing runs. Once in a process; reads the environment and takes
/// signals over, so it belongs at the end of `main`.
int run_program(int count, char** words, const std::function<Status()>& register_own = {});

}  // namespace troupe
