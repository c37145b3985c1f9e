// Who keeps how much of a device's room where encoders and llm share it in a schedule of phases:
// encoders the microbatches of a window, the llm those in flight.
//
// Pure. One rule for steps (memory_bounds.hpp) and for layouts that nobody has simulated yet
// (phase_memory.hpp, layout.hpp): what stages want adds up here for both.

#pragma once

#include <cstdint>

namespace troupe::scheduler {

/// Of rows for a microbatch: the one with least, and the one with most.
struct RowBytes {
  double least = 0;
  double most = 0;
  bool go_back = false;  ///< Gradients come back for some.
};

/// What a stage would keep on each of its devices. Bytes are not negative.
struct StageDemand {
  bool is_llm = false;
  double microbatch_bytes = 0;  ///< Of the largest, with the rows that come for it.
  double offloaded_bytes = 0;   ///< Of these; of an encoder.
  /// Rows that come to the llm from encoders; of an encoder the gradients that come back from it.
  RowBytes rows;
  double microbatches = 0;  ///< Of a step, on its replica.
  double encoded = 0;       ///< Of the llm: the same of the replica that encodes most of its rows.
  double depth = 1;         ///< Of the llm: stages from it to the end; whole, >= 1.
  double least_width = 1;   ///< What windows cannot be narrower than; >= 1.
};

/// What all stages of a device would keep there. Bytes are not negative.
struct RoomDemand {
  double encoder_bytes = 0;         ///< Of one microbatch of each encoder stage.
  double once_bytes = 0;            ///< Beside these, however wide windows are.
  double leaving_bytes = 0;         ///< Parameters of encoders: the llm has their room.
  double encoder_microbatches = 0;  ///< Of a step, on the replica that encodes most.
  double least_width = 1;           ///< Of these, what windows cannot be narrower than; >= 1.
  double llm_bytes = 0;             ///< Of one microbatch of each stage of the llm.
  double llm_microbatches = 0;      ///< Of a step, on the replica that trains most.
  double depth = 1;  ///< Microbatches of the llm in flight where nothing binds; whole, >= 1.
  double waiting_bytes = 0;   ///< Rows from encoders for all that the llm's stages train in a step.
  double taken_bytes = 0;     ///< Of `llm_bytes` such rows, where a microbatch has least.
  bool rows_go_back = false;  ///< Gradients leave for some of these rows.
  double encoded = 0;         ///< As `encoder_microbatches`, of all that these rows come from.
  double encoded_width = 1;   ///< As `least_width`, of the same.
  double gradient_bytes = 0;  ///< That come back for one microbatch of each encoder stage.

  void add(const StageDemand& stage);

  /// The same with what comes and goes between the two sides among the bytes of microbatches: rows
  /// that wait there for the llm until it has been through a window count with each of the window's
  /// microbatches, or the gradients that come for encoders. Where encoders are elsewhere, the
  /// microbatches are theirs (`encoded`); if nothing goes back to them they wait for no window, and
  /// all rows of the step are there once.
  RoomDemand with_rows() const;
};

struct RoomDivision {
  std::int32_t width = 1;      ///< Microbatches of a window: what each encoder stage may keep.
  std::int32_t in_flight = 1;  ///< What each stage of the llm may keep; `depth` at most.
  double windows = 1;          ///< That the encoders' microbatches make.
  double held_back = 1;  ///< Times as long as with `depth` in flight that a microbatch then takes.
};

/// Divides `room`, the bytes that state leaves of a device, for what stages want there, rows
/// between the two sides included (`with_rows`): so many microbatches of the llm are in flight,
/// from one to `depth`, that
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
/// where width is no more than `room` alone has place for, and no less than `least_width`: with
/// less there would be no order. Halves would leave an llm that is short of memory waiting beside
/// room that encoders have no use for. Ties: more in flight.
///
/// Never more than the room, if that holds a microbatch of each; else one of each all the same.
/// Where `least_width` does not fit either, one of the llm is in flight, and encoders have the
/// rest: who makes a schedule will find none. Every device decides by itself, and windows that it
/// shares with others are the narrowest one's. Stages of a replica are about alike, so that this is
/// the one with most in flight, and the others are in no one's way.
///
/// Cost: O(depth). REQUIRES: room >= 0.
RoomDivision divide_room(double room, const RoomDemand& wanted);

}  // namespace troupe::scheduler
