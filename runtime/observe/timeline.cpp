#include "runtime/observe/timeline.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace troupe::observe {

namespace {

// Both ends of a message or reduction make the same key; see arrows_of in trace_writer.cpp.
enum class Route : std::uint8_t {
  rows,
  gradient,
  content,
  to_partial,
  to_reduce,
  reduced,
  relayed
};
using LinkKey = std::tuple<std::int64_t, EpochNumber, Route, std::int32_t, DeviceId, DeviceId>;

struct Ends {
  std::vector<std::int32_t> from, to;  // Intervals.
};
using EndsByKey = std::map<LinkKey, Ends>;

/// Two holders have at most one link of each.
Route route_of(const SumLink& link) {
  if (link.takes == ActionKind::reduce_partial) return Route::to_partial;
  if (link.takes == ActionKind::reduce) return Route::to_reduce;
  return link.sends == ActionKind::reduce ? Route::reduced : Route::relayed;
}

void add_ends(const TraceEvent& event, const TraceNames& names, std::int32_t interval,
              EndsByKey& ends) {
  const auto& action = event.action;
  const auto at = [&](Route route, std::int32_t number, DeviceId from, DeviceId to) -> Ends& {
    return ends[{event.step, event.epoch_number, route, number, from, to}];
  };
  const auto message = action.message.value;
  switch (action.kind) {
    case ActionKind::send: return at(Route::rows, message, {}, {}).from.push_back(interval);
    case ActionKind::receive: return at(Route::rows, message, {}, {}).to.push_back(interval);
    case ActionKind::send_gradient:
      return at(Route::gradient, message, {}, {}).from.push_back(interval);
    case ActionKind::receive_gradient:
      return at(Route::gradient, message, {}, {}).to.push_back(interval);
    case ActionKind::send_content:
      return at(Route::content, action.delivery.value, {}, {}).from.push_back(interval);
    case ActionKind::receive_content:
      return at(Route::content, action.delivery.value, {}, {}).to.push_back(interval);
    default: break;
  }
  for (const SumEnd& end : sum_ends(names, event)) {
    Ends& both = at(route_of(end.link), action.group.value, end.link.from, end.link.to);
    (end.begins ? both.from : both.to).push_back(interval);
  }
}

std::vector<TimelineLink> links_of(const EndsByKey& ends) {
  std::vector<TimelineLink> links;
  for (const auto& [key, both] : ends)
    for (const auto from : both.from)
      for (const auto to : both.to) links.push_back({from, to});
  return links;
}

// Lanes of the plan; `lane_of` an event's device appends those that the plan does not know.
class Lanes {
 public:
  explicit Lanes(const TraceNames& names) {
    for (const auto& slot : names.devices) lanes_.push_back({slot, ""});
  }

  std::int32_t of(DeviceId device) {
    if (device.valid() && device.index() < lanes_.size() - extra_.size()) return device.value;
    const auto next = static_cast<std::int32_t>(lanes_.size());
    const auto [place, fresh] = extra_.try_emplace(device, next);
    if (fresh) lanes_.push_back({{NodeId{}, device.value}, ""});
    return place->second;
  }

  std::vector<TimelineLane> take() { return std::move(lanes_); }

 private:
  std::vector<TimelineLane> lanes_;
  std::map<DeviceId, std::int32_t> extra_;
};

TimelineInterval interval_of(const TraceEvent& event, const TraceNames& names, std::int32_t lane,
                             std::int64_t zero_ns) {
  const auto& action = event.action;
  TimelineInterval interval;
  interval.lane = lane;
  interval.begin_ms = static_cast<double>(event.begin_ns - zero_ns) / 1e6;
  interval.end_ms = static_cast<double>(event.end_ns - zero_ns) / 1e6;
  interval.kind = action.kind;
  if (action.stage.valid() && action.stage.index() < names.stages.size())
    interval.stage = action.stage.value;
  interval.microbatch = action.microbatch.value;
  interval.part = action.part.value;
  interval.bytes = event.bytes;
  if (action.group.valid() && action.group.index() < names.groups.size())
    interval.subject = names.groups[action.group.index()];
  return interval;
}

}  // namespace

double Timeline::span_ms() const {
  double span = 0;
  for (const auto& interval : intervals) span = std::max(span, interval.end_ms);
  return span;
}

Timeline make_timeline(std::span<const TraceEvent> events, const TraceNames& names) {
  Timeline timeline;
  timeline.stages = names.stages;
  Lanes lanes(names);
  EndsByKey ends;
  std::int64_t zero_ns = events.empty() ? 0 : events.front().begin_ns;
  for (const auto& event : events) zero_ns = std::min(zero_ns, event.begin_ns);
  for (const auto& event : events) {
    add_ends(event, names, static_cast<std::int32_t>(timeline.intervals.size()), ends);
    timeline.intervals.push_back(interval_of(event, names, lanes.of(event.device), zero_ns));
  }
  timeline.lanes = lanes.take();
  timeline.links = links_of(ends);
  name_lanes(timeline);
  sort_intervals(timeline);
  return timeline;
}

void name_lanes(Timeline& timeline) {
  std::vector<std::vector<std::int32_t>> stages(timeline.lanes.size());
  for (const auto& interval : timeline.intervals) {
    auto& list = stages[static_cast<std::size_t>(interval.lane)];
    if (interval.stage >= 0 && std::find(list.begin(), list.end(), interval.stage) == list.end())
      list.push_back(interval.stage);
  }
  for (std::size_t i = 0; i < stages.size(); ++i) {
    std::sort(stages[i].begin(), stages[i].end());
    for (const auto stage : stages[i]) {
      auto& text = timeline.lanes[i].stages;
      if (!text.empty()) text += ", ";
      text += timeline.stages[static_cast<std::size_t>(stage)];
    }
  }
}

void sort_intervals(Timeline& timeline) {
  auto& intervals = timeline.intervals;
  std::vector<std::int32_t> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](std::int32_t i) {
    const auto& interval = intervals[static_cast<std::size_t>(i)];
    return std::tuple(interval.lane, interval.begin_ms, interval.end_ms);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
  std::vector<TimelineInterval> sorted;
  std::vector<std::int32_t> place(intervals.size());
  sorted.reserve(intervals.size());
  for (const auto i : order) {
    place[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(sorted.size());
    sorted.push_back(std::move(intervals[static_cast<std::size_t>(i)]));
  }
  intervals = std::move(sorted);
  for (auto& link : timeline.links)
    link = {place[static_cast<std::size_t>(link.from)], place[static_cast<std::size_t>(link.to)]};
  std::sort(timeline.links.begin(), timeline.links.end());
}

std::vector<LaneTimes> lane_times(const Timeline& timeline) {
  std::vector<LaneTimes> lanes(timeline.lanes.size());
  std::vector<double> acted(timeline.lanes.size());
  for (const auto& interval : timeline.intervals) {
    auto& lane = lanes[static_cast<std::size_t>(interval.lane)];
    const double duration = interval.duration_ms();
    const bool forward = interval.kind == ActionKind::forward;
    switch (time_kind(interval.kind)) {
      case TimeKind::compute: (forward ? lane.forward_ms : lane.backward_ms) += duration; break;
      case TimeKind::update: lane.update_ms += duration; break;
      case TimeKind::transfer:
      case TimeKind::offload: lane.transfer_ms += duration; break;
      case TimeKind::wait: continue;
    }
    acted[static_cast<std::size_t>(interval.lane)] += duration;
  }
  const double span = timeline.span_ms();
  for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i].wait_ms = std::max(span - acted[i], 0.0);
  return lanes;
}

}  // namespace troupe::observe
