// Where the encoders of a layout stand beside its llm, for choices among layouts and for those who
// tell of them.
//
// Pure.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::scheduler {

enum class EncoderPlacement : std::uint8_t {
  apart,   ///< No device has a stage of both.
  partly,  ///< Some stages of encoders share a device with one of the llm.
  shared,  ///< All do: colocated.
};

/// None for a model of the llm alone. REQUIRES: a complete plan.
std::optional<EncoderPlacement> encoder_placement(const ParallelPlan& plan);

/// `encoders on the llm's devices`, as shown to users.
std::string describe(EncoderPlacement placement);

/// One word, for programs: `apart`, `partly`, `shared`.
std::string to_string(EncoderPlacement placement);

}  // namespace troupe::scheduler
