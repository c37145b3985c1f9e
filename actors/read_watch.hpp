// Notices that a file of the data set is read for too long: a file system that hangs would stop a
// job without an error.

#pragma once

#include <cstdint>
#include <optional>

#include "actors/heartbeat.hpp"
#include "runtime/data/file_reads.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::actors {

/// Pure; time is handed in.
class ReadWatch {
 public:
  /// Time passes; `oldest`: what `data::oldest_read` says now. Call it at least every
  /// `kLookInterval`: time in which the caller was held up does not count (see `Silence`).
  /// Errors: timed_out: this file has been read for longer than `timeout_s`
  /// (`data.read_timeout_s`).
  Status pass(Time now, double timeout_s, const std::optional<data::FileRead>& oldest);

 private:
  std::int64_t number_ = 0;  ///< Of the read that is watched.
  Silence silence_;          ///< Its, since it was first seen to be the oldest.
};

}  // namespace troupe::actors
