#include "app/solve/schedule_input.hpp"

#include <charconv>
#include <map>

#include "app/solve/choices.hpp"
#include "runtime/vocabulary/nearest_word.hpp"
#include "scheduler/iteration/schedules.hpp"

namespace troupe::app {

namespace {

using scheduler::PartRef;
using scheduler::StageTimes;

constexpr double kMaxMs = 1e12;
constexpr std::int64_t kMaxMicrobatches = 1'000'000;
constexpr std::int64_t kMaxStages = 10'000;    // Warm-up grows with the square.
constexpr std::int64_t kMaxTasks = 4'000'000;  // Stages x microbatches: about 2 GB, some seconds.

/// Reads one input; names become indices on the way.
class ScheduleReader {
 public:
  ScheduleReader(const Json& input, const std::string& path) : in_(input, path) {}

  Result<ScheduleInput> read(bool require_schedule) {
    in_.only({"stages", "microbatches", "needs", "schedule", "links", "link_ms", "max_in_flight"});
    result_.times.microbatches =
        static_cast<std::int32_t>(in_.integer("microbatches", 1, kMaxMicrobatches));
    result_.times.link_ms = in_.number_or("link_ms", 0, 0, kMaxMs);
    result_.schedule = require_schedule ? in_.text("schedule") : in_.text_or("schedule", "");
    check_size();
    if (in_.ok()) read_stages();
    if (in_.ok()) read_links();
    if (in_.ok()) read_bounds();
    if (in_.ok()) read_needs();
    if (!in_.ok()) return in_.error();
    if (auto status = scheduler::check_times(result_.times); !status.ok()) return status.error();
    return std::move(result_);
  }

 private:
  void check_size() {
    const auto stages = static_cast<std::int64_t>(in_.array("stages").size());
    const std::int64_t microbatches = result_.times.microbatches;
    if (stages > kMaxStages)
      in_.fail("stages", std::to_string(stages) + " stages are more than can be ordered",
               "nearest choice: " + std::to_string(kMaxStages) + " stages");
    else if (stages > 0 && stages * microbatches > kMaxTasks)
      in_.fail("microbatches",
               std::to_string(stages) + " stages x " + std::to_string(microbatches) +
                   " microbatches are more than " + std::to_string(kMaxTasks) + " tasks",
               "nearest choice: " + std::to_string(kMaxTasks / stages) + " microbatches");
  }

  void read_stages() {
    const auto count = in_.array("stages").size();
    bool any_llm = false;
    for (std::size_t s = 0; s < count && in_.ok(); ++s) {
      Reader stage = in_.element("stages", s);
      names_.push_back(stage.text("name"));
      index_.emplace(names_.back(), static_cast<std::int32_t>(s));
      any_llm |= names_.back().starts_with("llm");
      in_.absorb(stage);
    }
    for (std::size_t s = 0; s < count && in_.ok(); ++s) read_stage(s, any_llm);
  }

  void read_stage(std::size_t s, bool any_llm) {
    Reader stage = in_.element("stages", s);
    stage.only({"name", "device", "next", "side", "forward_ms", "input_grad_ms", "weight_grad_ms",
                "parts"});
    StageTimes times;
    times.name = names_[s];
    times.device = device(stage.text_or("device", times.name));
    const std::string side =
        stage.text_or("side", any_llm && !times.name.starts_with("llm") ? "encoder" : "llm");
    if (side != "encoder" && side != "llm")
      stage.fail("side", "expected \"encoder\" or \"llm\", found '" + side + "'");
    times.encoder = side == "encoder";
    if (stage.has("next")) {
      const Json& next = stage.array("next");
      for (const auto& name : next) times.next.push_back(stage_index(stage, "next", name));
    }
    times.forward_ms = per_microbatch(stage, "forward_ms");
    times.input_grad_ms = per_microbatch(stage, "input_grad_ms");
    times.weight_grad_ms = per_microbatch(stage, "weight_grad_ms");
    if (stage.has("parts")) read_parts(stage, times);
    in_.absorb(stage);
    result_.times.stages.push_back(std::move(times));
  }

  std::int32_t device(const std::string& name) {
    const auto [found, added] =
        device_index_.emplace(name, static_cast<std::int32_t>(result_.devices.size()));
    if (added) result_.devices.push_back(name);
    return found->second;
  }

  std::int32_t stage_index(Reader& where, const std::string& key, const Json& name) {
    const auto found = name.is_string() ? index_.find(name.get<std::string>()) : index_.end();
    if (found != index_.end()) return found->second;
    const std::string text = name.is_string() ? name.get<std::string>() : name.dump();
    where.fail(key, "there is no stage '" + text + "'", name_fix(text, names_));
    return 0;
  }

  static std::vector<double> per_microbatch(Reader& stage, const std::string& key) {
    if (stage.is_array(key)) return stage.numbers(key, 0, kMaxMs);
    return {stage.number(key, 0, kMaxMs)};
  }

  static void read_parts(Reader& stage, StageTimes& times) {
    for (const auto& shares : stage.array("parts")) {
      times.parts.emplace_back();
      if (!shares.is_array() || shares.empty())
        return stage.fail("parts", "expected one list of shares per microbatch");
      for (const auto& share : shares) {
        if (!share.is_number()) return stage.fail("parts", "a share is not a number");
        times.parts.back().push_back(share.get<double>());
      }
    }
  }

  void read_links() {
    if (!in_.has("links")) return;
    for (const auto& [key, value] : in_.object("links").items()) {
      const auto arrow = key.find('>');
      if (arrow == std::string::npos)
        return in_.fail("links", "'" + key + "' is no link", "write `from>to`");
      if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= kMaxMs))
        return in_.fail("links", "the time of '" + key + "' is not a number of at least 0");
      const auto from = stage_index(in_, "links", Json(key.substr(0, arrow)));
      const auto to = stage_index(in_, "links", Json(key.substr(arrow + 1)));
      result_.times.links[{from, to}] = value.get<double>();
    }
  }

  void read_bounds() {
    result_.max_in_flight.assign(names_.size(), 0);
    if (!in_.has("max_in_flight")) return;
    Reader bounds(in_.object("max_in_flight"), "input.max_in_flight");
    for (const auto& [name, value] : in_.object("max_in_flight").items()) {
      const auto stage = stage_index(in_, "max_in_flight", Json(name));
      result_.max_in_flight[static_cast<std::size_t>(stage)] =
          static_cast<std::int32_t>(bounds.integer(name, 1, kMaxMicrobatches));
    }
    in_.absorb(bounds);
  }

  void read_needs() {
    if (!in_.has("needs")) return;
    for (const auto& [name, lists] : in_.object("needs").items()) {
      const auto stage = stage_index(in_, "needs", Json(name));
      if (!lists.is_array())
        return in_.fail("needs." + name, "expected one list of parts per microbatch");
      auto& needs = result_.times.stages[static_cast<std::size_t>(stage)].needs.emplace();
      for (const auto& list : lists) {
        if (!list.is_array()) return in_.fail("needs." + name, "expected a list of parts");
        needs.emplace_back();
        for (const auto& part : list) {
          const PartRef ref = part_ref(name, part);
          if (!in_.ok()) return;
          needs.back().push_back(ref);
        }
      }
    }
  }

  /// `vision:3.1`, or `vision:3` for all parts.
  PartRef part_ref(const std::string& name, const Json& value) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const auto bad = [&] {
      in_.fail("needs." + name, "'" + text + "' names no part",
               "write `stage:microbatch.part`, or `stage:microbatch` for all parts");
      return PartRef{};
    };
    const auto colon = text.rfind(':');
    if (!value.is_string() || colon == std::string::npos) return bad();
    PartRef ref;
    ref.stage = stage_index(in_, "needs." + name, Json(text.substr(0, colon)));
    const char* end = text.data() + text.size();
    auto parsed = std::from_chars(text.data() + colon + 1, end, ref.microbatch);
    if (parsed.ec != std::errc{} || ref.microbatch < 0) return bad();
    if (parsed.ptr == end) return ref;
    if (*parsed.ptr != '.') return bad();
    parsed = std::from_chars(parsed.ptr + 1, end, ref.part);
    if (parsed.ec != std::errc{} || parsed.ptr != end || ref.part < 0) return bad();
    return ref;
  }

  Reader in_;
  ScheduleInput result_;
  std::vector<std::string> names_;
  std::map<std::string, std::int32_t> index_;
  std::map<std::string, std::int32_t> device_index_;
};

}  // namespace

Result<ScheduleInput> read_schedule_input(const Json& input, const std::string& path,
                                          bool require_schedule) {
  return ScheduleReader(input, path).read(require_schedule);
}

std::string schedule_schema() {
  return R"({
  "stages": [{
    "name": string,
    "device"?: string (default: the name; stages may share one),
    "next": [stage names that take its rows],
    "side"?: "encoder" | "llm" (default: llm if the name begins with llm, or if no name does),
    "forward_ms": ms or [ms per microbatch], "input_grad_ms": same, "weight_grad_ms": same,
    "parts"?: [per microbatch: [shares of its time, sum 1]]
  }...],
  "microbatches": integer >= 1,
  "needs"?: {stage: [per microbatch: ["upstream:microbatch.part"...]]}
            (default: the same microbatch and part of every stage before it),
  "schedule": )" +
         choices(scheduler::schedule_names(), 14) + R"(,
  "links"?: {"a>b": ms}, "link_ms"?: ms between devices (default 0),
  "max_in_flight"?: {stage: microbatches >= 1}
})";
}

}  // namespace troupe::app
