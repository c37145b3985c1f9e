// What devices would hold under a schedule of phases, and how wide its windows can then be: for
// layouts that are not simulated yet.
//
// Pure value, single owner. The rule is that of steps (memory_bounds.hpp, phase_windows.hpp): the
// stages of a device share what state leaves, and the narrowest encoder decides for all.

#pragma once

#include <cstdint>
#include <vector>

namespace troupe::scheduler {

class PhaseMemory {
 public:
  /// `device_memory`: bytes of a device; 0: not limited. REQUIRES: devices >= 1.
  PhaseMemory(std::int32_t devices, double device_memory);

  /// A stage on a device: bytes of its state, and of one microbatch that it keeps; how many it has
  /// in flight where nothing binds, of an encoder one.
  void add(std::int32_t device, bool is_encoder, double state_bytes, double microbatch_bytes,
           double in_flight = 1);

  /// What the fullest device holds with one microbatch of each of its stages.
  double least_bytes() const;

  /// The same with as many microbatches as its stages have in flight.
  double wanted_bytes() const;

  /// Windows of a replica that encodes so many microbatches: all in one where memory does not
  /// bind. At least 1.
  double windows(double microbatches) const;

  /// How many times as long the llm takes for a microbatch where memory keeps it from having as
  /// many in flight as `add` was told: then one ends per round trip / in flight. At least 1.
  double held_back() const;

 private:
  struct Stage {
    std::int32_t device = 0;
    double microbatch_bytes = 0;
    double in_flight = 1;
  };
  struct Device {
    double state_bytes = 0, microbatch_bytes = 0, wanted_bytes = 0;
    double stages = 0;
  };

  /// Microbatches of it that fit the share of a stage.
  double kept(const Stage& stage) const;

  double memory_ = 0;
  std::vector<Device> devices_;
  std::vector<Stage> encoders_, llm_;
};

}  // namespace troupe::scheduler
