// learned.json of a run folder: what its head has learned, for the one that takes over from it. A
// head that is lost takes everything else along, and checkpoints may be old, or none.
//
// Touches that file alone. Nobody depends on it: a head without it learns anew.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "runtime/vocabulary/head_memory.hpp"
#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// Replaces the file. Errors: io_failed.
Status write_head_memory(const std::filesystem::path& run, const HeadMemory& memory);

/// None: there is no such file, or it is not one that `write_head_memory` wrote.
std::optional<HeadMemory> read_head_memory(const std::filesystem::path& run);

/// What is known to a head whose nodes have come to `live_step`, and whose newest checkpoint says
/// `saved`: the file's, or the checkpoint's where that is newer. A file of later steps is left from
/// before the run went back, and tells of other processes.
HeadMemory recall_head_memory(const std::filesystem::path& run, const JobProgress& saved,
                              std::int64_t live_step);

}  // namespace troupe::engine
