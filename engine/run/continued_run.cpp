#include "engine/run/continued_run.hpp"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "engine/run/run_folder.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/observe/line_file.hpp"
#include "runtime/observe/plan_json.hpp"

namespace troupe::engine {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;
using Keep = std::function<bool(const Json& line)>;

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

/// The lines that stay replace the file at once, after the others are safe.
Status split(const fs::path& run, const std::string& name, EpochNumber generation,
             const Keep& keep) {
  std::string stays, goes;
  {
    files::ReadStream file(run / name);
    if (!file) return Done{};
    for (std::string line; std::getline(file, line);)
      (is_kept(line, keep) ? stays : goes) += line + "\n";
  }
  if (goes.empty()) return Done{};
  const fs::path aside = run / "superseded" / numbered(name, generation);
  const auto before = files::read_whole(aside);
  std::error_code code;
  fs::create_directories(aside.parent_path(), code);
  if (auto put = observe::write_whole_file(aside, before.value_or("") + goes); !put.ok())
    return put;
  return observe::write_whole_file(run / name, stays);
}

}  // namespace

EpochNumber newest_generation(const fs::path& run) {
  const auto plan = observe::parse_plan(files::read_whole(run / "plan.json").value_or(""));
  return plan.ok() ? plan.value().epoch_number : 0;
}

std::int64_t last_recorded_step(const fs::path& run) {
  const auto last_in = [&](const char* name) {
    files::ReadStream file(run / name);
    std::int64_t last = 0;
    for (std::string line; std::getline(file, line);) {
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
    if (const auto text = files::read_whole(run / name))
      if (auto put = observe::write_whole_file(run / name, *text); !put.ok()) return put;
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
  for (const auto& [name, keep] :
       {std::pair<const char*, const Keep*>{"metrics.jsonl", &is_recorded},
        {"samples.jsonl", &is_recorded},
        {"iterations.jsonl", &is_step},
        {"events.jsonl", &is_event},
        {"bad_samples.jsonl", &is_bad}})
    if (auto done = split(run, name, generation, *keep); !done.ok()) return done;
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
