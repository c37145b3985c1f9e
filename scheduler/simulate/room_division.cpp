#include "scheduler/simulate/room_division.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::scheduler {

namespace {

constexpr double kMany = 1 << 20;

/// Whole microbatches that each encoder stage may keep; very many where they keep nothing.
double width_beside(std::int32_t in_flight, double room, const RoomDemand& demand) {
  const double beside_llm = room + demand.leaving_bytes - in_flight * demand.llm_bytes;
  const double left = std::min(room, beside_llm) - demand.once_bytes;
  if (left < 0) return 0;
  return demand.encoder_bytes > 0 ? std::min(kMany, std::floor(left / demand.encoder_bytes))
                                  : kMany;
}

}  // namespace

RoomDivision divide_room(double room, const RoomDemand& demand) {
  RoomDivision best;
  double least = std::numeric_limits<double>::infinity();
  for (auto in_flight = static_cast<std::int32_t>(demand.depth); in_flight >= 1; --in_flight) {
    double width = width_beside(in_flight, room, demand);
    if (width < 1 && in_flight > 1) continue;
    // One of each all the same; who keeps nothing is in no one's way where the llm lacks room.
    width = std::max(demand.encoder_bytes > 0 ? 1.0 : kMany, width);
    const double windows = std::max(1.0, std::ceil(demand.encoder_microbatches / width));
    // The depth is the same of all, and left out.
    const double time = windows + std::max(0.0, demand.llm_microbatches - windows) / in_flight;
    if (time < least) {
      least = time;
      best = {static_cast<std::int32_t>(width), in_flight, windows, demand.depth / in_flight};
    }
    if (windows <= 1) break;  // Fewer in flight make no fewer windows.
  }
  return best;
}

}  // namespace troupe::scheduler
