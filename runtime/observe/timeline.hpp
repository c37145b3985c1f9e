// A timeline: what each device did when, and which send reached which receive. The one value behind
// timeline pages, whether it was measured or simulated.
//
// Plain values and pure functions. `timeline_page.hpp` draws it, `recorded_trace.hpp` reads one
// from a run, `engine/iteration/simulated_trace.hpp` makes the events of a simulated step.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/observe/trace_event.hpp"
#include "runtime/observe/trace_names.hpp"

namespace troupe::observe {

/// A device and what it holds.
struct TimelineLane {
  DeviceSlot slot;
  std::string stages;  ///< Names of its stages, for people: `vision, llm.stage0`.

  friend bool operator==(const TimelineLane&, const TimelineLane&) = default;
};

/// One action on one lane. Waiting belongs to it: a receive begins when the device turns to it.
struct TimelineInterval {
  std::int32_t lane = 0;  ///< Index into `Timeline::lanes`.
  double begin_ms = 0;    ///< >= 0, from the timeline's zero.
  double end_ms = 0;      ///< >= begin_ms.
  ActionKind kind = ActionKind::forward;
  std::int32_t stage = -1;       ///< Index into `Timeline::stages`; -1: none.
  std::int32_t microbatch = -1;  ///< -1: none.
  std::int32_t part = -1;        ///< -1: none.
  std::int64_t bytes = 0;        ///< Moved or reduced; 0 for compute.
  std::string subject;           ///< What is reduced: a layer or tied parameter; else empty.

  double duration_ms() const { return end_ms - begin_ms; }
  friend bool operator==(const TimelineInterval&, const TimelineInterval&) = default;
};

/// Rows, a gradient or a sum on its way from one interval to another.
struct TimelineLink {
  std::int32_t from = 0;  ///< Index into `Timeline::intervals`.
  std::int32_t to = 0;    ///< Likewise.

  friend auto operator<=>(const TimelineLink&, const TimelineLink&) = default;
};

/// Something that happened to the whole job: a line through all lanes.
struct TimelineMark {
  double at_ms = 0;  ///< From the timeline's zero; < 0: before its first action.
  std::string kind;  ///< Of events.jsonl: `lost`.
  std::string name;  ///< `lost: node 2`.
  std::string why;   ///< For people; may be empty.

  friend bool operator==(const TimelineMark&, const TimelineMark&) = default;
};

/// Usually one step. Intervals of a lane never overlap: a device does one thing at a time.
struct Timeline {
  std::string title;  ///< `Step 3, measured`.
  std::string note;   ///< Where it comes from, what to keep in mind; may be empty.
  std::vector<TimelineLane> lanes;
  std::vector<std::string> stages;
  std::vector<TimelineInterval> intervals;  ///< By lane, then begin.
  std::vector<TimelineLink> links;          ///< Ascending.
  std::vector<TimelineMark> marks;          ///< By time.

  /// Last end of any interval; 0 without intervals.
  double span_ms() const;
  friend bool operator==(const Timeline&, const Timeline&) = default;
};

/// The timeline of these events: zero is the earliest begin, a lane per device of `names` (also
/// idle ones), a link per message and reduction of which both ends are there. Events of devices
/// that `names` does not know get a lane of their own after the others. Cost: O(n log n).
Timeline make_timeline(std::span<const TraceEvent> events, const TraceNames& names);

/// Sorts intervals by lane and begin and keeps links pointing at the same ones. For whoever fills a
/// Timeline by hand. REQUIRES: links name intervals that exist.
void sort_intervals(Timeline& timeline);

/// Writes each lane's `stages`: the names of the stages that its intervals belong to.
void name_lanes(Timeline& timeline);

/// Where a lane's time went, in milliseconds.
struct LaneTimes {
  double forward_ms = 0;   ///< Recomputation included.
  double backward_ms = 0;  ///< Input and weight gradients.
  double update_ms = 0;    ///< Reductions and optimizer.
  double transfer_ms = 0;  ///< Handing bytes over, to host memory and from it included.
  double wait_ms = 0;  ///< In a receive or commit, or between two actions, up to the span's end.

  friend bool operator==(const LaneTimes&, const LaneTimes&) = default;
};

/// Per lane; the five figures of a lane add up to the span.
std::vector<LaneTimes> lane_times(const Timeline& timeline);

}  // namespace troupe::observe
