// What of a user's own runs in this process: plug-ins, and the program itself where its `main`
// registers parts. Nodes of one job must run the same builds of it; of `troupe` itself build_id()
// says so.

#pragma once

#include <vector>

#include "engine/setup/plugin_identity.hpp"

namespace troupe::app {

/// This process is a program of the user's own from now on. Before there are threads.
void note_own_program();

/// What it has loaded so far, and its own file where it is such a program.
///
/// Errors: io_failed: that file cannot be read.
Result<std::vector<engine::PluginIdentity>> own_code();

}  // namespace troupe::app
