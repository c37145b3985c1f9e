#include "actors/link/heartbeat.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace troupe::actors {

Duration seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::string seconds_text(double seconds) {
  std::ostringstream text;
  text << seconds << " s";
  return text.str();
}

Duration look_interval(double heartbeat_interval_s) {
  constexpr Duration kShortest = std::chrono::milliseconds(10);
  return std::clamp(seconds(heartbeat_interval_s), kShortest, kLookInterval);
}

bool Pace::due(Time now, Duration interval) {
  if (now < next_) return false;
  next_ = now + interval;
  return true;
}

bool Silence::pass(Time now, Duration limit) {
  if (last_look_ != Time{})
    silent_ += std::min(now - std::max(last_look_, last_heard_), 2 * kLookInterval);
  last_look_ = now;
  return silent_ > limit;
}

bool OldestWait::pass(Time now, Duration limit, std::int64_t number) {
  const bool over = silence_.pass(now, limit);
  if (number != number_) silence_.heard(now);
  const bool same = std::exchange(number_, number) == number;
  return number != 0 && same && over;
}

std::string silent_for(double timeout_s) {
  std::ostringstream text;
  text << "nothing was heard from it for " << timeout_s << " s (cluster.heartbeat_timeout_s)";
  return text.str();
}

}  // namespace troupe::actors
