#include "runtime/observe/recorded_trace.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/files/look_up.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/vocabulary/library_words.hpp"

namespace troupe::observe {

namespace {

using Json = nlohmann::json;

// An entry of the file: its line without the comma, and what it says.
struct Entry {
  const std::string& line;
  const Json& json;

  std::string phase() const { return json.at("ph").get<std::string>(); }
  std::int64_t step() const { return json.at("args").at("step").get<std::int64_t>(); }
};

Error bad_line(const std::filesystem::path& path, std::int64_t number, const std::string& why) {
  return {Errc::bad_data, "not a trace that Troupe wrote: " + why,
          path.string() + ":" + std::to_string(number),
          "take the trace.json of a run folder as `troupe train` left it"};
}

// Calls `visit` for every entry, in order.
Status for_each_entry(const std::filesystem::path& path,
                      const std::function<void(const Entry&)>& visit) {
  if (!files::is_file(path))
    return Error{Errc::not_found, "this run has no trace", path.string(),
                 "give a run folder of `troupe train`"};
  files::ReadStream file(path);
  if (!file) return Error{Errc::io_failed, "cannot be read", path.string(), ""};
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    const bool cut = file.eof();  // No newline at its end.
    if (number == 1 && line == "[") continue;
    if (line.empty()) continue;
    // A run that goes on writes over the bracket: what is read behind it now begins inside a line.
    if (line.front() == ']') break;
    if (line.back() == ',') line.pop_back();
    const auto json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded() && cut) break;
    if (number == 1 || !json.is_object())
      return bad_line(path, number, "expected a list with one object per line");
    try {
      visit({line, json});
    } catch (const Json::exception& error) {
      return bad_line(path, number, without_code(error.what()));
    }
  }
  return Done{};
}

Error no_such_step(const std::filesystem::path& path, std::int64_t step,
                   const std::vector<std::int64_t>& steps) {
  std::string has = "it has none";
  if (steps.size() == 1) has = "it has step " + std::to_string(steps.front());
  if (steps.size() > 1) {
    const auto range = std::to_string(steps.front()) + " to " + std::to_string(steps.back());
    const bool whole = steps.back() - steps.front() + 1 == static_cast<std::int64_t>(steps.size());
    has = whole ? "it has steps " + range
                : "it has " + std::to_string(steps.size()) + " steps from " + range;
    // A long run's trace has gaps: the neighbours are what one would look at instead.
    const auto after = std::upper_bound(steps.begin(), steps.end(), step);
    if (after != steps.begin() && after != steps.end())
      has += ", the nearest are " + std::to_string(*std::prev(after)) + " and " +
             std::to_string(*after);
  }
  return {Errc::not_found, "step " + std::to_string(step) + " is not in the trace: " + has,
          path.string(), "choose one of those with --step"};
}

ActionKind read_kind(const Json& args) {
  static const auto kinds = [] {
    std::map<std::string, ActionKind, std::less<>> by_name;
    for (int kind = 0; kind <= static_cast<int>(ActionKind::optimizer_step); ++kind)
      by_name.emplace(to_string(static_cast<ActionKind>(kind)), static_cast<ActionKind>(kind));
    return by_name;
  }();
  const auto name = args.at("kind").get<std::string>();
  const auto found = kinds.find(name);
  if (found == kinds.end())
    throw Json::other_error::create(501, "no action is called '" + name + "'", &args);
  return found->second;
}

DeviceSlot slot_of(const Json& entry) {
  return {NodeId{entry.at("pid").get<std::int32_t>() - 1}, entry.at("tid").get<std::int32_t>() - 1};
}

// What happened to the whole job before this step.
bool is_mark_of(const Entry& entry, std::int64_t step) {
  return entry.phase() == "i" && entry.json.contains("args") && entry.step() == step;
}

// The entries of one step as a timeline in the making.
class StepReader {
 public:
  explicit StepReader(std::int64_t step) : step_(step) {}

  void add(const Entry& entry) {
    const auto phase = entry.phase();
    if (phase == "M" && entry.json.at("name") == "thread_name") slots_.insert(slot_of(entry.json));
    if (phase == "X") {
      steps_.insert(entry.step());
      taken_ = entry.step() == step_;
      if (taken_) add_slice(entry.json);
    }
    if (is_mark_of(entry, step_)) add_mark(entry.json);
    // Arrows follow the slice that they begin or end in.
    if (!taken_ || (phase != "s" && phase != "f")) return;
    const std::pair<std::int32_t, std::int32_t> open{-1, -1};
    auto& ends = arrows_.try_emplace(entry.json.at("id").get<std::uint64_t>(), open).first->second;
    (phase == "s" ? ends.first : ends.second) =
        static_cast<std::int32_t>(timeline_.intervals.size()) - 1;
  }

  std::vector<std::int64_t> steps() const { return {steps_.begin(), steps_.end()}; }
  bool found() const { return steps_.contains(step_); }

  Timeline take() {
    drop_older_attempts();
    for (const auto& slot : slots_) timeline_.lanes.push_back({slot, ""});
    double zero = timeline_.intervals.empty() ? 0 : timeline_.intervals.front().begin_ms;
    for (const auto& interval : timeline_.intervals) zero = std::min(zero, interval.begin_ms);
    for (std::size_t i = 0; i < timeline_.intervals.size(); ++i) {
      auto& interval = timeline_.intervals[i];
      interval.begin_ms -= zero;
      interval.end_ms -= zero;
      interval.lane =
          static_cast<std::int32_t>(std::distance(slots_.begin(), slots_.find(slots_of_[i])));
    }
    for (const auto& [id, ends] : arrows_)
      if (ends.first >= 0 && ends.second >= 0) timeline_.links.push_back({ends.first, ends.second});
    for (auto& mark : timeline_.marks) mark.at_ms -= zero;
    std::stable_sort(timeline_.marks.begin(), timeline_.marks.end(),
                     [](const auto& a, const auto& b) { return a.at_ms < b.at_ms; });
    name_lanes(timeline_);
    sort_intervals(timeline_);
    return std::move(timeline_);
  }

 private:
  void add_slice(const Json& entry) {
    const auto& args = entry.at("args");
    TimelineInterval interval;
    interval.kind = read_kind(args);
    interval.begin_ms = entry.at("ts").get<double>() / 1000;
    interval.end_ms = interval.begin_ms + entry.at("dur").get<double>() / 1000;
    interval.stage = stage_of(args);
    interval.microbatch = args.value("microbatch", -1);
    interval.part = args.value("part", -1);
    interval.bytes = args.value("bytes", std::int64_t{0});
    interval.subject = args.value("group", "");
    timeline_.intervals.push_back(std::move(interval));
    slots_of_.push_back(slot_of(entry));
    slots_.insert(slots_of_.back());
    attempts_.push_back(args.value("epoch_number", EpochNumber{0}));
  }

  void add_mark(const Json& entry) {
    const auto& args = entry.at("args");
    timeline_.marks.push_back(
        {entry.at("ts").get<double>() / 1000, args.at("kind").get<std::string>(),
         entry.at("name").get<std::string>(), args.at("why").get<std::string>()});
  }

  static std::string name_of(const Json& stage) {
    if (stage.is_string()) return stage.get<std::string>();
    // Numbers alone: the library writes a deep list by recursion.
    return "stage" + (stage.is_number() ? stage.dump() : "");
  }

  std::int32_t stage_of(const Json& args) {
    if (!args.contains("stage")) return -1;
    // Stages of two pipelines share their names.
    const auto id = args.value("stage_id", -1);
    const auto next = static_cast<std::int32_t>(timeline_.stages.size());
    const auto [place, fresh] = stages_.try_emplace({args.value("epoch_number", 0), id}, next);
    if (fresh) timeline_.stages.push_back(name_of(args["stage"]));
    return place->second;
  }

  void drop_older_attempts() {
    if (attempts_.empty()) return;
    const auto last = *std::max_element(attempts_.begin(), attempts_.end());
    std::vector<std::int32_t> place(attempts_.size(), -1);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < attempts_.size(); ++i) {
      if (attempts_[i] != last) continue;
      place[i] = static_cast<std::int32_t>(kept);
      std::swap(timeline_.intervals[kept], timeline_.intervals[i]);
      slots_of_[kept] = slots_of_[i];
      ++kept;
    }
    if (kept < attempts_.size())
      timeline_.note = "A failure interrupted this step; shown is its last attempt.";
    timeline_.intervals.resize(kept);
    for (auto& [id, ends] : arrows_) {
      if (ends.first >= 0) ends.first = place[static_cast<std::size_t>(ends.first)];
      if (ends.second >= 0) ends.second = place[static_cast<std::size_t>(ends.second)];
    }
  }

  std::int64_t step_;
  bool taken_ = false;  // The last slice belongs to the step.
  std::set<std::int64_t> steps_;
  std::set<DeviceSlot> slots_;
  std::vector<DeviceSlot> slots_of_;   // Per interval.
  std::vector<EpochNumber> attempts_;  // Per interval.
  std::map<std::pair<int, std::int32_t>, std::int32_t> stages_;
  std::map<std::uint64_t, std::pair<std::int32_t, std::int32_t>> arrows_;
  Timeline timeline_;
};

}  // namespace

Result<std::vector<std::int64_t>> steps_in_trace(const std::filesystem::path& path) {
  std::set<std::int64_t> steps;
  auto read = for_each_entry(path, [&](const Entry& entry) {
    if (entry.phase() == "X") steps.insert(entry.step());
  });
  if (!read.ok()) return read.error();
  return std::vector<std::int64_t>(steps.begin(), steps.end());
}

Result<Timeline> timeline_of_step(const std::filesystem::path& path, std::int64_t step) {
  StepReader reader(step);
  auto read = for_each_entry(path, [&](const Entry& entry) { reader.add(entry); });
  if (!read.ok()) return read.error();
  if (!reader.found()) return no_such_step(path, step, reader.steps());
  return reader.take();
}

Result<std::string> trace_of_step(const std::filesystem::path& path, std::int64_t step) {
  std::set<std::int64_t> steps;
  std::string entries;
  bool taken = false;
  auto read = for_each_entry(path, [&](const Entry& entry) {
    const auto phase = entry.phase();
    if (phase == "X") {
      steps.insert(entry.step());
      taken = entry.step() == step;
    }
    const bool of_slice = phase == "X" || phase == "s" || phase == "f";
    if (phase == "M" || (of_slice && taken) || is_mark_of(entry, step))
      entries += (entries.empty() ? "\n" : ",\n") + entry.line;
  });
  if (!read.ok()) return read.error();
  if (!steps.contains(step)) return no_such_step(path, step, {steps.begin(), steps.end()});
  return "[" + entries + "\n]\n";
}

}  // namespace troupe::observe
