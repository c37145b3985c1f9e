// Whether two processes have loaded the same builds of plug-ins. Every node loads its own copy, and
// replicas that run different code would train different values without a word.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// A plug-in as a process has loaded it.
struct PluginIdentity {
  std::string name;        ///< Of its file, without folders: for who reads of it.
  std::uint64_t hash = 0;  ///< Of all bytes of its file.

  friend bool operator==(const PluginIdentity&, const PluginIdentity&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, PluginIdentity& x) {
    return f(x.name, x.hash);
  }
};

/// All plug-ins that this process has loaded. The same on every machine of one byte order. Cost:
/// linear in their bytes.
std::vector<PluginIdentity> identify_plugins();

/// One that `there` has not loaded is no difference: families and formats a node asks for itself,
/// and see `same_stage_kinds`. Names of files may differ.
///
/// Errors: invalid_argument: `there` has loaded what `here` has not; names the plug-in and, where
/// `here` has one of that name, the first half of both hashes. `who`: a node, as the message calls
/// it.
Status same_plugins(std::span<const PluginIdentity> here, std::span<const PluginIdentity> there,
                    const std::string& who);

/// A node without a kind of stage would run the built-in one and say nothing of it.
///
/// Errors: invalid_argument: `there` lacks a kind that `here` has; names the first. `who`: as
/// above.
Status same_stage_kinds(std::span<const std::string> here, std::span<const std::string> there,
                        const std::string& who);

}  // namespace troupe::engine
