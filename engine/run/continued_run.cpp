#include "engine/run/continued_run.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <ios>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "engine/run/run_folder.hpp"
#include "runtime/files/file_reads.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/observe/line_file.hpp"
#include "runtime/observe/plan_json.hpp"

namespace troupe::engine {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;
using Keep = std::function<bool(const Json& line)>;

/// A step that is planned anew after a loss has its line behind those of steps that were planned
/// ahead of it: of two at most, and with a wide margin.
constexpr std::int64_t kStepsAhead = 16;

/// Of a file's end; four times as much where that is too little.
constexpr std::int64_t kFirstRead = 1 << 18;

Error failed(const std::string& doing, const fs::path& path, const std::string& why) {
  return {Errc::io_failed, doing + " failed: " + why, path.string(),
          "check the permissions of the run folder and its disk"};
}

std::string numbered(const fs::path& file, EpochNumber generation) {
  return file.stem().string() + "-" + std::to_string(generation) + file.extension().string();
}

Status move_aside(const fs::path& from, const fs::path& to) {
  std::error_code code;
  if (!fs::exists(from, code)) return Done{};
  fs::create_directories(to.parent_path(), code);
  fs::remove_all(to, code);
  fs::rename(from, to, code);
  if (code) return failed("moving it aside", from, code.message());
  return Done{};
}

bool is_kept(const std::string& line, const Keep& keep) {
  const Json json = Json::parse(line, nullptr, false);
  return json.is_object() && keep(json);
}

std::int64_t step_of(const Json& line) {
  const auto found = line.find("step");
  return found != line.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

/// The end of a file, from where a line begins.
struct FileEnd {
  std::int64_t begin = 0;
  std::string text;
};

/// Takes the line that begins at `at`, as `std::getline` does.
bool next_line(const std::string& text, std::size_t& at, std::string& line) {
  if (at >= text.size()) return false;
  const auto end = std::min(text.find('\n', at), text.size());
  line = text.substr(at, end - at);
  at = end + 1;
  return true;
}

std::optional<FileEnd> all_of(const fs::path& path) {
  auto text = files::read_whole(path);
  if (!text) return std::nullopt;
  return FileEnd{0, *std::move(text)};
}

/// Whether no step before these lines is beyond `last_step`, nor beyond all of theirs. None: lines
/// that are no objects or do not ascend tell nothing of those before.
std::optional<bool> tells_enough(const std::string& text, std::int64_t last_step) {
  std::int64_t lowest = std::numeric_limits<std::int64_t>::max(), newest = 0;
  const std::size_t whole = text.rfind('\n') + 1;  // What is cut behind it goes.
  std::string line;
  for (std::size_t at = 0; at < whole && next_line(text, at, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || step_of(json) < newest - kStepsAhead) return std::nullopt;
    lowest = std::min(lowest, step_of(json));
    newest = std::max(newest, step_of(json));
  }
  return lowest <= std::min(newest, last_step) - kStepsAhead;
}

/// The end of a file whose lines ascend by step, so that a long run costs no more than a short one:
/// no step before it is beyond `last_step`, nor is the newest one there. All of a file that does
/// not say so at its end. None: it cannot be opened.
std::optional<FileEnd> end_of_steps(const fs::path& path, std::int64_t last_step) {
  {
    files::ReadStream file(path);
    if (!file) return std::nullopt;
    file.seekg(0, std::ios::end);
    const std::int64_t size = file.tellg();
    for (std::int64_t count = kFirstRead; count < size; count *= 4) {
      FileEnd end{size - count, std::string(static_cast<std::size_t>(count), '\0')};
      file.seekg(end.begin);
      if (!file.read(end.text.data(), count)) break;
      const std::size_t cut = end.text.find('\n') + 1;
      if (cut == 0) continue;
      end.begin += static_cast<std::int64_t>(cut);
      end.text.erase(0, cut);
      const auto enough = tells_enough(end.text, last_step);
      if (!enough) break;
      if (*enough) return end;
    }
  }
  return all_of(path);
}

Status cut_off(const fs::path& path, std::int64_t size) {
  const files::ReadingFile waits(path, files::FileUse::write);
  std::error_code code;
  fs::resize_file(path, static_cast<std::uintmax_t>(size), code);
  if (code) return failed("cutting its end off", path, code.message());
  return Done{};
}

/// The lines that stay replace the file at once, after the others are safe; most often these are
/// the last ones, and the file is cut off. All before `end` stays.
Status split(const fs::path& run, const std::string& name, EpochNumber generation,
             const FileEnd& end, const Keep& keep) {
  std::string stays, goes, line;
  bool is_behind = true;
  for (std::size_t at = 0; next_line(end.text, at, line);) {
    const bool kept = is_kept(line, keep);
    if (kept && !goes.empty()) is_behind = false;
    (kept ? stays : goes) += line + "\n";
  }
  if (goes.empty()) return Done{};
  const fs::path aside = run / "superseded" / numbered(name, generation);
  const auto before = files::read_whole(aside);
  std::error_code code;
  fs::create_directories(aside.parent_path(), code);
  if (auto put = observe::write_whole_file(aside, before.value_or("") + goes); !put.ok())
    return put;
  if (is_behind) return cut_off(run / name, end.begin + static_cast<std::int64_t>(stays.size()));
  const auto all = files::read_whole(run / name);
  if (!all) return failed("reading it", run / name, "it cannot be opened any more");
  return observe::write_whole_file(run / name,
                                   all->substr(0, static_cast<std::size_t>(end.begin)) + stays);
}

}  // namespace

EpochNumber newest_generation(const fs::path& run) {
  const auto plan = observe::parse_plan(files::read_whole(run / "plan.json").value_or(""));
  return plan.ok() ? plan.value().epoch_number : 0;
}

std::int64_t last_recorded_step(const fs::path& run) {
  const auto last_in = [&](const char* name) {
    const auto end = end_of_steps(run / name, std::numeric_limits<std::int64_t>::max());
    std::int64_t last = 0;
    std::string line;
    for (std::size_t at = 0; end && next_line(end->text, at, line);) {
      const Json json = Json::parse(line, nullptr, false);
      if (json.is_object()) last = std::max(last, step_of(json));
    }
    return last;
  };
  // A head that was killed may have written one of the two.
  return std::min(last_in("metrics.jsonl"), last_in("samples.jsonl"));
}

Status renew_open_files(const fs::path& run) {
  for (const char* name :
       {"metrics.jsonl", "samples.jsonl", "iterations.jsonl", "events.jsonl", "bad_samples.jsonl",
        "trace.json", "predicted.json", RunFolder::kLogFile})
    if (auto put = observe::renew_file(run / name); !put.ok()) return put;
  return Done{};
}

Status lay_aside(const fs::path& run, const JobProgress& progress, std::int64_t recorded_step,
                 EpochNumber generation) {
  const Keep is_recorded = [&](const Json& line) { return step_of(line) <= recorded_step; };
  const Keep is_step = [&](const Json& line) { return step_of(line) <= progress.step; };
  // An event stands before its step.
  const Keep is_event = [&](const Json& line) { return step_of(line) <= progress.step + 1; };
  std::set<std::string> bad;
  for (const BadSampleNote& sample : progress.bad) bad.insert(sample.id);
  const Keep is_bad = [&](const Json& line) {
    const auto id = line.find("id");
    return id != line.end() && id->is_string() && bad.contains(id->get<std::string>());
  };
  // Of the two others there are few lines; an event that a killed head left is told behind later
  // ones.
  using File = std::tuple<const char*, const Keep*, std::optional<std::int64_t>>;
  for (const auto& [name, keep, last_step] : {File{"metrics.jsonl", &is_recorded, recorded_step},
                                              File{"samples.jsonl", &is_recorded, recorded_step},
                                              File{"iterations.jsonl", &is_step, progress.step},
                                              File{"events.jsonl", &is_event, std::nullopt},
                                              File{"bad_samples.jsonl", &is_bad, std::nullopt}}) {
    const auto end = last_step ? end_of_steps(run / name, *last_step) : all_of(run / name);
    if (!end) continue;
    if (auto done = split(run, name, generation, *end, *keep); !done.ok()) return done;
  }
  for (const char* name : {"trace.json", "predicted.json"})
    if (auto moved = move_aside(run / name, run / numbered(name, generation)); !moved.ok())
      return moved;
  // Without it the folder is no run: it stays until the next one takes its place.
  std::error_code code;
  const fs::path resolved = "resolved.toml";
  fs::copy_file(run / resolved, run / numbered(resolved, generation),
                fs::copy_options::overwrite_existing, code);
  if (code && fs::exists(run / resolved))
    return failed("copying it", run / resolved, code.message());
  return move_aside(run / "model", run / "superseded" / ("model-" + std::to_string(generation)));
}

}  // namespace troupe::engine
