#include "actors/node/stall_watch.hpp"

#include <algorithm>

namespace troupe::actors {

void StallWatch::ended(Duration took) {
  longest_ = std::max(longest_, took);
  told_ = {};
}

Duration StallWatch::bound() const {
  if (told_ != Duration{}) return 2 * told_;
  return std::max<Duration>(std::chrono::seconds(30), 10 * longest_);
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
