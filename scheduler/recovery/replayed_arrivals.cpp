#include "scheduler/recovery/replayed_arrivals.hpp"

#include <algorithm>

namespace troupe::scheduler {

namespace {

/// Of the time that has passed: rounding must not leave a wait that is too short to pass.
constexpr double kShortest = 1e-9;

}  // namespace

std::optional<ReplayedWait> ReplayedArrivals::wait_from(double now_ms) {
  for (; passed_ < all_.size() && all_[passed_].until_ms <= now_ms; ++passed_)
    if (const NodeArrival& one = all_[passed_]; one.is_ready)
      joins_.add(one.until_ms - one.welcomed_ms);
  const NodeArrival* found = nullptr;
  double ready_ms = 0;
  for (std::size_t i = passed_; i < all_.size(); ++i) {
    const NodeArrival& one = all_[i];
    if (one.welcomed_ms > now_ms || (found && found->welcomed_ms <= one.welcomed_ms)) continue;
    const auto ready = joins_.ready_in_ms(now_ms - one.welcomed_ms);
    if (!ready || *ready <= kShortest * now_ms) continue;
    found = &one;
    ready_ms = *ready;
  }
  if (!found) return std::nullopt;
  const double late_ms = now_ms + ready_ms;
  return ReplayedWait{now_ms, ready_ms,
                      found->is_ready ? late_ms : std::min(late_ms, found->until_ms)};
}

}  // namespace troupe::scheduler
