// Reads a whole file into memory, with errors that say which file and why.

#pragma once

#include <filesystem>
#include <string>

#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

/// The bytes of a file.
///
/// Errors (without `where`: the caller knows what the file is for):
/// - not_found: there is no such file.
/// - io_failed: it is no regular file, or reading failed (with the system's reason).
Result<std::string> read_file(const std::filesystem::path& path);

}  // namespace troupe::data
