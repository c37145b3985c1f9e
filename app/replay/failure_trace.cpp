#include "app/replay/failure_trace.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "runtime/files/look_up.hpp"
#include "runtime/files/read_stream.hpp"
#include "scheduler/recovery/failure_events.hpp"

namespace troupe::app {

namespace {

using Fields = std::vector<std::string>;

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

Fields split(const std::string& line, char separator) {
  Fields fields;
  std::size_t begin = 0;
  for (std::size_t end; (end = line.find(separator, begin)) != std::string::npos; begin = end + 1)
    fields.push_back(trimmed(line.substr(begin, end - begin)));
  fields.push_back(trimmed(line.substr(begin)));
  return fields;
}

template <class Number>
std::optional<Number> whole_text(const std::string& text) {
  Number value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Takes lines in order. Each `add` returns what is wrong with its line, or nothing.
class Changes {
 public:
  std::string add(const Fields& fields) {
    const auto time = whole_text<double>(fields[0]);
    if (!time || !(*time >= 0) || *time > kTraceMsMax)
      return "expected milliseconds from 0 to 1e12, found '" + fields[0] + "'";
    if (*time < last_ms_) return "the time " + fields[0] + " is before that of the line above";
    last_ms_ = *time;
    const bool joins = fields[1] == "add";
    if (!joins && fields[1] != "remove") return "expected add or remove, found '" + fields[1] + "'";
    if (fields[2].empty()) return "the node has no name";
    const auto node = ids_.try_emplace(fields[2], std::int64_t(ids_.size())).first->second;
    if (joins ? !alive_.insert(node).second : alive_.erase(node) == 0)
      return "node " + fields[2] + (joins ? " is there already" : " is not there");
    peak_ = std::max(peak_, std::int64_t(alive_.size()));
    put(node, joins);
    return {};
  }

  Result<FailureTrace> finish(std::uint64_t) && {
    return FailureTrace{std::move(nodes_), std::move(events_), last_ms_, peak_};
  }

 private:
  void put(std::int64_t node, bool joins) {
    if (last_ms_ == 0 && joins && events_.empty()) return nodes_.push_back(node);
    // One event for lines of one time and kind. A change of kind begins another, as the replay
    // takes a node that is in both lists for one that left first.
    const bool fits = !events_.empty() && events_.back().time_ms == last_ms_ &&
                      events_.back().joined.empty() != joins;
    if (!fits) events_.push_back({last_ms_, {}, {}});
    (joins ? events_.back().joined : events_.back().lost).push_back(node);
  }

  double last_ms_ = 0;
  std::int64_t peak_ = 0;
  std::map<std::string, std::int64_t> ids_;
  std::set<std::int64_t> alive_;
  scheduler::RankList nodes_;
  std::vector<scheduler::NodeEvent> events_;
};

// Milliseconds since 1970 of a date and a time of day.
std::optional<double> calendar_ms(const std::string& date, const std::string& time) {
  const auto days = split(date, '-'), clock = split(time, ':');
  if (days.size() != 3 || clock.size() != 3) return std::nullopt;
  std::array<int, 6> numbers{};
  for (std::size_t i = 0; i < 6; ++i) {
    const auto number = whole_text<int>(i < 3 ? days[i] : clock[i - 3]);
    if (!number || *number < 0) return std::nullopt;
    numbers[i] = *number;
  }
  const auto [year, month, day, hour, minute, second] = numbers;
  const std::chrono::year_month_day there{std::chrono::year{year},
                                          std::chrono::month(unsigned(month)),
                                          std::chrono::day(unsigned(day))};
  if (!there.ok() || year < 1970 || year > 9999 || hour > 23 || minute > 59 || second > 60)
    return std::nullopt;
  const auto count = std::chrono::sys_days{there}.time_since_epoch().count();
  return ((double(count) * 24 + hour) * 3600 + minute * 60 + second) * 1000;
}

class Counts {
 public:
  std::string add(const Fields& fields) {
    const auto time = calendar_ms(fields[0], fields[1]);
    if (!time) return "expected YYYY-MM-DD, HH:MM:SS, found '" + fields[0] + ", " + fields[1] + "'";
    const auto nodes = whole_text<std::int64_t>(fields[2]);
    if (!nodes || *nodes < 0 || *nodes > kTraceNodesMax)
      return "expected a count from 0 to 100000, found '" + fields[2] + "'";
    while (!counts_.empty() && counts_.back().time_ms >= *time) counts_.pop_back();
    counts_.push_back({*time, *nodes});
    return {};
  }

  Result<FailureTrace> finish(std::uint64_t seed) && {
    FailureTrace made;
    const double begin_ms = counts_.front().time_ms;
    for (auto& count : counts_) {
      count.time_ms -= begin_ms;
      made.peak_nodes = std::max(made.peak_nodes, count.nodes);
    }
    made.end_ms = counts_.back().time_ms;
    for (std::int64_t node = 0; node < counts_.front().nodes; ++node) made.nodes.push_back(node);
    made.events = scheduler::events_of_counts(counts_, seed);
    return made;
  }

 private:
  std::vector<scheduler::NodeCount> counts_;
};

template <class Lines>
Result<FailureTrace> parse(const std::string& text, const std::string& name,
                           const std::string& form, std::uint64_t seed) {
  Lines lines;
  bool any = false;
  std::size_t number = 0;
  for (const auto& line : split(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    any = true;
    const auto fields = split(line, ',');
    const auto wrong = fields.size() == 3
                           ? lines.add(fields)
                           : "expected 3 fields, found " + std::to_string(fields.size());
    if (!wrong.empty())
      return Error{Errc::bad_data, wrong, name + ":" + std::to_string(number), "write " + form};
  }
  if (!any) return Error{Errc::bad_data, "the trace has no line", name + ":1", "write " + form};
  return std::move(lines).finish(seed);
}

}  // namespace

Result<FailureTrace> parse_failure_trace(const std::string& text, const std::string& name,
                                         TraceFormat format, std::uint64_t seed) {
  return format == TraceFormat::changes
             ? parse<Changes>(text, name, "`ms,add|remove,name`, times ascending", seed)
             : parse<Counts>(text, name, "`YYYY-MM-DD, HH:MM:SS, count`", seed);
}

Result<FailureTrace> read_failure_trace(const std::filesystem::path& file, std::uint64_t seed) {
  const auto ending = file.extension();
  if (ending != ".csv" && ending != ".txt")
    return Error{
        Errc::invalid_argument, "a failure trace ends in .csv or .txt", file.string(),
        "name it by its format: .csv holds `ms,add|remove,name`, .txt `date, time, count`"};
  const auto text = files::is_folder(file) ? std::nullopt : files::read_whole(file);
  if (!text)
    return Error{Errc::not_found, "cannot read this failure trace", file.string(),
                 "name a file with `ms,add|remove,name` (.csv) or `date, time, count` (.txt)"};
  return parse_failure_trace(*text, file.string(),
                             ending == ".csv" ? TraceFormat::changes : TraceFormat::counts, seed);
}

}  // namespace troupe::app
