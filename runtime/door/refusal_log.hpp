// What is told of strangers: enough to notice them, never so much that they fill a log.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe::door {

/// Not thread-safe.
class RefusalLog {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Refusals within this time of a told one are only counted.
  static constexpr std::chrono::seconds kQuiet{10};

  /// The line to log for a refused connection, or nothing. `peer`: its address; `why`: half a
  /// sentence about it, "has another key".
  std::optional<std::string> refused(const std::string& peer, const std::string& why, Time now);

  /// All refusals so far.
  std::int64_t count() const { return count_; }

 private:
  std::int64_t count_ = 0;
  std::int64_t untold_ = 0;
  std::optional<Time> told_;
};

}  // namespace troupe::door
