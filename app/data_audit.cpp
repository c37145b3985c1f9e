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

namespace troupe::app {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kShown = 10;

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

void print(const char* what, const std::vector<std::string>& ids) {
  if (ids.empty()) return;
  std::cout << ids.size() << " " << what << ":";
  for (std::size_t i = 0; i < std::min(ids.size(), kShown); ++i) std::cout << " " << ids[i];
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
  const auto audit = engine::audit_samples(trained, bad, *opened.value().dataset, setup.data,
                                           setup.job.train.global_batch_size);
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
