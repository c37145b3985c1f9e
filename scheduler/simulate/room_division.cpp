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

void RoomDemand::add(const StageDemand& stage) {
  if (stage.is_llm) {
    llm_bytes += stage.microbatch_bytes;
    llm_microbatches = std::max(llm_microbatches, stage.microbatches);
    depth = std::max(depth, std::min(stage.depth, stage.microbatches));
    waiting_bytes += stage.rows.most * stage.microbatches;
    taken_bytes += stage.rows.least;
    rows_go_back = rows_go_back || stage.rows.go_back;
    if (stage.rows.most > 0) {
      encoded = std::max(encoded, stage.encoded);
      encoded_width = std::max(encoded_width, stage.least_width);
    }
  } else {
    encoder_bytes += stage.microbatch_bytes - stage.offloaded_bytes;
    once_bytes += stage.offloaded_bytes;
    encoder_microbatches = std::max(encoder_microbatches, stage.microbatches);
    least_width = std::max(least_width, stage.least_width);
    gradient_bytes += stage.rows.most;
  }
}

/// Rows for a whole window are there before the llm begins, and gradients for it when the llm ends:
/// as one goes the other comes, so that what is more counts with each of its microbatches. Encoders
/// elsewhere begin a window when the gradients of the one before are back, or, where none come,
/// when they like: a list makes no device wait for what another does.
RoomDemand RoomDemand::with_rows() const {
  RoomDemand demand = *this;
  demand.waiting_bytes = demand.taken_bytes = demand.gradient_bytes = demand.encoded = 0;
  const bool is_llm_alone = encoder_microbatches == 0;
  if (is_llm_alone) {
    demand.encoder_microbatches = encoded;
    demand.least_width = encoded_width;
  }
  if (demand.encoder_microbatches == 0) return demand;
  demand.llm_bytes -= taken_bytes;
  if (is_llm_alone && !rows_go_back)
    demand.once_bytes += waiting_bytes;
  else
    demand.encoder_bytes += std::max(waiting_bytes / demand.encoder_microbatches, gradient_bytes);
  return demand;
}

RoomDivision divide_room(double room, const RoomDemand& wanted) {
  const RoomDemand demand = wanted.with_rows();
  RoomDivision best;
  double least = std::numeric_limits<double>::infinity();
  for (auto in_flight = static_cast<std::int32_t>(demand.depth); in_flight >= 1; --in_flight) {
    double width = width_beside(in_flight, room, demand);
    if (width < demand.least_width && in_flight > 1) continue;
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
