// What `troupe --version` prints: facts about this build.

#pragma once

#include <string>

namespace troupe::app {

/// Version, commit, compiler, build type and the libraries it was built with; several lines.
std::string version_text();

/// The libraries with their versions: `LibTorch 2.5.1, CAF 0.17.6, ...`.
std::string libraries_text();

/// What this build is made of, one by one.
struct BuildParts {
  std::string compiler, type, sanitizers, ucx;
};
BuildParts build_parts();

/// Version and sources: what all processes of a job must agree on. The same for equal sources on
/// every machine: `0.1.0 (5016c19b1a2f)` as committed, `0.1.0 (5016c19b1a2f-dirty-3f0c9d27a1e4)`
/// with a hash of the sources where they were edited, `0.1.0 (sources-3f0c9d27a1e4)` without git.
std::string build_id();

}  // namespace troupe::app
