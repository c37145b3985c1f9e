// One-dimensional convolution over packed windows of frames that never mixes neighbours.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace troupe::kernels {

/// Convolution of kernel size 3 with one frame of zeros on either side of each window.
///
/// frames: [sum of windows, channels]; weight: [out, channels, 3]; bias: [out]. stride 1 or 2:
/// a window of f frames gives ceil(f / stride) rows. Returns [rows, out]. Weight gradients can be
/// deferred as those of `linear`.
at::Tensor window_convolution(const at::Tensor& frames, const at::Tensor& weight,
                              const at::Tensor& bias, const std::vector<std::int64_t>& windows,
                              std::int64_t stride);

}  // namespace troupe::kernels
