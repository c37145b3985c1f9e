// SHA-256 of a file, in the spelling of `sha256sum`.
//
// Reads the file; thread-safe.

#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/vocabulary/result.hpp"

namespace troupe::state {

/// 64 hexadecimal digits, lower case. Cost: linear; about 2 GB/s where the processor has the
/// instructions. Errors: io_failed, with the system's text.
Result<std::string> sha256_of_file(const std::filesystem::path& path);

/// The same of bytes in memory.
std::string sha256_of(std::string_view bytes);

}  // namespace troupe::state
