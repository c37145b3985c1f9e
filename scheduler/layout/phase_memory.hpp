// What devices would hold under a schedule of phases, and how wide its windows can then be: for
// layouts that are not simulated yet.
//
// Pure value, single owner. The rule is that of steps (room_division.hpp, phase_windows.hpp): the
// stages of a device divide what state leaves, and the narrowest encoder decides for all.

#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/layout/layout_shapes.hpp"
#include "scheduler/simulate/room_division.hpp"

namespace troupe::scheduler {

/// A stage of encoders or of the llm.
struct PhaseStage {
  std::int32_t segment = 0;  ///< Of the track.
  double state_bytes = 0;
  double leaving_bytes = 0;  ///< Of these, parameters that leave while the llm computes.
  StageDemand demand;        ///< Its `microbatches` and `encoded` are not known yet.
};

/// The stages that the segments of a track are, in their order: one of encoders, one of the llm, or
/// both. What comes from stages before and what is offloaded count as in steps
/// (`with_arriving_rows`, `with_offloading`).
std::vector<PhaseStage> phase_stages(const Track& track, const LayerWeights& weights, ModuleId llm);

class PhaseMemory {
 public:
  /// `device_memory`: bytes of a device; 0: not limited. REQUIRES: devices >= 1.
  PhaseMemory(std::int32_t devices, double device_memory);

  /// A stage on a device, whose replica has so many microbatches in a step. `encoded`: the same of
  /// the replica of encoders that has most; 0: rows come from none.
  void add(std::int32_t device, const PhaseStage& stage, double microbatches, double encoded = 0);

  /// What the fullest device holds with one microbatch of each of its stages, without rows that
  /// wait for the llm: those of a window may be fewer than its microbatches times the most rows of
  /// one. What encoders offload of one, and their parameters that leave, are not there while the
  /// llm computes.
  double least_bytes() const;

  /// The same with these, and with as many microbatches of the llm as are in flight where nothing
  /// binds.
  double wanted_bytes() const;

  /// What memory costs a step. Both are 1 where it does not bind.
  struct Pace {
    double windows = 1;    ///< That encoders go over.
    double held_back = 1;  ///< Times as long that the llm takes for a microbatch.
  };

  /// By the division of each device (`divide_room`): the most windows of a device, and the llm's
  /// stage that is held back most.
  Pace pace() const;

 private:
  struct Device {
    double state_bytes = 0;
    double offloaded_bytes = 0;  ///< Of one microbatch, of the encoder stage with most.
    RoomDemand demand;
  };

  double memory_ = 0;
  std::vector<Device> devices_;
};

}  // namespace troupe::scheduler
