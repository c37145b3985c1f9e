// Notices that a file (of the data, a checkpoint, saved weights) is read for too long: a file
// system that hangs would stop a job without an error.

#pragma once

#include <optional>
#include <string>
#include <utility>

#include "actors/link/heartbeat.hpp"
#include "runtime/files/file_reads.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::actors {

/// Pure; time is handed in.
class ReadWatch {
 public:
  /// `setting`: what the user raises where a read may take longer, for the error.
  explicit ReadWatch(std::string setting = "data.read_timeout_s") : setting_(std::move(setting)) {}

  /// Time passes; `oldest`: what `files::oldest_read` says now. Call it at least every
  /// `kLookInterval`: time in which the caller was held up does not count (see `Silence`).
  /// Errors: timed_out: this file has been waited for longer than `timeout_s`.
  Status pass(Time now, double timeout_s, const std::optional<files::FileRead>& oldest);

 private:
  std::string setting_;
  OldestWait wait_;
};

}  // namespace troupe::actors
