// What commands that look at a finished or running job's folder share.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "runtime/observe/timeline.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

/// Errors: not_found: no such folder, or none that `troupe train` made.
Status check_run_folder(const std::filesystem::path& run);

/// The timelines of a step (default: the last of the trace): the prediction first where the run
/// holds one (`predicted.json`, a trace of simulated steps, with measured speeds; what the profile
/// alone says is told in its note), then what was measured. A step that was not predicted is told
/// in the measured one's note. Errors: those of `timeline_of_step`.
Result<std::vector<observe::Timeline>> timelines_of_run(const std::filesystem::path& run,
                                                        std::optional<std::int64_t> step);

}  // namespace troupe::app
