// AdamW on a GPU: all parameters of a group in one launch, and one pass over what it reads and
// writes. Raw pointers and a stream.
//
// Compiled without fused multiply-adds, so that it gives the bits of a CPU's (runtime/state/adamw).

#pragma once

#include <cstdint>
#include <span>

#include "kernels/gpu/attention.hpp"

namespace troupe::kernels::gpu {

/// Coefficients as `state::adamw_step` rounds them: to the type of the state. All tensors of a
/// launch share them; clip and rates are known to the host when it launches (they come with
/// COMMIT), so that no device has to be asked for them.
struct AdamWCoefficients {
  double clip = 1, mean_rate = 0, square_decay = 0, square_rate = 0, step_size = 0,
         root_correction = 1, eps = 0;
};

/// A parameter: `count` elements each, dense.
struct AdamWTensor {
  std::int64_t count = 0;
  double decay = 1;  ///< Of the weight, before it moves; rounded as coefficients are.
  void* weight = nullptr;
  void* mean = nullptr;
  void* square = nullptr;
  void* gradient = nullptr;  ///< Null: zeros.
  void* rounded = nullptr;   ///< bf16: the weight, to nearest even. Null: not wanted.
};

/// What is the same for all tensors of a call.
struct AdamWPass {
  AdamWCoefficients coefficients;
  bool wide = false;  ///< All but `rounded` is fp64; else fp32.
  bool zero_gradients = false;
};

/// A launch for each `kAdamWTensors` of them (adamw_table.hpp). No two overlap.
void adamw(std::span<const AdamWTensor> tensors, const AdamWPass& pass, Stream stream);

}  // namespace troupe::kernels::gpu
