// Shared libraries that add to the registries: `[plugins] libraries` of a job file. What their
// authors include is entry_point.hpp.

#pragma once

#include <filesystem>

#include "runtime/vocabulary/result.hpp"

namespace troupe::plugins {

/// Loads a plug-in into this process for good, and lets it register what it has. Thread-safe. A
/// library that is loaded already, or a copy of it elsewhere, is not loaded again.
///
/// Errors:
/// - not_found: no such file.
/// - invalid_argument: no shared library, or not one of a plug-in; what the plug-in's own
///   registration says.
/// - unavailable: it was built against other headers than this program, or by another compiler.
Status load_plugin(const std::filesystem::path& library);

}  // namespace troupe::plugins
