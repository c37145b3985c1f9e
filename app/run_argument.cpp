#include "app/run_argument.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "runtime/files/look_up.hpp"
#include "runtime/observe/metrics_table.hpp"
#include "runtime/observe/recorded_trace.hpp"

namespace troupe::app {

namespace fs = std::filesystem;

namespace {

/// What the profile alone said of a step's length, as a sentence and a space; empty where the run
/// does not know.
std::string words_of_profile(const fs::path& run, std::int64_t step) {
  const auto metrics = observe::read_metrics(run / "metrics.jsonl");
  if (!metrics.ok()) return "";
  const auto* predicted = metrics.value().find("profile_step_ms");
  const auto& steps = metrics.value().steps;
  const auto row = std::find(steps.rbegin(), steps.rend(), static_cast<double>(step));
  if (predicted == nullptr || row == steps.rend()) return "";
  const double ms = (*predicted)[static_cast<std::size_t>(std::distance(row, steps.rend()) - 1)];
  if (!(ms > 0) || !std::isfinite(ms)) return "";
  char text[64];
  std::snprintf(text, sizeof text, "The profile alone says %.1f ms. ", ms);
  return text;
}

}  // namespace

Status check_run_folder(const fs::path& run) {
  if (!files::is_folder(run))
    return Error{Errc::not_found, "no such run folder", run.string(),
                 "give the job.run_dir of a job"};
  if (!files::is_there(run / "resolved.toml"))
    return Error{Errc::not_found, "not a run folder: it has no resolved.toml", run.string(),
                 "give the job.run_dir of a job"};
  return Done{};
}

Result<std::vector<observe::Timeline>> timelines_of_run(const fs::path& run,
                                                        std::optional<std::int64_t> step) {
  const auto path = run / "trace.json";
  if (!step) {
    const auto steps = observe::steps_in_trace(path);
    if (!steps.ok()) return steps.error();
    if (steps.value().empty())
      return Error{Errc::not_found, "the trace has no step yet", path.string(),
                   "wait until the job has ended its first step"};
    step = steps.value().back();
  }
  auto measured = observe::timeline_of_step(path, *step);
  if (!measured.ok()) return measured.error();
  measured.value().title = "Step " + std::to_string(*step) + ", measured";
  std::vector<observe::Timeline> timelines;
  if (!files::is_there(run / "predicted.json")) {
    measured.value().note += std::string(measured.value().note.empty() ? "" : " ") +
                             "This run recorded no prediction to compare it with.";
  } else {
    auto predicted = observe::timeline_of_step(run / "predicted.json", *step);
    // A step that was never predicted is no reason to withhold what was measured.
    if (!predicted.ok() && predicted.error().code != Errc::not_found) return predicted.error();
    if (predicted.ok()) {
      predicted.value().title = "Step " + std::to_string(*step) + ", predicted";
      predicted.value().note += std::string(predicted.value().note.empty() ? "" : " ") +
                                words_of_profile(run, *step) +
                                "Drawn with speeds that earlier steps of this run showed.";
      timelines.push_back(std::move(predicted).value());
    } else {
      measured.value().note += " This step was not predicted.";
    }
  }
  timelines.push_back(std::move(measured).value());
  return timelines;
}

}  // namespace troupe::app
