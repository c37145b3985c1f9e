// What `troupe help keys` prints: keys of the job file with defaults, ranges and meanings.

#pragma once

#include <string>

namespace troupe::app {

/// Prints the keys of a section (`train`, `modules.vision.config`), one key (`train.steps`, or
/// `steps` alone), or all for an empty word. Returns the exit code: a word that is none of them is
/// answered with what there is in place of another program's key, or with the nearest.
int print_keys(const std::string& word);

}  // namespace troupe::app
