// Who keeps how much of a device's room where encoders and llm share it in a schedule of phases:
// encoders the microbatches of a window, the llm those in flight.
//
// Pure. One rule for steps (memory_bounds.hpp) and for layouts that nobody has simulated yet
// (phase_memory.hpp, layout.hpp).

#pragma once

#include <cstdint>

namespace troupe::scheduler {

/// What all stages of a device would keep there. Bytes are not negative.
struct RoomDemand {
  double encoder_bytes = 0;         ///< Of one microbatch of each encoder stage.
  double once_bytes = 0;            ///< Beside these, however wide windows are.
  double leaving_bytes = 0;         ///< Parameters of encoders: the llm has their room.
  double encoder_microbatches = 0;  ///< Of a step, on the replica that encodes most.
  double llm_bytes = 0;             ///< Of one microbatch of each stage of the llm.
  double llm_microbatches = 0;      ///< Of a step, on the replica that trains most.
  double depth = 1;  ///< Microbatches of the llm in flight where nothing binds; whole, >= 1.
};

struct RoomDivision {
  std::int32_t width = 1;      ///< Microbatches of a window: what each encoder stage may keep.
  std::int32_t in_flight = 1;  ///< What each stage of the llm may keep; `depth` at most.
  double windows = 1;          ///< That the encoders' microbatches make.
  double held_back = 1;  ///< Times as long as with `depth` in flight that a microbatch then takes.
};

/// Divides `room`, the bytes that state leaves of a device: so many microbatches of the llm are in
/// flight, from one to `depth`, that
///
///     windows x depth + (llm_microbatches - windows) x depth / in_flight
///
/// is least, in times that a microbatch takes on a stage. Each window fills the stages of the llm
/// anew; of its other microbatches one ends per round trip through them / in flight. The rest of
/// the room is the encoders':
///
///     width = (room + leaving_bytes - in_flight x llm_bytes - once_bytes) / encoder_bytes
///     windows = encoder_microbatches / width, rounded up
///
/// where width is no more than `room` alone has place for. Halves would leave an llm that is short
/// of memory waiting beside room that encoders have no use for. Ties: more in flight.
///
/// Never more than the room, if that holds a microbatch of each; else one of each all the same.
/// Every device decides by itself, and windows that it shares with others are the narrowest one's.
/// Stages of a replica are about alike, so that this is the one with most in flight, and the others
/// are in no one's way.
///
/// Cost: O(depth). REQUIRES: room >= 0.
RoomDivision divide_room(double room, const RoomDemand& demand);

}  // namespace troupe::scheduler
