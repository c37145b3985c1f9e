// What a command line that could not be read probably meant: commands, flags, and keys of the job
// file that were written like flags.
//
// Looks at words and at the described command line; prints nothing, changes nothing.

#pragma once

#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace CLI {
class App;
}

namespace troupe::app {

/// The error for `words` (without the program's own name), which `root` refused with `what`: a
/// command or a flag that is not known is named with the nearest that is, a key of the job file
/// that was given dashes without them; anything else is `what` and where help is.
/// `is_value_wrong`: a word was understood, and its value is what is refused.
Error explain_refusal(const CLI::App& root, const std::vector<std::string>& words,
                      const std::string& what, bool is_value_wrong);

/// The error for a word that is no command below `parent`, whose full name is `path` (`troupe
/// data`): the nearest one, or where what it is for is found.
Error unknown_command(const CLI::App& parent, const std::string& path, const std::string& word);

/// The command below `parent` that is called so; nullptr if there is none.
const CLI::App* find_command(const CLI::App& parent, const std::string& name);

}  // namespace troupe::app
