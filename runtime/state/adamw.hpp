// AdamW (Loshchilov and Hutter, 2019) with PyTorch's rules: for one parameter, or for all of a
// group.
//
// For the engine and the reference run alike: both call this, so that equal gradients give equal
// parameters to the bit. On the CPU every element is computed alone by the same scalar expressions
// (no fused multiply-add), so neither the number of threads nor the place of an element in its
// tensor changes a bit; a GPU's kernel of ours gives the same bits. On other devices LibTorch's own
// kernel computes the same formula. Not thread-safe per parameter; different parameters are
// independent.

#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace troupe::state {
/// Of the optimizer, the same for all parameters.
struct AdamWOptions {
  double beta1 = 0.9;          ///< Decay of the mean; [0, 1).
  double beta2 = 0.95;         ///< Decay of the mean square; [0, 1).
  double eps = 1e-8;           ///< Added to the root; > 0.
  double weight_decay = 0.01;  ///< Times lr; only on tensors of two or more dimensions.
};

/// What AdamW keeps for one parameter. Copying copies handles, not elements.
struct AdamWState {
  at::Tensor master;      ///< fp32 copy of a bf16 (or fp16) parameter; else undefined.
  at::Tensor exp_avg;     ///< Running mean of gradients; type of the master, or the parameter's.
  at::Tensor exp_avg_sq;  ///< Running mean of squared gradients; same type.
};

/// Zero moments for a parameter, and a master copy where its type is narrower than fp32.
/// REQUIRES: a contiguous floating-point tensor.
AdamWState make_adamw_state(const at::Tensor& parameter);

/// The tensor that is updated exactly: the master where there is one, else the parameter.
const at::Tensor& master_of(const at::Tensor& parameter, const AdamWState& state);
/// What becomes of a gradient behind a step.
enum class GradientAfter : std::uint8_t { kept, zero };

/// One step, in place.
///
///   g = gradient * clip_factor            (an undefined gradient counts as zero)
///   w = w * (1 - lr * weight_decay)       (two or more dimensions only)
///   m = m + (1 - beta1) * (g - m);  v = beta2 * v + (1 - beta2) * g * g
///   w = w - lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
///
/// Coefficients are computed in fp64, and on a CPU rounded once to the type of the state. A narrow
/// parameter is rounded from its master (to nearest even) afterwards. With an undefined gradient
/// moments decay and the parameter still moves, as with a gradient of zeros.
///
/// `gradient`: already divided by the trained tokens of the global batch; shape of the parameter,
/// any floating type (converted to the state's). `step`: from 1; it alone decides the bias
/// correction. `learning_rate`: of this step and module. `after`: what becomes of `gradient`;
/// zeroing it here, while it is in the caches, saves a pass over memory before the next step.
/// REQUIRES: contiguous parameter and state, on one device.
void adamw_step(at::Tensor& parameter, AdamWState& state, const at::Tensor& gradient,
                const AdamWOptions& options, double learning_rate, double clip_factor,
                std::int64_t step, GradientAfter after = GradientAfter::kept);

/// The same for all parameters of a group, with the bits of `adamw_step` for each of them on that
/// device; gradients are zero behind it. On a GPU with a kernel of ours one launch clips, steps,
/// rounds and zeroes them all; on other devices LibTorch's fused kernel takes many at once; on a
/// CPU one goes after another.
///
/// `gradients`: of the states' type, the same for all. REQUIRES: lists of one length; contiguous
/// tensors, on one device.
void adamw_steps(const std::vector<at::Tensor>& parameters, const std::vector<AdamWState>& states,
                 const std::vector<at::Tensor>& gradients, const AdamWOptions& options,
                 double learning_rate, double clip_factor, std::int64_t step);

}  // namespace troupe::state
