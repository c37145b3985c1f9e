#include "actors/node/work_watch.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::actors {

Duration long_work_interval(double stall_timeout_s, double join_timeout_s) {
  constexpr Duration kLongest = std::chrono::seconds(10);
  return std::min(kLongest, seconds(std::min(stall_timeout_s, join_timeout_s) / 4));
}

std::optional<engine::LongWorks> WorkWatch::pass(Time now, Duration interval,
                                                 const WorkOfDevices& devices) {
  if (!pace_.due(now, interval)) return std::nullopt;
  engine::LongWorks told;
  const double least_s = std::chrono::duration<double>(interval).count();
  for (const auto& [device, in_hand] : devices)
    if (auto work = in_hand->longer_than(least_s)) told.works.push_back(std::move(*work));
  const bool was_told = std::exchange(is_told_, !told.works.empty());
  if (told.works.empty() && !was_told) return std::nullopt;
  return told;
}

}  // namespace troupe::actors
