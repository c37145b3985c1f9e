#include "actors/node/wait_watch.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::actors {

Duration long_wait_interval(double heartbeat_timeout_s) { return seconds(heartbeat_timeout_s / 2); }

std::optional<engine::LongWaits> WaitWatch::pass(Time now, Duration interval,
                                                 const WorkOfDevices& devices,
                                                 std::vector<engine::SilentPeer> silent) {
  const Time before = std::exchange(last_look_, now);
  const Duration passed = std::min<Duration>(now - before, 2 * kLookInterval);
  engine::LongWaits told;
  for (const auto& [device, in_hand] : devices) {
    auto present = in_hand->wait();
    Lasting& lasting = lasting_[device];
    const std::int64_t number = present ? present->number : 0;
    if (std::exchange(lasting.number, number) != number)
      lasting.waited = {};  // It began since the last look.
    else
      lasting.waited += passed;
    if (!present || lasting.waited < interval) continue;
    told.waits.push_back(std::move(present->wait));
    told.waits.back().seconds = std::chrono::duration<double>(lasting.waited).count();
  }
  if (!pace_.due(now, interval)) return std::nullopt;
  told.silent = std::move(silent);
  const bool is_long = !told.waits.empty() || !told.silent.empty();
  const bool was_told = std::exchange(is_told_, is_long);
  if (!is_long && !was_told) return std::nullopt;
  return told;
}

}  // namespace troupe::actors
