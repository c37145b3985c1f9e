// AdamW on a GPU, one pass over what it reads and writes: raw pointers and a stream.
//
// Compiled without fused multiply-adds, so that it gives the bits of a CPU's (runtime/state/adamw).

#pragma once

#include <cstdint>

#include "kernels/gpu/attention.hpp"

namespace troupe::kernels::gpu {

/// Coefficients as `state::adamw_step` rounds them: to the type of the state.
struct AdamWCoefficients {
  double clip = 1, decay = 1, mean_rate = 0, square_decay = 0, square_rate = 0, step_size = 0,
         root_correction = 1, eps = 0;
};

/// `count` elements each, dense; fp32, or fp64 where `wide`.
struct AdamWTensors {
  std::int64_t count = 0;
  bool wide = false;
  void* weight = nullptr;
  void* mean = nullptr;
  void* square = nullptr;
  void* gradient = nullptr;  ///< Null: zeros.
  void* rounded = nullptr;   ///< bf16: the weight, to nearest even. Null: not wanted.
  bool zero_gradient = false;
};

void adamw(const AdamWTensors& tensors, const AdamWCoefficients& coefficients, Stream stream);

}  // namespace troupe::kernels::gpu
