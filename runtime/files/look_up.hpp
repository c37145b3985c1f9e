// Questions to a file system that may never answer: those of <filesystem>, each a `ReadingFile`.
//
// Thread-safe. REQUIRES: the calling thread has no other `ReadingFile`.

#pragma once

#include <filesystem>

namespace troupe::files {

/// What is there, links followed; `file_type::none` where it cannot be told.
std::filesystem::file_type type_of(const std::filesystem::path& path);

/// Whether it can be told that something is there.
bool is_there(const std::filesystem::path& path);

bool is_folder(const std::filesystem::path& path);

bool is_file(const std::filesystem::path& path);

}  // namespace troupe::files
