#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "app/data_commands.hpp"
#include "app/run_argument.hpp"
#include "app/terminal.hpp"
#include "engine/run/sample_audit.hpp"
#include "runtime/data/batches/epochs.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/observe/run_facts.hpp"
#include "runtime/vocabulary/printable.hpp"

namespace troupe::app {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kShown = 10;
constexpr std::int64_t kNever = std::int64_t{1} << 31;  // An epoch; its batches can be counted.

/// A line of a file of the run.
struct Line {
  Json json;
  std::string where;  ///< `samples.jsonl:3`, with its folder.
};

Error wrong(const Line& line, const std::string& expected) {
  return {Errc::bad_data, "expected " + expected, line.where,
          "remove that line, or take the file as `troupe train` wrote it"};
}

/// The lines of a file, none where it is not there. One that a killed run cut off at the file's end
/// does not count. Errors: bad_data: another line is no object.
Result<std::vector<Line>> lines_of(const fs::path& path) {
  std::vector<Line> lines;
  files::ReadStream file(path);
  std::int64_t number = 0;
  for (std::string text; std::getline(file, text);) {
    const bool is_whole = !file.eof();
    Line line{Json::parse(text, nullptr, false), path.string() + ":" + std::to_string(++number)};
    if (text.empty() || (line.json.is_discarded() && !is_whole)) continue;
    if (!line.json.is_object()) return wrong(line, "an object on each line");
    lines.push_back(std::move(line));
  }
  return lines;
}

/// A whole number from `least` to `kNever`; `otherwise` where the line has none.
Result<std::int64_t> number_of(const Line& line, const char* key, std::int64_t least,
                               std::int64_t otherwise) {
  const auto value = line.json.find(key);
  if (value == line.json.end() && otherwise >= least) return otherwise;
  // A larger one is a negative one to those who read it as signed.
  const bool fits = value != line.json.end() && value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<std::uint64_t>() <= kNever) &&
                    value->get<std::int64_t>() >= least;
  if (!fits)
    return wrong(line, std::string(key) + ", a whole number from " + std::to_string(least) +
                           " to " + std::to_string(kNever));
  return value->get<std::int64_t>();
}

Result<std::vector<std::string>> ids_of(const Line& line) {
  std::vector<std::string> ids;
  const auto list = line.json.find("ids");
  if (list == line.json.end()) return ids;
  const bool fits =
      list->is_array() && std::ranges::all_of(*list, [](const Json& id) { return id.is_string(); });
  if (!fits) return wrong(line, "ids, a list of texts");
  return list->get<std::vector<std::string>>();
}

/// What a run wrote about its samples.
struct Record {
  std::map<std::int64_t, std::vector<std::string>> trained;  ///< By step; of a step that stands
                                                             ///< twice the last one.
  std::set<std::string> bad;
  std::set<std::int64_t> generations;
};

Status read_trained(const fs::path& path, Record& record) {
  const auto lines = lines_of(path);
  if (!lines.ok()) return lines.error();
  for (const Line& line : lines.value()) {
    const auto step = number_of(line, "step", 1, /*otherwise=*/0);
    if (!step.ok()) return step.error();
    auto ids = ids_of(line);
    if (!ids.ok()) return std::move(ids).error();
    record.trained[step.value()] = std::move(ids).value();
  }
  return Done{};
}

Status read_bad(const fs::path& path, Record& record) {
  const auto lines = lines_of(path);
  if (!lines.ok()) return lines.error();
  for (const Line& line : lines.value()) {
    const auto id = line.json.find("id");
    if (id == line.json.end() || !id->is_string()) return wrong(line, "id, a text");
    record.bad.insert(id->get<std::string>());
  }
  return Done{};
}

Status read_generations(const fs::path& path, Record& record) {
  const auto lines = lines_of(path);
  if (!lines.ok()) return lines.error();
  for (const Line& line : lines.value()) {
    const auto generation = number_of(line, "generation", 0, /*otherwise=*/0);
    if (!generation.ok()) return generation.error();
    record.generations.insert(generation.value());
  }
  return Done{};
}

/// Errors: bad_data: a line is not as `train` writes it.
Result<Record> record_of(const fs::path& run) {
  Record record;
  if (auto read = read_trained(run / "samples.jsonl", record); !read.ok()) return read.error();
  if (auto read = read_bad(run / "bad_samples.jsonl", record); !read.ok()) return read.error();
  if (auto read = read_generations(run / "metrics.jsonl", record); !read.ok()) return read.error();
  return record;
}

/// What epochs of the run took, as records of the data set that is there now: since it was
/// trained, sources may have grown.
Result<data::Epochs> epochs_of(const fs::path& run, const data::Dataset& dataset) {
  const auto facts = observe::read_run_facts(run);
  if (!facts.ok() || facts.value().epochs.empty()) return data::Epochs(dataset.size());
  const data::Epochs epochs(facts.value().epochs);
  const auto& had = epochs.stretches().back().records;
  const auto has = dataset.source_counts();
  bool fits = had.size() <= has.size() && epochs.newest_count() <= dataset.size();
  for (std::size_t s = 0; fits && had.size() > 1 && s < had.size(); ++s) fits = had[s] <= has[s];
  if (!fits)
    return Error{Errc::bad_data,
                 "the run trained " + std::to_string(epochs.newest_count()) +
                     " records, and its sources do not have all of them any more",
                 "data.sources", "give it the data that it trained"};
  return had == has ? epochs : epochs.grown(kNever, has);
}

void print(const char* what, const std::vector<std::string>& ids) {
  if (ids.empty()) return;
  std::cout << ids.size() << " " << what << ":";
  for (std::size_t i = 0; i < std::min(ids.size(), kShown); ++i)
    std::cout << " " << printable(ids[i]);
  std::cout << (ids.size() > kShown ? " ...\n" : "\n");
}

}  // namespace

int audit_data(const AuditOptions& options) {
  const fs::path run = options.run;
  if (auto there = check_run_folder(run); !there.ok()) return report(there.error());
  JobArguments arguments;
  arguments.file = (run / "resolved.toml").string();
  // No door is opened here, so nobody needs the key of the one that the run had.
  arguments.overrides = {"cluster.listen=\"127.0.0.1:0\""};
  const auto opened = open_data(arguments);
  if (!opened.ok()) return report(opened.error());
  const auto& setup = opened.value().setup;
  auto record = record_of(run);
  if (!record.ok()) return report(record.error());
  const auto& [trained, bad, generations] = record.value();
  const auto epochs = epochs_of(run, *opened.value().dataset);
  if (!epochs.ok()) return report(epochs.error());
  const auto audit = engine::audit_samples(trained, bad, *opened.value().dataset, setup.data,
                                           epochs.value(), setup.job.train.global_batch_size);
  if (options.json) {
    const nlohmann::ordered_json json{{"trained_twice", audit.trained_twice},
                                      {"never", audit.never},
                                      {"missing_steps", audit.missing_steps},
                                      {"steps", trained.size()},
                                      {"generations", generations.size()}};
    std::cout << json.dump(2) << "\n";
  } else {
    print("samples were trained more often than their epochs allow", audit.trained_twice);
    print("samples of finished steps were neither trained nor bad", audit.never);
    std::vector<std::string> missing;
    for (const std::int64_t step : audit.missing_steps) missing.push_back(std::to_string(step));
    print("steps have no line in samples.jsonl, and what they trained is not known", missing);
    const auto count = [](const auto& set) { return static_cast<std::int64_t>(set.size()); };
    std::cout << counted(count(trained), "step") + " in " +
                     counted(count(generations), "generation") + ": "
              << (audit.is_clean() ? "every sample exactly once\n" : "not every sample once\n");
  }
  return audit.is_clean() ? kDone : kFailed;
}

}  // namespace troupe::app
