// Shared libraries that add to the registries: `[plugins] libraries` of a job file. What their
// authors include is models/plugin.hpp.

#pragma once

#include <filesystem>

#include "runtime/vocabulary/result.hpp"

namespace troupe::models {

/// Loads a plug-in into this process for good, and lets it register what it has. Thread-safe; a
/// library that is loaded already is not asked again, and answers as it did then.
///
/// Errors:
/// - not_found: no such file.
/// - invalid_argument: no shared library, or not one of a plug-in; what the plug-in's own
///   registration says.
/// - unavailable: it was built against other headers, another compiler or another LibTorch than
///   this program.
Status load_plugin(const std::filesystem::path& library);

}  // namespace troupe::models
