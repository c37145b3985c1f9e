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
#include "runtime/observe/report_layouts.hpp"
#include "runtime/observe/run_facts.hpp"
#include "runtime/observe/timeline.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

/// A sample that was not trained.
struct ReportedSample {
  std::string id;
  std::string why;
};

/// Something that happened to a run at a step.
struct ReportedEvent {
  std::int64_t step = 0;
  std::string words;  ///< `The number of nodes went from 4 to 3.`
  // Of those in events.jsonl:
  std::string kind = {};       ///< As there; empty: the metrics show it by themselves.
  std::string time = {};       ///< UTC.
  std::string details = {};    ///< Why, and which nodes.
  double took_ms = 0;          ///< All phases together.
  double bytes = 0;            ///< That were copied or written.
  EpochNumber generation = 0;  ///< After it.
};

/// What a run folder holds. Everything but metrics may be missing: a run that was killed early.
struct RunRecord {
  std::string name;  ///< Of the folder.
  std::filesystem::path folder;
  MetricsTable metrics;
  std::optional<RunFacts> facts;     ///< run.json; older runs have none.
  bool running = false;              ///< A job writes the folder now; for the caller to say.
  std::optional<RecordedPlan> plan;  ///< The last configuration.
  std::string resolved_job;          ///< resolved.toml; empty: missing.
  std::vector<ReportedSample> bad_samples;
  std::vector<ReportedEvent> events;  ///< By step; see read_events.
  ReportedLayouts layouts;            ///< That it trained on; see read_layouts.
  std::vector<std::string> notes;     ///< What is missing or damaged, one sentence each.
};

/// Reads a run folder, also of a job that still runs or was killed. What is missing or cut becomes
/// a note.
///
/// Errors:
/// - not_found: no metrics, or no step ended.
/// - bad_data: metrics.jsonl, with file and line.
Result<RunRecord> read_run(const std::filesystem::path& folder);

/// What happened besides training: events.jsonl where the run has one, and what the metrics show by
/// themselves: steps that left the parameters alone (neighbours with one reason are one event),
/// other numbers of nodes, other configurations, steps that were run again. Ascending by step.
std::vector<ReportedEvent> read_events(const std::filesystem::path& folder,
                                       const MetricsTable& metrics);

/// `Done: 6000 of 6000 steps`, `Failed after step 12: ...`, `Still running: ...`, or that it ended
/// without a word, as a killed run does.
std::string outcome(const RunRecord& run);

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

/// What the metrics should say and do not, as sentences for people.
std::vector<std::string> missing_figures(const RunRecord& run);

/// The page. First what the job was, where and when it ran and how it ended; what went wrong; loss,
/// throughput and where time went; then everything else: further charts, these timelines, the
/// layout, bad samples and the job. Without timelines `no_timeline` says why. Its size is bounded,
/// whatever the number of steps.
std::string report_page(const RunRecord& run, const std::vector<Timeline>& timelines,
                        const std::string& no_timeline);

}  // namespace troupe::observe
