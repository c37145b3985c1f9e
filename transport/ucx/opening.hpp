// How long a connection has been coming up. Pure; time is handed in.

#pragma once

#include <algorithm>
#include <chrono>

namespace troupe::transport {

class Opening {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Of the time between two looks no more than this counts: a process that was held up itself
  /// (stopped, or crowded out) has not read yet what its peers answered meanwhile. The loop looks
  /// each tenth of a second.
  static constexpr std::chrono::milliseconds kLookMax{500};

  /// It begins `now`, and may take as long as `bound`.
  Opening(Time now, std::chrono::milliseconds bound) : last_look_(now), bound_(bound) {}

  /// Time passes. True once it has taken longer.
  bool is_late(Time now) {
    taken_ += std::min<Time::duration>(now - last_look_, kLookMax);
    last_look_ = now;
    return taken_ > bound_;
  }

 private:
  Time last_look_;
  Time::duration taken_{};
  std::chrono::milliseconds bound_;
};

}  // namespace troupe::transport
