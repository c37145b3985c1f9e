#include "app/replay/run_costs.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "runtime/files/look_up.hpp"
#include "runtime/files/read_stream.hpp"

namespace troupe::app {

namespace {

using Json = nlohmann::json;

Result<std::vector<Json>> read_lines(const std::string& text, const std::string& name) {
  std::vector<Json> lines;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    if (end == std::string::npos) break;  // Cut, or still being written.
    ++number;
    auto json = Json::parse(text.substr(begin, end - begin), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object())
      return Error{Errc::bad_data, "a line that is no JSON object",
                   name + ":" + std::to_string(number),
                   "name the folder of a run of `troupe train`"};
    lines.push_back(std::move(json));
    begin = end + 1;
  }
  return lines;
}

double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : 0;
}

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const auto middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct Step {
  double step_ms = 0, profile_ms = 0, generation = 0;
};

class Costs {
 public:
  explicit Costs(const std::vector<Json>& metrics) {
    for (const Json& line : metrics)  // Of a step that was trained again the last one counts.
      steps_[static_cast<std::int64_t>(number(line, "step"))] = {
          number(line, "step_ms"), number(line, "profile_step_ms"), number(line, "epoch_number")};
  }

  void add(const Json& event) {
    const auto kind = event.value("kind", Json());
    const auto step = static_cast<std::int64_t>(number(event, "step"));
    disturbed_.insert(step);
    if (kind != "lost" && kind != "joined") return;
    add_turnover(event, step);
    if (!event.contains("decide_ms")) return;  // Of a change that began with another kind.
    auto& own = phases_[kind == "lost" ? 0 : 1];
    own.detect.push_back(number(event, "detect_ms"));
    own.decide.push_back(number(event, "decide_ms"));
    own.copy.push_back(number(event, "copy_ms"));
    own.rebuild.push_back(number(event, "connect_ms") + number(event, "rebuild_ms"));
    if (const auto usual = usual_step_ms(step, number(event, "generation")))
      own.first_step.push_back(number(event, "decode_ms") + number(event, "replay_ms") - *usual);
  }

  RunCosts result() const {
    RunCosts made;
    made.losses = std::ssize(phases_[0].decide);
    made.joins = std::ssize(phases_[1].decide);
    made.loss = phases_[0].medians();
    made.join = phases_[1].medians();
    made.turnover_ms = median(turnovers_);
    std::vector<double> paces;
    for (const auto& [number, step] : steps_)
      if (step.profile_ms > 0 && !disturbed_.contains(number))
        paces.push_back(step.step_ms / step.profile_ms);
    made.pace = median(paces);
    return made;
  }

 private:
  struct Phases {
    std::vector<double> detect, decide, copy, rebuild, first_step;

    std::optional<scheduler::ChangeCosts> medians() const {
      if (decide.empty()) return std::nullopt;
      return scheduler::ChangeCosts{*median(detect),
                                    *median(decide),
                                    *median(copy),
                                    *median(rebuild),
                                    std::max(0.0, median(first_step).value_or(0)),
                                    true};
    }
  };

  /// Of the steps behind the first one of a generation.
  std::optional<double> usual_step_ms(std::int64_t first, double generation) const {
    std::vector<double> times;
    for (auto step = steps_.upper_bound(first);
         step != steps_.end() && step->second.generation == generation; ++step)
      times.push_back(step->second.step_ms);
    return median(times);
  }

  /// What the steps of a warm-up took is known; the rest of it were turnovers.
  void add_turnover(const Json& event, std::int64_t step) {
    const auto count = static_cast<std::int64_t>(number(event, "warm_up_steps"));
    if (count < 1) return;
    double left_ms = number(event, "warm_up_ms");
    for (auto own = step - count; own < step; ++own) {
      const auto found = steps_.find(own);
      if (found == steps_.end()) return;
      left_ms -= found->second.step_ms;
      disturbed_.insert(own);
    }
    turnovers_.push_back(std::max(0.0, left_ms / static_cast<double>(count)));
  }

  std::map<std::int64_t, Step> steps_;
  std::set<std::int64_t> disturbed_;
  Phases phases_[2];  // Of losses, of joins.
  std::vector<double> turnovers_;
};

}  // namespace

Result<RunCosts> parse_run_costs(const std::string& events, const std::string& metrics,
                                 const std::string& name) {
  const auto lines = read_lines(events, name);
  if (!lines.ok()) return lines.error();
  const auto steps = read_lines(metrics, "metrics.jsonl");
  if (!steps.ok()) return steps.error();
  Costs costs(steps.value());
  for (const Json& line : lines.value()) costs.add(line);
  RunCosts made = costs.result();
  if (made.losses + made.joins > 0) return made;
  return Error{Errc::bad_data, "this run has neither lost a node nor taken one in", name,
               "name a run whose events.jsonl has lines of kind lost or joined"};
}

Result<RunCosts> read_run_costs(const std::filesystem::path& run) {
  const auto file = run / "events.jsonl";
  const auto events = files::is_folder(file) ? std::nullopt : files::read_whole(file);
  if (!events)
    return Error{Errc::not_found, "this run has no events.jsonl that could be read", file.string(),
                 "name the folder of a run that lost nodes or took some in"};
  const auto metrics = files::read_whole(run / "metrics.jsonl");
  return parse_run_costs(*events, metrics.value_or(""), file.string());
}

}  // namespace troupe::app
