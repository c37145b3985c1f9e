// metrics.jsonl as columns, whatever keys it has: for reports.

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

/// One row per line of the file, in its order.
struct MetricsTable {
  std::vector<double> steps;  ///< From 1; repeats where a run went back to a checkpoint.
  /// By key; a column per number, NaN where a line has none (also null, which stands for NaN).
  std::map<std::string, std::vector<double>> columns;
  std::vector<std::pair<std::int64_t, std::string>> skipped;  ///< Step and why it changed nothing.
  bool last_line_cut = false;  ///< The writer was killed in the middle of a line.

  /// The column, or nullptr.
  const std::vector<double>* find(const std::string& key) const {
    const auto found = columns.find(key);
    return found == columns.end() ? nullptr : &found->second;
  }
};

/// Reads the file. A last line that is no JSON is what a killed writer leaves: it is left out and
/// told in `last_line_cut`.
///
/// Errors:
/// - not_found: no such file, or no step in it.
/// - bad_data: a line that is not an object with a `step`; `where` is `file:line`.
Result<MetricsTable> read_metrics(const std::filesystem::path& path);

}  // namespace troupe::observe
