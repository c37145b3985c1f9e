#include "actors/node/stall_watch.hpp"

#include <algorithm>

namespace troupe::actors {

namespace {

/// Where nothing says how long a step takes.
constexpr std::chrono::seconds kUnmeasured{30};

}  // namespace

void StallWatch::ended(Duration took) {
  longest_ = std::max(longest_, took);
  told_ = {};
}

Duration StallWatch::bound() const {
  if (told_ != Duration{}) return 2 * told_;
  return std::max<Duration>(kUnmeasured, 10 * longest_);
}

Duration StallWatch::message_bound(Duration limit) const {
  return std::max<Duration>(limit, longest_ == Duration{} ? Duration{kUnmeasured} : 3 * longest_);
}

bool StallWatch::hopeless(Duration waited, Duration limit) const {
  return waited > std::max(limit, 10 * longest_);
}

bool StallWatch::overdue(Duration waited) {
  if (waited < bound()) return false;
  told_ = waited;
  return true;
}

}  // namespace troupe::actors
