// A bounded buffer for the events of one device, cheap enough to record every action.
//
// Owned by one thread (the device's executor); not thread-safe. Allocates once.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/observe/trace_event.hpp"

namespace troupe::observe {

/// Keeps the newest `capacity` events; when full, the oldest gives way and is counted as dropped.
class TraceRing {
 public:
  /// `capacity`: events, >= 1. 80 bytes each.
  explicit TraceRing(std::size_t capacity = 1 << 14) : events_(capacity < 1 ? 1 : capacity) {}

  /// Adds an event. A copy of 80 bytes, no allocation.
  void record(const TraceEvent& event) {
    events_[next_] = event;
    next_ = next_ + 1 == events_.size() ? 0 : next_ + 1;
    if (count_ < events_.size())
      ++count_;
    else
      ++dropped_;
  }

  std::size_t size() const { return count_; }
  std::size_t capacity() const { return events_.size(); }

  /// Events lost since the last drain.
  std::uint64_t dropped() const { return dropped_; }

  /// All events, oldest first; leaves the ring empty and `dropped` at 0.
  std::vector<TraceEvent> drain() {
    std::vector<TraceEvent> drained;
    drained.reserve(count_);
    const std::size_t oldest = (next_ + events_.size() - count_) % events_.size();
    for (std::size_t i = 0; i < count_; ++i)
      drained.push_back(events_[(oldest + i) % events_.size()]);
    count_ = 0;
    dropped_ = 0;
    return drained;
  }

 private:
  std::vector<TraceEvent> events_;
  std::size_t next_ = 0;
  std::size_t count_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace troupe::observe
