// What a trace file says in numbers: how busy each device was, which stage was slowest.
//
// For `troupe trace` and reports. Reads a file, also of a job that died; values out.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

/// One device over the whole trace, in milliseconds.
struct DeviceSummary {
  std::int32_t node = 0;
  std::int32_t local_index = 0;
  double compute_ms = 0;
  double update_ms = 0;
  double transfer_ms = 0;
  double wait_ms = 0;
  double offload_ms = 0;  ///< To host memory and back.
};

/// One stage over the whole trace.
struct StageSummary {
  std::string name;
  std::int32_t node = 0;
  std::int32_t local_index = 0;
  double compute_ms = 0;
};

struct TraceSummary {
  std::int64_t step_count = 0;
  std::int64_t slice_count = 0;
  std::int64_t arrow_count = 0;        ///< Arrows with both ends.
  double span_ms = 0;                  ///< Sum over steps: first begin to last end of compute.
  double bubble = 0;                   ///< 1 - compute / (devices x span), as StepBalance.
  double imbalance = 1;                ///< Largest over mean compute of a stage.
  std::vector<DeviceSummary> devices;  ///< By node, then index.
  std::vector<StageSummary> stages;    ///< By node, index, name.
};

/// Reads and summarises.
///
/// Errors:
/// - not_found, io_failed: the file.
/// - bad_data: not a trace that Troupe wrote.
Result<TraceSummary> summarize_trace(const std::filesystem::path& path);

/// A table of at most devices + stages + 4 lines for a terminal.
std::string to_text(const TraceSummary& summary);

}  // namespace troupe::observe
