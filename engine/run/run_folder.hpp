// The folder of a run and the files in it, as interfaces.md section 3 fixes them.
//
// Owned by one thread. Lines are flushed one by one, so that a killed run leaves whole lines.

#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/iteration/batch_planner.hpp"
#include "engine/run/begun_events.hpp"
#include "runtime/observe/line_file.hpp"
#include "runtime/observe/metrics_endpoint.hpp"
#include "runtime/observe/run_event.hpp"
#include "runtime/observe/step_metrics.hpp"
#include "runtime/observe/trace_writer.hpp"
#include "runtime/vocabulary/head_memory.hpp"
#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

class RunFolder {
 public:
  /// Everything that training says on the console, with the day; written by who has the logger.
  static constexpr const char* kLogFile = "train.log";

  /// Whether a run may go there: nothing is there yet, an empty folder, or an older run, which
  /// `create` would move aside. Errors: invalid_argument: a file, a folder that holds anything else
  /// (it is never moved), or an older run in which this process works.
  static Status check(const std::filesystem::path& path);

  /// Makes the folder and its empty files. An older run in the same place is moved aside to
  /// `PATH.1`, `PATH.2`, ... first; `moved_to` then says where. REQUIRES: nobody else writes there
  /// (RunLock). Errors: as `check`; io_failed, with the path and the system's text.
  static Result<RunFolder> create(const std::filesystem::path& path,
                                  const std::string& resolved_job);

  /// Goes on writing an older run's folder, from the step on that follows `progress`: what it wrote
  /// beyond is laid aside (continued_run.hpp), with records behind `recorded_step`. `generation`:
  /// the newest one that wrote there. REQUIRES and errors: as `create`.
  static Result<RunFolder> resume(const std::filesystem::path& path,
                                  const std::string& resolved_job, const JobProgress& progress,
                                  std::int64_t recorded_step, EpochNumber generation);

  const std::filesystem::path& path() const { return path_; }
  const std::optional<std::filesystem::path>& moved_to() const { return moved_to_; }

  /// plan.json, of the layout that trains now; the one before is then called plan-N.json after its
  /// epoch number. Nothing, as of `write_event` and `write_memory`, where another process has taken
  /// the folder over (`is_taken_over`). Errors of all below: io_failed.
  Status write_plan(const ParallelPlan& plan, EpochNumber epoch_number);

  /// Where the plan of an earlier layout of a run is.
  static std::filesystem::path older_plan(const std::filesystem::path& run,
                                          EpochNumber epoch_number);

  /// What a planned batch leaves: bad_samples.jsonl, and iterations.jsonl where it has a plan.
  Status write_batch(const PlannedBatch& batch);
  /// bad_samples.jsonl alone.
  Status write_dropped(const std::vector<DroppedSample>& dropped, std::int64_t epoch);

  /// events.jsonl, which is there from the first event on. One that is under way is told there by
  /// who resumes the run, should this process end before it is over (begun_events.hpp).
  Status write_event(const observe::RunEvent& event);

  /// metrics.jsonl and samples.jsonl (ids in training order; none for a skipped step).
  Status write_step(const observe::StepMetrics& metrics, const std::vector<std::string>& ids);

  /// learned.json, for another head.
  Status write_memory(const HeadMemory& memory);

  /// Brings all lines so far to disk.
  Status sync();

  /// Bytes of lines that the disk has not taken yet; they are tried again with what follows.
  std::size_t unwritten();

  /// What is written from now on is shown there too.
  void show_at(std::shared_ptr<observe::MetricsEndpoint> endpoint) {
    endpoint_ = std::move(endpoint);
  }

  /// Distinct bad samples so far.
  std::int64_t bad_count() const { return static_cast<std::int64_t>(bad_ids_.size()); }

  /// model/model.safetensors: final parameters by name.
  Status write_model(const std::map<std::string, at::Tensor>& parameters);
  /// gradients/step-1.safetensors: reduced gradients before clipping.
  Status write_first_gradients(const std::map<std::string, at::Tensor>& gradients);

 private:
  static Result<RunFolder> open(const std::filesystem::path& path, observe::LineFile::Mode mode);
  RunFolder(std::filesystem::path path, observe::LineFile metrics, observe::LineFile samples,
            observe::LineFile bad_samples, observe::LineFile iterations);
  std::vector<observe::LineFile*> files();
  Status write_events();
  Status end_told();

  std::filesystem::path path_;
  std::optional<std::filesystem::path> moved_to_;
  std::optional<EpochNumber> planned_;  ///< Of plan.json.
  observe::LineFile metrics_;
  observe::LineFile samples_;
  observe::LineFile bad_samples_;
  observe::LineFile iterations_;
  std::optional<observe::LineFile> events_;
  BegunEvents begun_;
  std::vector<std::string> untold_;      ///< Events for which their file could not be opened yet.
  std::vector<observe::RunEvent> over_;  ///< That `begun_` has not heard of.
  observe::LineFile::Mode events_mode_ = observe::LineFile::Mode::replace;
  std::set<std::string> bad_ids_;
  std::shared_ptr<observe::MetricsEndpoint> endpoint_;  ///< Null: nowhere.
};

}  // namespace troupe::engine
