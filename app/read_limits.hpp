// How long commands wait for files, and for functions of plug-ins, while no job says it: those that
// read a run's folder, and all of them while they read the job file.

#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/job/job.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/vocabulary/result.hpp"

namespace CLI {
class App;
}

namespace troupe::app {

/// `--timeout SECONDS`, of commands that read a run's folder.
struct ReadTimeout {
  /// Without an answer of a file, or of a function of a plug-in; 0.1 to 1e6.
  double seconds = job::Data().read_timeout_s;

  void add_to(CLI::App& command);
  /// Ends the process, as `EndOnStall` does, where `command` waits longer for either. Returns its
  /// exit code.
  int limit(const std::function<int()>& command) const;
};

/// Behind the settings that count while the job file is read, for errors.
inline constexpr const char* kOfCommandLine = " on the command line";

/// A job of which nothing counts but `data.read_timeout_s` and `train.stall_timeout_s`, as these
/// words of the command line have them (the last one counts), or their defaults: what the job file
/// says of them is not known before it is read. A word that makes no sense is left for whoever
/// reads the job.
job::Job job_file_limits(const std::vector<std::string>& words);

/// As `job::read_job` and `job::load_job`. A file that is not read within that time ends the
/// process, and so does a plug-in that is not loaded, or a function of it that does not return.
job::JobReading read_job_in_time(const std::filesystem::path& file,
                                 const std::vector<std::string>& overrides);
Result<job::LoadedJob> load_job_in_time(const std::filesystem::path& file,
                                        const std::vector<std::string>& overrides);

}  // namespace troupe::app
