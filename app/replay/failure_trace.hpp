// Reads traces of nodes that come and go, recorded on spot instances.
//
// Two formats, told apart by the file's ending:
// - .csv: `ms,add|remove,name`, one node a line, times ascending. Names become ids 0, 1, ... in the
//   order of their first line.
// - .txt: `YYYY-MM-DD, HH:MM:SS, count`: how many nodes there were from then on. A line that goes
//   back in time replaces what was said for that time and later. Time 0 is the first line that
//   counts. Which nodes leave is drawn from a seed.
//
// Empty lines are skipped. Parsing is pure; thread-safe.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/recovery/replay_failures.hpp"

namespace troupe::app {

struct FailureTrace {
  scheduler::RankList nodes;  ///< There from time 0.
  std::vector<scheduler::NodeEvent> events;
  double end_ms = 0;            ///< Time of the last line.
  std::int64_t peak_nodes = 0;  ///< Most nodes there at a time.

  friend bool operator==(const FailureTrace&, const FailureTrace&) = default;
};

enum class TraceFormat : std::uint8_t { changes, counts };

/// The trace in this text; `name` stands for its file in errors.
///
/// Errors, `where` = `name:line`:
/// - bad_data: a line without three fields; a time, date or count that is none or beyond its bound;
///   another word than add and remove; times that descend (csv); a node added that is there, or
///   removed that is not; no line at all.
Result<FailureTrace> parse_failure_trace(const std::string& text, const std::string& name,
                                         TraceFormat format, std::uint64_t seed = 0);

/// The same from a file.
///
/// Errors: as `parse_failure_trace`;
/// - not_found: no such file, or it cannot be read.
/// - invalid_argument: it ends neither in .csv nor in .txt.
Result<FailureTrace> read_failure_trace(const std::filesystem::path& file, std::uint64_t seed = 0);

inline constexpr std::int64_t kTraceNodesMax = 100'000;
inline constexpr double kTraceMsMax = 1e12;

}  // namespace troupe::app
