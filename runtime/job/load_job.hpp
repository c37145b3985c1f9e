// Reads job files: TOML, `extends`, overrides from the command line, and every check that needs no
// device. The only place that knows TOML.
//
// Reads files; starts nothing, prints nothing. Thread-safe.

#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/job/job.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::job {

/// Where a value came from.
struct Origin {
  std::string where;  ///< `job.toml:14`, `command line`, or `default`.

  friend bool operator==(const Origin&, const Origin&) = default;
};

/// A job and, for every key that was given, where it was given.
struct LoadedJob {
  Job job;
  std::map<std::string, Origin> origins;  ///< By key path; keys left out are defaults.
  std::vector<Error> warnings;            ///< What the job says in vain: it trains all the same.
};

/// What reading a job file found: all problems at once, or a job.
struct JobReading {
  LoadedJob loaded;             ///< Meaningful only if `ok()`.
  std::vector<Error> problems;  ///< In the order of the files, then of the checks.

  bool ok() const { return problems.empty(); }
};

/// Reads `file`, what it extends, and then `overrides` (`key.path=value`, later ones win).
///
/// Values of overrides are TOML; what is not is taken as a string, so that
/// `train.dtype=bf16` needs no quotes. A relative path is looked for beside the file that names
/// it, then in the current directory; on the command line only there.
///
/// Problems: not_found (a file), io_failed (unreadable), unavailable (planned but not there yet),
/// invalid_argument (everything else).
JobReading read_job(const std::filesystem::path& file, const std::vector<std::string>& overrides);

/// Whether the files that a job names are looked for.
enum class Paths { must_exist, of_another_machine };

/// The same from text; `name` stands for the file in messages and relative paths start from the
/// current directory. `of_another_machine`: paths are taken as they are written.
JobReading parse_job(const std::string& text, const std::string& name,
                     const std::vector<std::string>& overrides, Paths paths = Paths::must_exist);

/// `read_job` for callers that stop at any problem: at most four of them in one `Error`.
Result<LoadedJob> load_job(const std::filesystem::path& file,
                           const std::vector<std::string>& overrides);

/// A key of the job file that somebody may have meant.
struct NearKey {
  std::string path;       ///< `train.steps`; empty: none is near.
  bool is_exact = false;  ///< It was written so, or its last word was, without the sections.
  /// Of a key that other programs have: what there is here in its place, `write train.steps`, or
  /// that there is nothing of the kind, in a sentence.
  std::string instead = {};
};

/// What `path` (`train.step`, `steps`, `modules.vision.freez`) was meant for. Ties: the first in
/// the order of the sections.
NearKey nearest_key(const std::string& path);

/// The job as a complete job file: every value with its origin as a comment. Reading it again gives
/// an equal `Job`, on any node that sees the same files.
std::string to_toml(const LoadedJob& loaded);

/// What an entry of `stages` says of several devices: `, devices = [0, 1], tp = 2`; nothing of one.
std::string grid_toml(const HandStage& stage);

}  // namespace troupe::job
