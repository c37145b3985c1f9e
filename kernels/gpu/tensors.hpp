// LibTorch's tensors as the kernels of this folder take them.
//
// Internal to kernels/.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include "kernels/gpu/attention.hpp"
#include "kernels/gpu/rows.hpp"

namespace troupe::kernels::gpu {

/// Whether kernels of ours take this tensor: on a GPU that `supports` names, bf16, fp32 or fp64.
bool takes(const at::Tensor& tensor);

/// REQUIRES: takes(tensor).
Element element_of(const at::Tensor& tensor);

/// The type that kernels compute in.
at::ScalarType wide_type(const at::Tensor& tensor);

/// bf16 [rows, heads, dim] as kernels on tensor cores read them: a head's elements end to end, rows
/// and heads at multiples of 16 bytes; a copy where they do not lie so. REQUIRES: dim % 8 == 0.
at::Tensor aligned_heads(const at::Tensor& heads);

/// Where to launch work on a tensor: while it lives, the tensor's device is this thread's.
struct Place {
  explicit Place(const at::Tensor& tensor);

  c10::DeviceGuard guard;
  Stream stream;  ///< The device's current one, as CUDA names it.
};

}  // namespace troupe::kernels::gpu
