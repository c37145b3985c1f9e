// RUN/run.json: how a run came about and how it ended, which its other files do not say.
//
// Plain values; `read_run_facts` and `write_run_facts` alone touch files.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

/// How a run ended. A run that was killed has none.
struct RunEnd {
  std::int64_t time_s = 0;  ///< Unix time.
  std::int32_t exit_code = 0;
  std::string message;  ///< What stderr said; empty where all went well.

  friend bool operator==(const RunEnd&, const RunEnd&) = default;
};

/// What is known when a run begins; texts may be empty and numbers 0: not known.
struct RunFacts {
  std::string id;                ///< Drawn when it began; it keeps it where it is resumed.
  std::int64_t incarnation = 0;  ///< Heads that the run has had, the one that writes included.
  std::string job;               ///< `job.name`.
  std::string command;           ///< The command line.
  std::string version;           ///< `0.1.0 (5016c19b1a2f)`.
  std::string libraries;         ///< `LibTorch 2.5.1, CAF 0.17.6, ...`.
  std::string host;              ///< The head's machine.
  std::string processor;         ///< Of the head's machine.
  std::int32_t cores = 0;        ///< Of the head's machine.
  std::int32_t nodes = 0;        ///< Of the whole job.
  std::int32_t local_nodes = 0;  ///< Of them, those that the head started on its machine.
  std::string schedule;          ///< `scheduler.schedule`.
  std::string policy;            ///< `balancer.policy`.
  std::string dtype;
  std::int64_t steps = 0;            ///< To train; 0 also where another unit says how long.
  std::int64_t batch = 0;            ///< Samples per step.
  std::vector<SourceCounts> epochs;  ///< Which records they train.
  std::int64_t started_s = 0;        ///< Unix time.
  std::optional<RunEnd> end;

  friend bool operator==(const RunFacts&, const RunFacts&) = default;
};

/// The file's text: an object with these fields; times as `2026-11-23T05:22:33Z`.
std::string run_facts_json(const RunFacts& facts);

/// Unknown keys are ignored, missing ones stay empty. Errors: bad_data: no JSON object.
Result<RunFacts> parse_run_facts(const std::string& text);

/// Errors: not_found: the folder has no run.json. bad_data: as above.
Result<RunFacts> read_run_facts(const std::filesystem::path& run);

/// Replaces the file at once. Errors: io_failed.
Status write_run_facts(const std::filesystem::path& run, const RunFacts& facts);

/// `2026-11-23 05:22 UTC`.
std::string minute_text(std::int64_t time_s);

/// `45 s`, `12 min`, `3 h 07 min`, `2 d 5 h`.
std::string duration_text(std::int64_t seconds);

}  // namespace troupe::observe
