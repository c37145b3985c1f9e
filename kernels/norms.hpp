// Normalisation of each row with a learned scale. Statistics are kept in fp32 for bf16 rows, and in
// the rows' own type otherwise (fp64 stays fp64 throughout).

#pragma once

#include <ATen/core/Tensor.h>

namespace troupe::kernels {

/// rows / sqrt(mean(rows^2) + eps) * weight; the normalised rows are rounded to the rows' type
/// before the product, as Llama does. rows: [rows, width]; weight: [width].
at::Tensor rms_norm(const at::Tensor& rows, const at::Tensor& weight, double eps);

/// (rows - mean) / sqrt(variance + eps) * weight + bias. rows: [rows, width]; others [width].
at::Tensor layer_norm(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                      double eps);

}  // namespace troupe::kernels
