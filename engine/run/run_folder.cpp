#include "engine/run/run_folder.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "engine/run/continued_run.hpp"
#include "engine/run/head_memory_file.hpp"
#include "engine/run/run_lock.hpp"
#include "runtime/files/file_reads.hpp"
#include "runtime/observe/plan_json.hpp"
#include "runtime/state/safetensors.hpp"

namespace troupe::engine {

namespace fs = std::filesystem;
using Mode = observe::LineFile::Mode;

namespace {

Error cannot(const std::string& what, const fs::path& path, const std::error_code& code) {
  return {Errc::io_failed, "cannot " + what + ": " + code.message(), path.string(),
          "choose another job.run_dir, or make room there"};
}

/// The folder itself where the path is a link to it, and without a slash at its end: what is
/// renamed must be the folder.
fs::path real_folder(const fs::path& path) {
  std::error_code code;
  const fs::path plain = path.filename().empty() ? path.parent_path() : path;
  if (!fs::is_symlink(plain, code)) return plain;
  const fs::path real = fs::weakly_canonical(plain, code);
  return code ? plain : real;
}

/// A folder in which a run has begun to write.
bool is_run(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / "resolved.toml", ignored) &&
         fs::is_regular_file(path / "metrics.jsonl", ignored);
}

/// A folder that holds nothing but what `create` makes before the first line of a run: it was ended
/// in between.
bool is_begun(const fs::path& path) {
  static const std::set<std::string> kFirst{"checkpoints",   "resolved.toml",
                                            "samples.jsonl", "bad_samples.jsonl",
                                            "metrics.jsonl", "iterations.jsonl"};
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(path, code)) {
    const bool fresh = entry.is_directory(code) ? fs::is_empty(entry.path(), code)
                                                : entry.path().filename() == "resolved.toml" ||
                                                      fs::file_size(entry.path(), code) == 0;
    if (!fresh || !kFirst.contains(entry.path().filename().string())) return false;
  }
  return !code;
}

/// Whether this process works in the folder or below it.
bool holds_working_folder(const fs::path& path) {
  std::error_code code;
  const fs::path own = fs::current_path(code), folder = fs::weakly_canonical(path, code);
  const auto [end, ignored] = std::mismatch(folder.begin(), folder.end(), own.begin(), own.end());
  return end == folder.end();
}

Error not_for_a_run(const std::string& what, const fs::path& path, const std::string& fix) {
  return {Errc::invalid_argument, what, "job.run_dir = " + path.string(), fix};
}

/// Where an older run was moved to, if there was one.
Result<std::optional<fs::path>> move_aside(const fs::path& path) {
  std::error_code code;
  if (!is_run(path)) return std::optional<fs::path>{};
  for (int number = 1;; ++number) {
    const fs::path target = path.string() + "." + std::to_string(number);
    if (fs::exists(target, code)) continue;
    fs::rename(path, target, code);
    if (code) return cannot("move the older run aside", path, code);
    return std::optional<fs::path>{target};
  }
}

}  // namespace

RunFolder::RunFolder(fs::path path, observe::LineFile metrics, observe::LineFile samples,
                     observe::LineFile bad_samples, observe::LineFile iterations)
    : path_(std::move(path)),
      metrics_(std::move(metrics)),
      samples_(std::move(samples)),
      bad_samples_(std::move(bad_samples)),
      iterations_(std::move(iterations)),
      begun_(path_) {}

Status RunFolder::check(const fs::path& given) {
  const files::ReadingFile waits(given, files::FileUse::write);
  const fs::path path = real_folder(given);
  std::error_code code;
  const auto kind = fs::status(path, code).type();
  if (kind == fs::file_type::not_found) return Done{};
  if (kind != fs::file_type::directory)
    return not_for_a_run("a run folder cannot be there: it is a file", path, "choose another one");
  if (is_run(path)) {
    if (!holds_working_folder(path)) return Done{};
    return not_for_a_run("the older run there would be moved aside, and this command works in it",
                         path, "start it from another folder, or choose another run folder");
  }
  const fs::directory_iterator first(path, code);
  if (code) return cannot("look into the run folder", path, code);
  if (first == fs::directory_iterator() || is_begun(path)) return Done{};
  return not_for_a_run("this folder holds something else than a run ('" +
                           first->path().filename().string() + "' is there)",
                       path, "choose a folder that is new, empty or an older run");
}

Result<RunFolder> RunFolder::create(const fs::path& given, const std::string& resolved_job) {
  const fs::path path = real_folder(given);
  if (auto fits = check(path); !fits.ok()) return std::move(fits).error();
  auto moved = move_aside(path);
  if (!moved.ok()) return std::move(moved).error();
  std::error_code code;
  fs::create_directories(path / "checkpoints", code);
  if (code) return cannot("make the run folder", path, code);
  if (auto written = observe::write_whole_file(path / "resolved.toml", resolved_job); !written.ok())
    return std::move(written).error();
  auto folder = open(path, Mode::replace);
  if (folder.ok()) folder.value().moved_to_ = std::move(moved).value();
  return folder;
}

Result<RunFolder> RunFolder::resume(const fs::path& given, const std::string& resolved_job,
                                    const JobProgress& progress, std::int64_t recorded_step,
                                    EpochNumber generation) {
  const fs::path path = real_folder(given);
  if (auto told = BegunEvents::tell(path); !told.ok()) return std::move(told).error();
  if (auto laid = lay_aside(path, progress, recorded_step, generation); !laid.ok())
    return std::move(laid).error();
  if (auto written = observe::write_whole_file(path / "resolved.toml", resolved_job); !written.ok())
    return std::move(written).error();
  auto folder = open(path, Mode::resume);
  if (!folder.ok()) return folder;
  for (const BadSampleNote& sample : progress.bad) folder.value().bad_ids_.insert(sample.id);
  folder.value().events_mode_ = Mode::resume;
  std::error_code code;
  if (fs::exists(path / "plan.json", code)) folder.value().planned_ = generation;
  return folder;
}

Result<RunFolder> RunFolder::open(const fs::path& path, Mode mode) {
  auto metrics = observe::LineFile::open(path / "metrics.jsonl", mode);
  if (!metrics.ok()) return std::move(metrics).error();
  auto samples = observe::LineFile::open(path / "samples.jsonl", mode);
  if (!samples.ok()) return std::move(samples).error();
  auto bad = observe::LineFile::open(path / "bad_samples.jsonl", mode);
  if (!bad.ok()) return std::move(bad).error();
  auto iterations = observe::LineFile::open(path / "iterations.jsonl", mode);
  if (!iterations.ok()) return std::move(iterations).error();
  return RunFolder(path, std::move(metrics).value(), std::move(samples).value(),
                   std::move(bad).value(), std::move(iterations).value());
}

std::filesystem::path RunFolder::older_plan(const fs::path& run, EpochNumber epoch_number) {
  return run / ("plan-" + std::to_string(epoch_number) + ".json");
}

// Files that are open need no such look: whoever took the folder over has put copies in their place
// (`renew_open_files`).
Status RunFolder::write_plan(const ParallelPlan& plan, EpochNumber epoch_number) {
  if (is_taken_over(path_)) return Done{};
  if (const auto before = std::exchange(planned_, epoch_number)) {
    std::error_code code;
    fs::rename(path_ / "plan.json", older_plan(path_, *before), code);
    if (code) return cannot("keep the plan of the layout before", path_ / "plan.json", code);
  }
  return observe::write_whole_file(path_ / "plan.json", observe::plan_json(plan, epoch_number));
}

Status RunFolder::write_dropped(const std::vector<DroppedSample>& dropped, std::int64_t epoch) {
  Status done = Done{};
  for (const DroppedSample& sample : dropped) {
    if (!bad_ids_.insert(sample.why.id).second) continue;
    auto written = bad_samples_.write(data::to_json_line(sample.why, epoch, sample.position));
    if (!written.ok()) done = std::move(written);
  }
  return done;
}

Status RunFolder::write_batch(const PlannedBatch& batch) {
  auto written = write_dropped(batch.dropped, batch.span.epoch);
  if (batch.iteration.samples.empty()) return written;
  auto planned = iterations_.write(observe::iteration_line(batch.iteration));
  return written.ok() ? planned : written;
}

Status RunFolder::write_memory(const HeadMemory& memory) {
  return is_taken_over(path_) ? Status(Done{}) : write_head_memory(path_, memory);
}

Status RunFolder::write_event(const observe::RunEvent& event) {
  if (is_taken_over(path_)) return Done{};
  if (event.is_under_way) return begun_.begin(event);
  if (endpoint_) endpoint_->show(event);
  untold_.push_back(observe::event_line(event));
  over_.push_back(event);
  auto written = write_events();
  auto ended = end_told();
  return written.ok() ? ended : written;
}

/// Not before the disk has their lines: should this process end until then, the next one tells.
Status RunFolder::end_told() {
  if (over_.empty() || !untold_.empty() || !events_ || events_->unwritten() > 0) return Done{};
  if (is_taken_over(path_)) return Done{};
  Status done = Done{};
  for (const observe::RunEvent& event : std::exchange(over_, {}))
    if (auto ended = begun_.ended(event); !ended.ok()) done = std::move(ended);
  return done;
}

Status RunFolder::write_events() {
  if (untold_.empty()) return Done{};
  if (!events_) {
    auto opened = observe::LineFile::open(path_ / "events.jsonl", events_mode_);
    if (!opened.ok()) return std::move(opened).error();
    events_ = std::move(opened).value();
  }
  Status done = Done{};
  for (const std::string& line : std::exchange(untold_, {}))
    if (auto written = events_->write(line); !written.ok()) done = std::move(written);
  return done;
}

Status RunFolder::write_step(const observe::StepMetrics& metrics,
                             const std::vector<std::string>& ids) {
  if (endpoint_) endpoint_->show(metrics);
  auto measured = metrics_.write(observe::metrics_line(metrics));
  auto trained = samples_.write(observe::samples_line(metrics.step, ids));
  return measured.ok() ? trained : measured;
}

Status RunFolder::sync() {
  Status done = write_events();
  for (observe::LineFile* file : files())
    if (auto flushed = file->sync(); !flushed.ok()) done = std::move(flushed);
  if (auto ended = end_told(); !ended.ok()) done = std::move(ended);
  return done;
}

std::size_t RunFolder::unwritten() {
  std::size_t bytes = 0;
  for (const observe::LineFile* file : files()) bytes += file->unwritten();
  for (const std::string& line : untold_) bytes += line.size() + 1;
  return bytes;
}

std::vector<observe::LineFile*> RunFolder::files() {
  std::vector<observe::LineFile*> all{&metrics_, &samples_, &bad_samples_, &iterations_};
  if (events_) all.push_back(&*events_);
  return all;
}

Status RunFolder::write_model(const std::map<std::string, at::Tensor>& parameters) {
  std::error_code code;
  fs::create_directories(path_ / "model", code);
  if (code) return cannot("make a folder", path_ / "model", code);
  return state::write_safetensors(path_ / "model" / "model.safetensors", parameters);
}

Status RunFolder::write_first_gradients(const std::map<std::string, at::Tensor>& gradients) {
  std::error_code code;
  fs::create_directories(path_ / "gradients", code);
  if (code) return cannot("make a folder", path_ / "gradients", code);
  return state::write_safetensors(path_ / "gradients" / "step-1.safetensors", gradients);
}

}  // namespace troupe::engine
