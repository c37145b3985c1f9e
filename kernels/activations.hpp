// Activation functions, with the derivative fused. fp32 arithmetic for bf16, else the own type.

#pragma once

#include <ATen/core/Tensor.h>

namespace troupe::kernels {

/// silu(gate) * up, the gated unit of Llama. Equal shapes.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// x * sigmoid(1.702 x), as in CLIP's and Qwen2-VL's vision blocks.
at::Tensor quick_gelu(const at::Tensor& x);

/// x * Phi(x) with the exact normal distribution function.
at::Tensor gelu(const at::Tensor& x);

}  // namespace troupe::kernels
