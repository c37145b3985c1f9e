// What was left of a model whose other shards nobody held any more: found, told, put together.
//
// An incomplete save lies beside the checkpoints as `step-N.incomplete-K` (README.md): the files of
// one, and a manifest that lists what is missing. Nothing that looks for checkpoints takes it for
// one. Touches files; thread-safe for different folders.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/state/checkpoint_manifest.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::state {

/// `FOLDER/step-12.incomplete-2`, of the run's second head: each saves a step once.
std::filesystem::path incomplete_folder(const std::filesystem::path& folder, std::int64_t step,
                                        std::int64_t incarnation);

/// Those in a folder of checkpoints with their steps, ascending. Empty where it is not there.
std::vector<std::pair<std::int64_t, std::filesystem::path>> incomplete_saves_in(
    const std::filesystem::path& folder);

/// `llm.a, llm.a@moments, llm.b[0:8] and 5 more shards (last held by node 1 (host, pid 71))`.
/// REQUIRES: something is missing.
std::string missing_words(const std::vector<SavedParameter>& parameters,
                          const std::vector<MissingShard>& missing);

/// Why nothing goes on from this save, what it lacks, and what would help. REQUIRES: as above.
Error incomplete_error(const CheckpointManifest& manifest, const std::filesystem::path& folder);

/// The same of one that is there; where its manifest cannot be read, why.
Error why_incomplete(const std::filesystem::path& folder);

/// What there is of a step that no checkpoint has: of this one, or of the newest that has
/// incomplete saves where no checkpoint is as new. Names the parts that go together, what all of
/// them lack, and what would complete them. None: no such save is there.
std::optional<Error> why_only_parts(const std::filesystem::path& folder,
                                    std::optional<std::int64_t> step = {});

/// Incomplete saves of one state that have all of it together become its checkpoint, and go: those
/// of the newest step that has any, where no checkpoint is as new. Files are linked, or copied
/// where the file system links none. None: there are no such saves.
///
/// Errors, upon which they stay: as `complete_checkpoint` and `Checkpoint::verify`; io_failed: a
/// file could not be linked or read.
Result<std::optional<std::filesystem::path>> join_incomplete_saves(
    const std::filesystem::path& folder);

}  // namespace troupe::state
