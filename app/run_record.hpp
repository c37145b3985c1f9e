// What `troupe train` notes of a run beside its steps: RUN/run.json, written when it begins and
// again when it ends.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/job/job.hpp"
#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

/// By which a run is told from others in the same place, `5f0c9e1b7a3d2486`: that of the run in
/// this folder, or a new one.
std::string run_id(const std::filesystem::path& run, bool is_continued);

/// Which head of the run in this folder comes next, from 1: one more than that of the one before.
std::int64_t next_incarnation(const std::filesystem::path& run, bool is_continued);

/// Notes job, machine, versions and the time. REQUIRES: the run folder is there.
/// Errors: io_failed.
Status record_begin(const std::filesystem::path& run, const std::string& id,
                    std::int64_t incarnation, const job::Job& job, const DataOrder& data);

/// Adds how the run ended. A file that is missing or cannot be written is left so: a run that is
/// over is not made to fail for a note. So is that of a run which another process has taken over.
void record_end(const std::filesystem::path& run, std::int32_t exit_code,
                const std::string& message);

}  // namespace troupe::app
