// Signs of life between the head and its nodes: when to send one, and when their absence counts.
//
// Pure; time is handed in. CAF has heartbeats too, but fixes their tolerance before a node can know
// the job, and takes a listener that was held up for a peer that fell silent.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace troupe::actors {

using Time = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

/// `seconds` as a duration.
Duration seconds(double seconds);

/// `0.5 s`.
std::string seconds_text(double seconds);

/// How often supervisor and nodes look at the time, at most; more often where signs of life are.
inline constexpr Duration kLookInterval = std::chrono::milliseconds(200);

/// Time between two looks for a job: the shorter of `kLookInterval` and its heartbeat interval.
Duration look_interval(double heartbeat_interval_s);

/// Says when the next sign of life is due.
class Pace {
 public:
  /// True at the first call and then whenever `interval` has passed.
  bool due(Time now, Duration interval);

 private:
  Time next_;
};

/// How long a peer has been silent.
class Silence {
 public:
  void heard(Time now) {
    silent_ = {};
    last_heard_ = now;
  }

  /// When it last was; the clock's beginning where it never was.
  Time last_heard() const { return last_heard_; }

  /// Time passes. True where the peer has been silent for longer than `limit`.
  ///
  /// Of the time since the last call no more than twice `kLookInterval` counts: who was held up
  /// itself (stopped, or crowded out) has not yet read what its peers said meanwhile.
  bool pass(Time now, Duration limit);

  /// So long, by that count, when it was last looked at.
  Duration lasted() const { return silent_; }

 private:
  Time last_look_;
  Time last_heard_;
  Duration silent_{};
};

/// How long the oldest of what a process waits for has been that: of reads, say, which are counted
/// from 1.
class OldestWait {
 public:
  /// Time passes; `number`: of the oldest now, 0 where nothing is waited for. True where it has
  /// been this one for longer than `limit`. Time counts as in `Silence`.
  bool pass(Time now, Duration limit, std::int64_t number);

 private:
  std::int64_t number_ = 0;
  Silence silence_;  ///< Its, since it was first seen to be the oldest.
};

/// What is said of a peer whose silence was longer than the tolerance.
std::string silent_for(double timeout_s);

}  // namespace troupe::actors
