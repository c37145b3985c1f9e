// Where a job keeps the lengths of samples that were read once (`data.index`).

#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/setup/job_setup.hpp"

namespace troupe::engine {

/// The folder of the job's index; none: nothing is kept. By "auto" `lengths/` beside the run
/// folder, as profiles are; on a machine that has nothing where the run folder stands,
/// `troupe/lengths` in its user's folder of caches (XDG_CACHE_HOME, else ~/.cache). `run_folder`:
/// the run's, as another machine knows it; empty: this process is the job's own, and makes what is
/// not there.
std::optional<std::filesystem::path> lengths_folder(const job::Job& job,
                                                    const std::filesystem::path& run_folder);

/// Opens the index of a job's data, as its options see them now, unless none is kept:
/// `setup.lengths`. Never fails.
void keep_lengths(JobSetup& setup, const std::filesystem::path& run_folder = {});

/// Saves and closes it. Returns what users should know of it (`LengthIndex::take_notes`).
std::vector<std::string> release_lengths(JobSetup& setup);

}  // namespace troupe::engine
