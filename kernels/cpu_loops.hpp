// The inner loops of kernels/ on a CPU: raw pointers, no LibTorch, compiled for several instruction
// sets and chosen at start-up. For float and double; results are deterministic.
//
// Internal to kernels/.

#pragma once

#include <cstdint>

namespace troupe::kernels::cpu {

/// Rows of this width that are worth a thread of their own.
inline std::int64_t grain(std::int64_t width) { return 32768 / width + 1; }

/// Shape and strides (in elements) of heads to rotate. The output is dense.
struct HeadsShape {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t half = 0;  ///< head_dim / 2.
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;
};

/// out(j), out(j + half) = the pair turned by sign * angle(row, j). sign is 1 or -1.
void rotate(const float* in, const float* cosine, const float* sine, float sign, HeadsShape shape,
            float* out);
void rotate(const double* in, const double* cosine, const double* sine, double sign,
            HeadsShape shape, double* out);

/// out = in * scale * weight with scale = 1 / sqrt(mean(in^2) + eps), which is kept per row.
void rms_norm(const float* in, const float* weight, float eps, std::int64_t rows,
              std::int64_t width, float* scale, float* out);
void rms_norm(const double* in, const double* weight, double eps, std::int64_t rows,
              std::int64_t width, double* scale, double* out);

/// Gradients of `rms_norm`. d_in and d_weight may each be null; d_weight is added to.
void rms_norm_backward(const float* d_out, const float* in, const float* weight, const float* scale,
                       std::int64_t rows, std::int64_t width, float* d_in, float* d_weight);
void rms_norm_backward(const double* d_out, const double* in, const double* weight,
                       const double* scale, std::int64_t rows, std::int64_t width, double* d_in,
                       double* d_weight);

}  // namespace troupe::kernels::cpu
