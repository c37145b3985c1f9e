// What `troupe --version` prints: facts about this build.

#pragma once

#include <string>

namespace troupe::app {

/// Version, commit, compiler, build type and the libraries it was built with; several lines.
std::string version_text();

/// Version and commit, as `0.1.0 (5016c19)`: what all processes of a job must agree on.
std::string build_id();

}  // namespace troupe::app
