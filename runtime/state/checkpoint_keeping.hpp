// What turns written files into a checkpoint, and what becomes of old ones.
//
// Touches files; thread-safe for different folders. At every point at which a machine may stop
// there is a whole checkpoint under its name, or none.

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/state/checkpoint_manifest.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::state {

/// Where the files of `step-N` are written: `.step-N.partial-K` beside it.
std::filesystem::path partial_folder(const std::filesystem::path& folder, std::int64_t step,
                                     std::int64_t number);

/// Adds the job file and the manifest to the files in `partial`, flushes all to disk and gives the
/// folder its name; what had this name before goes then. The manifest's files must be there as it
/// says; the job file is added to it.
///
/// Errors: io_failed, with the system's text; not_found: a file that a node wrote is not here,
/// which it is not where nodes do not share the folder; infeasible, bad_data: nobody could read
/// this manifest. A manifest that lists what is missing makes an incomplete save of it, under the
/// name that `folder` is.
Status complete_checkpoint(const std::filesystem::path& partial,
                           const std::filesystem::path& folder, CheckpointManifest manifest,
                           const std::string& resolved_job);

/// Removes all but the newest `keep_last` checkpoints; 0: none. Each loses its name first.
/// Returns what could not be removed.
std::vector<Error> remove_older_checkpoints(const std::filesystem::path& folder,
                                            std::int32_t keep_last);

/// Moves checkpoints of steps beyond `step`, and incomplete saves, into
/// `superseded/step-N-GENERATION`: a job that went back to `step` will save these steps anew, and
/// one that begins (0) has saved none. Returns what could not be moved.
std::vector<Error> supersede_checkpoints(const std::filesystem::path& folder, std::int64_t step,
                                         EpochNumber generation);

/// Removes a folder of files that did not become a checkpoint; best effort.
void discard_checkpoint(const std::filesystem::path& partial);

/// Removes what saves and removals that were cut off left in a folder of checkpoints; best effort.
void discard_leftovers(const std::filesystem::path& folder);

}  // namespace troupe::state
