#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "runtime/files/read_stream.hpp"
#include "runtime/observe/report.hpp"

namespace troupe::observe {

namespace {

using Json = nlohmann::json;

// Steps in a row that left the parameters alone for one reason are one event.
void add_skipped(const MetricsTable& metrics, std::vector<ReportedEvent>& events) {
  const auto& skipped = metrics.skipped;
  for (std::size_t i = 0; i < skipped.size();) {
    const auto& [first, why] = skipped[i];
    std::size_t count = 1;
    while (i + count < skipped.size() && skipped[i + count].second == why &&
           skipped[i + count].first == first + static_cast<std::int64_t>(count))
      ++count;
    events.push_back(
        {first, (count == 1 ? "The step" : std::to_string(count) + " steps from this one on") +
                    std::string(" left the parameters alone: ") + why + "."});
    i += count;
  }
}

bool has_event(const std::vector<ReportedEvent>& events, std::int64_t step) {
  return std::any_of(events.begin(), events.end(),
                     [step](const ReportedEvent& event) { return event.step == step; });
}

/// Where `told` has an event at the same step, that says more.
void add_changes(const MetricsTable& metrics, const std::string& key, const std::string& what,
                 const std::vector<ReportedEvent>& told, std::vector<ReportedEvent>& events) {
  const auto* column = metrics.find(key);
  if (column == nullptr) return;
  double before = NAN;
  for (std::size_t i = 0; i < column->size(); ++i) {
    const double now = (*column)[i];
    if (!std::isfinite(now)) continue;
    const bool is_told = has_event(told, std::llround(metrics.steps[i]));
    if (std::isfinite(before) && now != before && !is_told)
      events.push_back({std::llround(metrics.steps[i]),
                        what + " went from " + std::to_string(std::llround(before)) + " to " +
                            std::to_string(std::llround(now)) + "."});
    before = now;
  }
}

void add_repeats(const MetricsTable& metrics, std::vector<ReportedEvent>& events) {
  for (std::size_t i = 1; i < metrics.steps.size(); ++i)
    if (metrics.steps[i] <= metrics.steps[i - 1])
      events.push_back({std::llround(metrics.steps[i]),
                        "The run went back to this step after step " +
                            std::to_string(std::llround(metrics.steps[i - 1])) + "."});
}

std::string words_of_kind(const std::string& kind) {
  if (kind == "lost") return "Lost";
  if (kind == "began-without") return "Began without";
  if (kind == "joined") return "Joined";
  if (kind == "drained") return "Drained";
  if (kind == "slow") return "Slowed down";
  if (kind == "fast-again") return "As fast as before";
  if (kind == "layout") return "Another layout";
  if (kind == "checkpoint") return "Checkpoint written";
  if (kind == "incomplete") return "Only a part of the state was saved";
  if (kind == "resumed") return "Resumed";
  if (kind == "head-lost") return "The head was lost";
  return kind;
}

// Lines that are cut or say nothing are left out: the run's metrics say the same, only later.
void add_recorded(const std::filesystem::path& path, std::vector<ReportedEvent>& events) {
  files::ReadStream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("kind") || !json["kind"].is_string()) continue;
    const auto text = [&](const char* key) {
      return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
    };
    const auto number = [&](const char* key) {
      return json.contains(key) && json[key].is_number() ? json[key].get<double>() : 0;
    };
    ReportedEvent event{0, {}, json["kind"], text("time")};
    for (const auto* phase : {"detect_ms", "waited_ms", "decide_ms", "connect_ms", "copy_ms",
                              "rebuild_ms", "decode_ms", "replay_ms"})
      event.took_ms += number(phase);
    event.bytes = number("copy_bytes");
    std::string words = words_of_kind(json["kind"]);
    if (json.contains("nodes") && json["nodes"].is_array() && !json["nodes"].empty()) {
      event.details = "nodes";
      for (const auto& node : json["nodes"])  // Of a deep list the library writes by recursion.
        if (node.is_number()) event.details += " " + node.dump();
      words += (words == "Lost" || words == "Joined" || words == "Drained" ? ": " : ", ") +
               event.details;
    }
    if (const std::string why = text("why"); !why.empty()) {
      event.details += (event.details.empty() ? "" : ": ") + why;
      words += ": " + why;
    }
    if (json.contains("step") && json["step"].is_number_integer()) event.step = json["step"];
    if (json.contains("generation") && json["generation"].is_number_unsigned())
      event.generation = json["generation"];
    event.words = words + ".";
    events.push_back(std::move(event));
  }
}

}  // namespace

std::vector<ReportedEvent> read_events(const std::filesystem::path& folder,
                                       const MetricsTable& metrics) {
  std::vector<ReportedEvent> told;
  add_recorded(folder / "events.jsonl", told);
  std::vector<ReportedEvent> events = told;
  add_skipped(metrics, events);
  add_changes(metrics, "nodes", "The number of nodes", {}, events);
  add_changes(metrics, "epoch_number", "The configuration", told, events);
  add_repeats(metrics, events);
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  return events;
}

}  // namespace troupe::observe
