// What one device did and when: the values that traces, bubbles and imbalances are made of.
//
// For executors (which record), the recorder (which writes) and readers. Plain values that travel
// in messages; no I/O. Times are nanoseconds of one clock per machine, see trace_now_ns.

#pragma once

#include <cstdint>
#include <string>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::observe {

/// One executed action. Arrows between processes follow from step and action, see trace_writer.hpp.
struct TraceEvent {
  DeviceId device;
  std::int64_t step = 0;
  EpochNumber epoch_number = 0;
  Action action;  ///< Of messages too with stage, microbatch and part: see trace_event().
  std::int64_t begin_ns = 0;  ///< When the device turned to the action, waiting included.
  std::int64_t end_ns = 0;    ///< >= begin_ns.
  std::int64_t bytes = 0;     ///< Moved; 0 for compute, and for what was offloaded on paper.
  std::int64_t cpu_ns = 0;  ///< Processor time of the device's thread; leaves out what others take.
  /// >= 0.
  std::int64_t duration_ns() const { return end_ns - begin_ns; }
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, TraceEvent& x) {
    return f(x.device, x.step, x.epoch_number, x.action, x.begin_ns, x.end_ns, x.bytes, x.cpu_ns);
  }
};

/// A value over time on one node: activations in flight, queue lengths.
struct TraceCounter {
  NodeId node;
  std::string name;  ///< With its unit last: `activations_bytes`.
  std::int64_t time_ns = 0;
  double value = 0;

  friend bool operator==(const TraceCounter&, const TraceCounter&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, TraceCounter& x) {
    return f(x.node, x.name, x.time_ns, x.value);
  }
};

/// Something that happened at once: a loss, another layout.
struct TraceMark {
  NodeId node;  ///< Not valid: to the whole job.
  std::string name;
  std::int64_t time_ns = 0;
  std::int64_t step = 0;  ///< The first one after it; 0: of no step.
  std::string kind = {};  ///< Of events.jsonl; empty: of something else.
  std::string why = {};   ///< For people; may be empty.

  friend bool operator==(const TraceMark&, const TraceMark&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, TraceMark& x) {
    return f(x.node, x.name, x.time_ns, x.step, x.kind, x.why);
  }
};

/// What an action's time counts as.
enum class TimeKind : std::uint8_t {
  compute,   ///< Forward and backward: the work that a bubble is measured against.
  update,    ///< Summing gradients, optimizer step.
  transfer,  ///< Handing bytes over; does not wait.
  offload,   ///< Moving activations or moments to host memory and back.
  wait,      ///< Waiting for rows, gradients, or COMMIT.
};
TimeKind time_kind(ActionKind kind);  ///< As reports count it.

/// An event for an action of `plan`, times left 0. Actions on messages get the stage, microbatch
/// and part of the end that executes them, and the bytes of their rows at `element_bytes` each;
/// those on deliveries the part that reads them, where it is received, and their bytes.
/// Cost: constant.
TraceEvent trace_event(const IterationPlan& plan, DeviceId device, const Action& action,
                       std::int64_t element_bytes);

/// Nanoseconds since 1970 that never go backwards: the monotonic clock plus an offset measured once
/// per process, so that processes of one machine agree within a few microseconds. About 30 ns.
std::int64_t trace_now_ns();

/// Processor time of the calling thread since it began, in nanoseconds. Well under 1 us.
std::int64_t thread_cpu_ns();

}  // namespace troupe::observe
