// The text of a file that people write. Private to runtime/job.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/vocabulary/result.hpp"

namespace troupe::job {

/// What a file is, for messages: `job file`, and an example: `as configs/demo.toml`.
struct FileKind {
  std::string name;
  std::string example;
};

/// Errors: not_found; invalid_argument: no regular file, or more than so many bytes; io_failed.
Result<std::string> read_text(const std::filesystem::path& file, std::uintmax_t bytes_max,
                              const FileKind& kind);

}  // namespace troupe::job
