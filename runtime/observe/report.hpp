// The report of a run: what its folder says, read once; the figures that sum it up; the page.
//
// `read_run` reads files, the rest is pure.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/observe/metrics_table.hpp"
#include "runtime/observe/plan_json.hpp"
#include "runtime/observe/timeline.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

/// A sample that was not trained.
struct ReportedSample {
  std::string id;
  std::string why;
};

/// What a run folder holds. Everything but metrics may be missing: a run that was killed early.
struct RunRecord {
  std::string name;  ///< Of the folder.
  std::filesystem::path folder;
  MetricsTable metrics;
  std::optional<RecordedPlan> plan;  ///< The last configuration.
  std::string resolved_job;          ///< resolved.toml; empty: missing.
  std::vector<ReportedSample> bad_samples;
  std::vector<std::string> notes;  ///< What is missing or damaged, one sentence each.
};

/// Reads a run folder, also of a job that still runs or was killed. What is missing or cut becomes
/// a note.
///
/// Errors:
/// - not_found: no metrics, or no step ended.
/// - bad_data: metrics.jsonl, with file and line.
Result<RunRecord> read_run(const std::filesystem::path& folder);

/// A figure of the whole run. Means leave out the first step, which also warms up, where there are
/// others.
struct ReportFigure {
  std::string key;    ///< For --json: `tokens_per_s_mean`.
  std::string words;  ///< For people: `Throughput`.
  double value = 0;   ///< NaN: the metrics do not say.
  std::string unit;   ///< `tokens/s`; empty: none.
};

/// The figures that the metrics allow; others are left out.
std::vector<ReportFigure> report_figures(const RunRecord& run);

/// Keys of interfaces.md and their kin that the metrics lack, as sentences for people.
std::vector<std::string> missing_figures(const RunRecord& run);

/// The page: figures, charts, these timelines, the layout, bad samples and the job. Without
/// timelines `no_timeline` says why.
std::string report_page(const RunRecord& run, const std::vector<Timeline>& timelines,
                        const std::string& no_timeline);

}  // namespace troupe::observe
