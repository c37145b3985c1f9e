// What `troupe --version` prints: facts about this build.

#pragma once

#include <string>

namespace troupe::app {

/// Version, commit, compiler, build type and the libraries it was built with; several lines.
std::string version_text();

}  // namespace troupe::app
