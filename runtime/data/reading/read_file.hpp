// Reads a file into memory, whole or its beginning, with errors that say which file and why.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

/// The bytes of a file, `bytes_max` of them at most.
///
/// Errors (without `where`: the caller knows what the file is for):
/// - not_found: there is no such file.
/// - io_failed: it is no regular file, or reading failed (with the system's reason).
/// - those of `accept`, asked with the first bytes (`kHeadBytes`, or all) and the size of the file
///   before more of it is read.
using AcceptFile = std::function<Status(std::string_view head, std::uintmax_t bytes)>;
inline constexpr std::size_t kHeadBytes = 16;
Result<std::string> read_file(const std::filesystem::path& path, const AcceptFile& accept = {},
                              std::uintmax_t bytes_max = UINTMAX_MAX);

}  // namespace troupe::data
