#include "runtime/observe/trace_summary.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/files/look_up.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/vocabulary/library_words.hpp"

namespace troupe::observe {

namespace {

using Json = nlohmann::json;

struct Slice {
  std::pair<std::int32_t, std::int32_t> device;  // Node, index on it.
  std::string category;
  std::string stage;
  std::int64_t step = 0;
  double begin_us = 0;
  double duration_us = 0;
};

struct StepSpan {
  double begin_us = std::numeric_limits<double>::infinity();
  double end_us = -std::numeric_limits<double>::infinity();
};

// Everything a summary is made of, gathered in one pass over the entries.
struct Gathered {
  std::map<std::pair<std::int32_t, std::int32_t>, DeviceSummary> devices;
  std::map<std::tuple<std::int32_t, std::int32_t, std::string>, StageSummary> stages;
  std::map<std::int64_t, StepSpan> steps;
  std::set<std::uint64_t> begun, ended;  // Arrows.
  std::int64_t slice_count = 0;
};

Slice read_slice(const Json& entry) {
  const auto& args = entry.at("args");
  Slice slice;
  slice.device = {entry.at("pid").get<std::int32_t>() - 1, entry.at("tid").get<std::int32_t>() - 1};
  slice.category = entry.at("cat").get<std::string>();
  slice.step = args.at("step").get<std::int64_t>();
  slice.begin_us = entry.at("ts").get<double>();
  slice.duration_us = entry.at("dur").get<double>();
  if (args.contains("stage") && args["stage"].is_string())
    slice.stage = args["stage"].get<std::string>();
  return slice;
}

void add_compute(const Slice& slice, Gathered& gathered) {
  auto& span = gathered.steps[slice.step];
  span.begin_us = std::min(span.begin_us, slice.begin_us);
  span.end_us = std::max(span.end_us, slice.begin_us + slice.duration_us);
  auto& stage = gathered.stages[{slice.device.first, slice.device.second, slice.stage}];
  stage.name = slice.stage;
  std::tie(stage.node, stage.local_index) = slice.device;
  stage.compute_ms += slice.duration_us / 1000;
}

void add_slice(const Slice& slice, Gathered& gathered) {
  auto& device = gathered.devices[slice.device];
  std::tie(device.node, device.local_index) = slice.device;
  const double duration_ms = slice.duration_us / 1000;
  if (slice.category == "compute") device.compute_ms += duration_ms;
  if (slice.category == "update") device.update_ms += duration_ms;
  if (slice.category == "transfer") device.transfer_ms += duration_ms;
  if (slice.category == "offload") device.offload_ms += duration_ms;
  if (slice.category == "wait") device.wait_ms += duration_ms;
  if (slice.category == "compute") add_compute(slice, gathered);
  ++gathered.slice_count;
}

void add_entry(const Json& entry, Gathered& gathered) {
  const auto phase = entry.at("ph").get<std::string>();
  if (phase == "X") add_slice(read_slice(entry), gathered);
  if (phase == "s") gathered.begun.insert(entry.at("id").get<std::uint64_t>());
  if (phase == "f") gathered.ended.insert(entry.at("id").get<std::uint64_t>());
}

void add_ratios(const Gathered& gathered, TraceSummary& summary) {
  double work_ms = 0, largest_ms = 0;
  for (const auto& stage : summary.stages) {
    work_ms += stage.compute_ms;
    largest_ms = std::max(largest_ms, stage.compute_ms);
  }
  for (const auto& [step, span] : gathered.steps)
    summary.span_ms += (span.end_us - span.begin_us) / 1000;
  const double room_ms = summary.span_ms * static_cast<double>(summary.devices.size());
  if (room_ms > 0) summary.bubble = std::clamp(1 - work_ms / room_ms, 0.0, 1.0);
  if (work_ms > 0)
    summary.imbalance = largest_ms * static_cast<double>(summary.stages.size()) / work_ms;
}

TraceSummary summary_of(const Gathered& gathered) {
  TraceSummary summary;
  summary.step_count = static_cast<std::int64_t>(gathered.steps.size());
  summary.slice_count = gathered.slice_count;
  for (const auto id : gathered.begun) summary.arrow_count += gathered.ended.contains(id) ? 1 : 0;
  for (const auto& [key, device] : gathered.devices) summary.devices.push_back(device);
  for (const auto& [key, stage] : gathered.stages) summary.stages.push_back(stage);
  add_ratios(gathered, summary);
  return summary;
}

Result<std::string> read_text(const std::filesystem::path& path) {
  if (!files::is_there(path))
    return Error{Errc::not_found, "no such trace", path.string(),
                 "training writes it with its first step; look at the run's log"};
  auto text = files::read_whole(path);
  if (!text) return Error{Errc::io_failed, "reading failed", path.string(), ""};
  return std::move(*text);
}

}  // namespace

Result<TraceSummary> summarize_trace(const std::filesystem::path& path) {
  const auto text = read_text(path);
  if (!text) return text.error();
  const auto parsed = Json::parse(text.value(), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_array())
    return Error{Errc::bad_data, "not a trace: expected a JSON list", path.string(), ""};
  Gathered gathered;
  std::size_t index = 0;
  try {
    for (; index < parsed.size(); ++index) add_entry(parsed[index], gathered);
  } catch (const Json::exception& error) {
    return Error{
        Errc::bad_data,
        "not a trace of Troupe: entry " + std::to_string(index) + ": " + without_code(error.what()),
        path.string(), ""};
  }
  return summary_of(gathered);
}

std::string to_text(const TraceSummary& summary) {
  char line[256];
  std::string text;
  const auto add = [&] { text += line; };
  const bool offloads = std::any_of(summary.devices.begin(), summary.devices.end(),
                                    [](const auto& device) { return device.offload_ms > 0; });
  std::snprintf(line, sizeof line,
                "%lld steps, %.1f ms of compute span, bubble %.1f %%, imbalance %.2f, %lld slices, "
                "%lld arrows\n",
                static_cast<long long>(summary.step_count), summary.span_ms, 100 * summary.bubble,
                summary.imbalance, static_cast<long long>(summary.slice_count),
                static_cast<long long>(summary.arrow_count));
  add();
  std::snprintf(line, sizeof line, "%-16s %12s %10s %12s %10s %7s%s\n", "device", "compute ms",
                "update ms", "transfer ms", "wait ms", "busy %", offloads ? "  offload ms" : "");
  add();
  for (const auto& device : summary.devices) {
    const double busy = summary.span_ms > 0 ? 100 * device.compute_ms / summary.span_ms : 0;
    std::snprintf(line, sizeof line, "node %-3d dev %-3d %12.1f %10.1f %12.1f %10.1f %7.1f",
                  device.node, device.local_index, device.compute_ms, device.update_ms,
                  device.transfer_ms, device.wait_ms, busy);
    add();
    std::snprintf(line, sizeof line, "  %10.1f", device.offload_ms);
    if (offloads) add();
    text += '\n';
  }
  std::snprintf(line, sizeof line, "%-24s %-16s %12s\n", "stage", "on", "compute ms");
  add();
  for (const auto& stage : summary.stages) {
    std::snprintf(line, sizeof line, "%-24s node %-3d dev %-3d %12.1f\n", stage.name.c_str(),
                  stage.node, stage.local_index, stage.compute_ms);
    add();
  }
  return text;
}

}  // namespace troupe::observe
