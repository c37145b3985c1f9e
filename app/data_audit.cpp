#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "app/data_commands.hpp"
#include "app/run_argument.hpp"
#include "app/terminal.hpp"
#include "engine/sample_audit.hpp"
#include "runtime/data/epochs.hpp"
#include "runtime/observe/run_facts.hpp"
#include "runtime/vocabulary/printable.hpp"

namespace troupe::app {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kShown = 10;
constexpr std::int64_t kNever = std::int64_t{1} << 31;  // An epoch; its batches can be counted.

/// Whole lines of a file of the run that are objects.
std::vector<Json> lines_of(const fs::path& path) {
  std::vector<Json> lines;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);)
    if (Json json = Json::parse(line, nullptr, false); json.is_object())
      lines.push_back(std::move(json));
  return lines;
}

/// A step that stands twice: the last one counts.
std::map<std::int64_t, std::vector<std::string>> trained_in(const fs::path& run) {
  std::map<std::int64_t, std::vector<std::string>> steps;
  for (const Json& line : lines_of(run / "samples.jsonl"))
    steps[line.value("step", std::int64_t{0})] = line.value("ids", std::vector<std::string>{});
  return steps;
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
  const auto opened = open_data(arguments);
  if (!opened.ok()) return report(opened.error());
  const auto& setup = opened.value().setup;
  std::set<std::string> bad;
  for (const Json& line : lines_of(run / "bad_samples.jsonl")) bad.insert(line.value("id", ""));
  std::set<std::int64_t> generations;
  for (const Json& line : lines_of(run / "metrics.jsonl"))
    generations.insert(line.value("generation", std::int64_t{0}));
  const auto trained = trained_in(run);
  const auto epochs = epochs_of(run, *opened.value().dataset);
  if (!epochs.ok()) return report(epochs.error());
  const auto audit = engine::audit_samples(trained, bad, *opened.value().dataset, setup.data,
                                           epochs.value(), setup.job.train.global_batch_size);
  if (options.json) {
    const nlohmann::ordered_json json{{"trained_twice", audit.trained_twice},
                                      {"never", audit.never},
                                      {"steps", trained.size()},
                                      {"generations", generations.size()}};
    std::cout << json.dump(2) << "\n";
  } else {
    print("samples were trained more often than their epochs allow", audit.trained_twice);
    print("samples of finished steps were neither trained nor bad", audit.never);
    const auto count = [](const auto& set) { return static_cast<std::int64_t>(set.size()); };
    std::cout << counted(count(trained), "step") + " in " +
                     counted(count(generations), "generation") + ": "
              << (audit.is_clean() ? "every sample exactly once\n" : "not every sample once\n");
  }
  return audit.is_clean() ? kDone : kFailed;
}

}  // namespace troupe::app
