// What the system says in its text files: /proc, /sys and control groups.
//
// `root` stands before every path, so that tests bring files of their own.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace troupe::app {

/// The whole text, or nothing where the file is not there.
std::optional<std::string> text_of(const std::filesystem::path& file);

/// The number at the beginning of the file; nothing where there is none (`max`).
std::optional<std::int64_t> number_in(const std::filesystem::path& file);

/// The number behind `key:` in a file of such lines (/proc/meminfo), or nothing.
std::optional<std::int64_t> number_behind(const std::filesystem::path& file,
                                          const std::string& key);

/// The folder of a control group's controller (`memory`, `cpu`, `pids`) that this process is in,
/// whichever of the two kinds there is; nothing where there is none. In a container its own group
/// is often the root of what is mounted.
std::optional<std::filesystem::path> group_folder(const std::filesystem::path& root,
                                                  const std::string& controller);

}  // namespace troupe::app
