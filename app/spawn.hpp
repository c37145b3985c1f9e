// Processes of this binary.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

/// Runs this binary with these words, the first of which is its name. The process forms a group of
/// its own, so that Ctrl-C does not reach it, blocks no signals, and finds `key` in TROUPE_KEY,
/// unless it is empty. The caller reaps it. Errors: io_failed, with the system's text.
Result<pid_t> spawn_self(std::vector<std::string> words, const std::string& key);

/// The command line of this process.
std::vector<std::string> own_words();

}  // namespace troupe::app
