// RUN/control: how `troupe ctl` reaches the head of a running job. Holds the job's key, so that
// only the job's owner may read it (mode 600).

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/door/job_key.hpp"
#include "runtime/vocabulary/host_port.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

struct ControlFile {
  std::string host;   ///< Where the head runs.
  std::string local;  ///< `HOST:PORT` on that machine.
  std::string far;    ///< The same from other machines.
  door::JobKey key;
  std::int64_t process = 0;  ///< The head's; 0: a build that did not say wrote the file.
};

/// Writes it into a run's folder, at once; takes the place of an older one. Errors: io_failed.
Status write_control(const std::filesystem::path& run, const ControlFile& control);

/// `own` is of no use any more. That of another head, which took the run over since, stays.
void remove_control(const std::filesystem::path& run, const ControlFile& own);

/// Errors: not_found: no job runs there; io_failed; bad_data; invalid_argument: group or others may
/// read it.
Result<ControlFile> read_control(const std::filesystem::path& run);

}  // namespace troupe::app
