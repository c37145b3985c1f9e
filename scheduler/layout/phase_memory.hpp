// What devices would hold under a schedule of phases, and how wide its windows can then be: for
// layouts that are not simulated yet.
//
// Pure value, single owner. The rule is that of steps (room_division.hpp, phase_windows.hpp): the
// stages of a device divide what state leaves, and the narrowest encoder decides for all.

#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/simulate/room_division.hpp"

namespace troupe::scheduler {

class PhaseMemory {
 public:
  /// `device_memory`: bytes of a device; 0: not limited. REQUIRES: devices >= 1.
  PhaseMemory(std::int32_t devices, double device_memory);

  /// A stage on a device: bytes of its state, and of one microbatch that it keeps; how many it has
  /// in flight where nothing binds, of an encoder one. REQUIRES: that is whole, and >= 1.
  void add(std::int32_t device, bool is_encoder, double state_bytes, double microbatch_bytes,
           double in_flight = 1);

  /// What the fullest device holds with one microbatch of each of its stages.
  double least_bytes() const;

  /// The same with as many microbatches as its stages have in flight.
  double wanted_bytes() const;

  /// What memory costs a step. Both are 1 where it does not bind.
  struct Pace {
    double windows = 1;    ///< That encoders go over.
    double held_back = 1;  ///< Times as long that the llm takes for a microbatch.
  };

  /// Of replicas that encode, and train, so many microbatches in a step (`divide_room`): the most
  /// windows of a device, and the llm's stage that is held back most.
  Pace pace(double encoder_microbatches, double llm_microbatches) const;

 private:
  struct Device {
    double state_bytes = 0, wanted_bytes = 0;
    RoomDemand demand;
  };

  double memory_ = 0;
  std::vector<Device> devices_;
};

}  // namespace troupe::scheduler
