// Whether two processes run the same builds of a user's code: plug-ins that they have loaded, and
// programs of the user's own (app/program.hpp). Every node runs its own copy, and replicas that run
// different code would train different values without a word. Of `troupe` itself its commit speaks.

#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// A plug-in as a process has loaded it, or a program of the user's own that it runs.
struct PluginIdentity {
  std::string name;         ///< Of its file, without folders: for who reads of it.
  std::uint64_t hash = 0;   ///< Of all bytes of its file.
  bool is_program = false;  ///< At most one of a process.

  friend bool operator==(const PluginIdentity&, const PluginIdentity&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, PluginIdentity& x) {
    return f(x.name, x.hash, x.is_program);
  }
};

/// All plug-ins that this process has loaded. The same on every machine of one byte order. Cost:
/// linear in their bytes.
std::vector<PluginIdentity> identify_plugins();

/// The user's own program that this process runs, from its file; cost as above. A link is followed
/// for the name.
///
/// Errors: io_failed: the file cannot be read.
Result<PluginIdentity> identify_program(const std::filesystem::path& file);

/// One that `there` has not loaded is no difference: families and formats a node asks for itself,
/// and see `same_stage_kinds`. Names of files may differ.
///
/// Errors: invalid_argument: `there` has loaded what `here` has not, or is a program that `here` is
/// not; names the plug-in and, where `here` has one of that name, the first half of both hashes; of
/// a program whatever that of `here` is called. `who`: a node, as the message calls it.
Status same_plugins(std::span<const PluginIdentity> here, std::span<const PluginIdentity> there,
                    const std::string& who);

/// A node without a kind of stage would run the built-in one and say nothing of it.
///
/// Errors: invalid_argument: `there` lacks a kind that `here` has; names the first. `who`: as
/// above.
Status same_stage_kinds(std::span<const std::string> here, std::span<const std::string> there,
                        const std::string& who);

}  // namespace troupe::engine
