#include "runtime/observe/run_facts.hpp"

#include <array>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/files/read_stream.hpp"
#include "runtime/observe/line_file.hpp"

namespace troupe::observe {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStamp = "%Y-%m-%dT%H:%M:%SZ";

std::string formatted(std::int64_t time_s, const char* format) {
  const std::time_t time = time_s;
  std::tm parts{};
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), format, gmtime_r(&time, &parts));
  return text.data();
}

// 0 where the text is no such time.
std::int64_t parsed_time(const std::string& text) {
  std::tm parts{};
  const char* end = ::strptime(text.c_str(), kStamp, &parts);
  return end != nullptr && *end == '\0' ? ::timegm(&parts) : 0;
}

// A member of the wrong type counts as missing: the report of a run is no place to fail for it.
template <class Value>
void take(const Json& json, const char* key, Value& value) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  if constexpr (std::is_same_v<Value, std::string>) {
    if (found->is_string()) value = found->template get<std::string>();
  } else {
    if (found->is_number_integer()) value = found->template get<Value>();
  }
}

// As `data::Epochs` has them; empty where anything is odd.
std::vector<SourceCounts> take_epochs(const Json& json) {
  std::vector<SourceCounts> epochs;
  const auto found = json.find("epochs");
  if (found == json.end() || !found->is_array()) return epochs;
  for (const Json& entry : *found) {
    SourceCounts stretch{-1, {}};
    if (!entry.is_object() || !entry.contains("records") || !entry["records"].is_array()) return {};
    take(entry, "first", stretch.first_epoch);
    for (const Json& records : entry["records"]) {
      if (!records.is_number_integer() || records.get<std::int64_t>() < 0) return {};
      stretch.records.push_back(records.get<std::int64_t>());
    }
    const bool follows =
        epochs.empty() ? stretch.first_epoch == 0 : stretch.first_epoch > epochs.back().first_epoch;
    if (!follows) return {};
    epochs.push_back(std::move(stretch));
  }
  return epochs;
}

std::int64_t take_time(const Json& json, const char* key) {
  std::string text;
  take(json, key, text);
  return parsed_time(text);
}

}  // namespace

std::string run_facts_json(const RunFacts& facts) {
  Json json{{"id", facts.id},
            {"incarnation", facts.incarnation},
            {"job", facts.job},
            {"command", facts.command},
            {"version", facts.version},
            {"libraries", facts.libraries},
            {"host", facts.host},
            {"processor", facts.processor},
            {"cores", facts.cores},
            {"nodes", facts.nodes},
            {"local_nodes", facts.local_nodes},
            {"schedule", facts.schedule},
            {"policy", facts.policy},
            {"dtype", facts.dtype},
            {"steps", facts.steps},
            {"global_batch_size", facts.batch},
            {"started", formatted(facts.started_s, kStamp)}};
  for (const SourceCounts& stretch : facts.epochs)
    json["epochs"].push_back({{"first", stretch.first_epoch}, {"records", stretch.records}});
  if (facts.end) {
    json["ended"] = formatted(facts.end->time_s, kStamp);
    json["exit_code"] = facts.end->exit_code;
    json["message"] = facts.end->message;
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<RunFacts> parse_run_facts(const std::string& text) {
  const auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return Error{Errc::bad_data, "expected a JSON object", "run.json",
                 "take the run folder as `troupe train` left it"};
  RunFacts facts;
  take(json, "id", facts.id);
  take(json, "incarnation", facts.incarnation);
  take(json, "job", facts.job);
  take(json, "command", facts.command);
  take(json, "version", facts.version);
  take(json, "libraries", facts.libraries);
  take(json, "host", facts.host);
  take(json, "processor", facts.processor);
  take(json, "cores", facts.cores);
  take(json, "nodes", facts.nodes);
  take(json, "local_nodes", facts.local_nodes);
  take(json, "schedule", facts.schedule);
  take(json, "policy", facts.policy);
  take(json, "dtype", facts.dtype);
  take(json, "steps", facts.steps);
  take(json, "global_batch_size", facts.batch);
  facts.epochs = take_epochs(json);
  facts.started_s = take_time(json, "started");
  if (json.contains("exit_code")) {
    RunEnd end;
    end.time_s = take_time(json, "ended");
    take(json, "exit_code", end.exit_code);
    take(json, "message", end.message);
    facts.end = end;
  }
  return facts;
}

Result<RunFacts> read_run_facts(const std::filesystem::path& run) {
  files::ReadStream file(run / "run.json");
  if (!file) return Error{Errc::not_found, "no such file", (run / "run.json").string(), ""};
  return parse_run_facts({std::istreambuf_iterator<char>(file), {}});
}

Status write_run_facts(const std::filesystem::path& run, const RunFacts& facts) {
  return write_whole_file(run / "run.json", run_facts_json(facts));
}

std::string minute_text(std::int64_t time_s) { return formatted(time_s, "%Y-%m-%d %H:%M UTC"); }

std::string duration_text(std::int64_t seconds) {
  const auto of = [](const char* format, std::int64_t a, std::int64_t b) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), format, static_cast<long long>(a),
                  static_cast<long long>(b));
    return std::string(text.data());
  };
  constexpr std::int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  if (seconds < 2 * kMinute) return of("%lld s", seconds, 0);
  if (seconds < kHour) return of("%lld min", seconds / kMinute, 0);
  if (seconds < kDay) return of("%lld h %02lld min", seconds / kHour, seconds % kHour / kMinute);
  return of("%lld d %lld h", seconds / kDay, seconds % kDay / kHour);
}

}  // namespace troupe::observe
