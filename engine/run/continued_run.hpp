// A run folder that a job goes on writing: what followed the step it goes on from is laid aside.
//
// Touches files of the folder. REQUIRES of all: nobody else writes there (RunLock).

#pragma once

#include <cstdint>
#include <filesystem>

#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// The generation of the newest layout that wrote there; 0: none can be read.
EpochNumber newest_generation(const std::filesystem::path& run);

/// The last step in both metrics.jsonl and samples.jsonl; 0: there is none. Cost: of their last
/// lines, as they ascend by step; of the files where they do not.
std::int64_t last_recorded_step(const std::filesystem::path& run);

/// Puts a copy in the place of each file that a head writes line by line. One that was only stopped
/// has the old ones open: whatever it still writes when it wakes is in no file of the run.
/// Cost: of the files; not needed of one that has ended (`RunLock::may_wake`). Errors: io_failed.
Status renew_open_files(const std::filesystem::path& run);

/// Moves what does not belong to the steps up to `progress.step` into `superseded/`, whole lines of
/// metrics, samples, iterations, events and bad samples under their file's name and `generation`;
/// the final model too. Traces and the job file stay, named after the generation. A line that is
/// cut goes with the rest. `recorded_step`: at most `progress.step`; records of steps behind it are
/// not whole, and go too. Cost: as `last_recorded_step`, for files that have a line per step.
/// Crash: again from the start gives the same, but for lines that stand in `superseded/` twice.
///
/// Errors: io_failed.
Status lay_aside(const std::filesystem::path& run, const JobProgress& progress,
                 std::int64_t recorded_step, EpochNumber generation);

}  // namespace troupe::engine
