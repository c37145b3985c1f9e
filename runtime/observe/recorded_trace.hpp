// Reads RUN/trace.json back, one step at a time: as a timeline, or as a smaller trace.
//
// Reads line by line, as TraceWriter wrote it, so that the trace of a long run needs no more memory
// than one of its steps. A file whose last line is cut (a full disk) is read up to there.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/observe/timeline.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

/// Steps of which the trace has actions, ascending.
///
/// Errors:
/// - not_found, io_failed: the file.
/// - bad_data: a line that TraceWriter does not write; `where` names it.
Result<std::vector<std::int64_t>> steps_in_trace(const std::filesystem::path& path);

/// The timeline of a step, zero at its first action. Where a failure made the step run again, only
/// the last attempt is in it, and the note says so. What happened to the job before it (or while an
/// attempt ran) is a mark.
///
/// Errors: as above; not_found also: the trace has no such step, the message names those it has.
Result<Timeline> timeline_of_step(const std::filesystem::path& path, std::int64_t step);

/// The trace of one step for Perfetto: its slices, arrows and marks, names, and no counters.
/// Errors: as above.
Result<std::string> trace_of_step(const std::filesystem::path& path, std::int64_t step);

}  // namespace troupe::observe
