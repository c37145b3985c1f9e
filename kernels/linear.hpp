// Matrix products with weights, whose backward can be split into input gradients now and weight
// gradients later (`DeferWeightGradients`). Everything in `models/` that has a weight matrix goes
// through here.

#pragma once

#include <ATen/core/Tensor.h>

namespace troupe::kernels {

/// rows x weight^T + bias, as `torch.nn.functional.linear`.
///
/// rows: [rows, in]. weight: [out, in], or [out, a, b, ...] with a * b * ... == in (a convolution's
/// weight on unfolded rows). bias: [out] or undefined. All of one dtype. Returns [rows, out].
///
/// Deferred or not, gradients have the same bits. Only leaf weights are deferred, and only in
/// `backward()`: `autograd::grad` for chosen inputs never touches other leaves.
at::Tensor linear(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace troupe::kernels
