// The watchdog's clock: calls functions at their times, from a thread that nothing else holds up.
//
// Thread-safe. A function must not block; it may set and drop times.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "transport/operation.hpp"

namespace troupe::transport {

class NcclTimer {
 public:
  using Id = std::uint64_t;

  NcclTimer();
  /// Drops all that is set. Waits for a function that runs, unless it is the caller.
  ~NcclTimer();
  NcclTimer(const NcclTimer&) = delete;
  NcclTimer& operator=(const NcclTimer&) = delete;

  /// Calls `function` once, at `time` or soon after.
  Id at(Deadline time, std::function<void()> function);
  /// Takes it back; one that runs already, or has run, is not stopped.
  void drop(Id id);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace troupe::transport
