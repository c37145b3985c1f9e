// Shared libraries that add to the registries: `[plugins] libraries` of a job file. What their
// authors include is entry_point.hpp.

#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

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

/// A library that was loaded.
struct LoadedPlugin {
  std::string name;          ///< Of its file, without folders.
  std::string_view content;  ///< All bytes of the file; valid for the life of the process.
};

/// What `load_plugin` has loaded so far, each content once, in the order of their bytes.
/// Thread-safe.
std::vector<LoadedPlugin> loaded_plugins();

}  // namespace troupe::plugins
