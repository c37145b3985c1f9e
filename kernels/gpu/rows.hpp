// Operators on rows on a GPU, each one pass over its memory: raw pointers and a stream, no
// LibTorch. Sums have a fixed order, so the same input gives the same bits.
//
// Internal to kernels/. Rows are dense unless strides are given; sizes in elements.

#pragma once

#include <cstdint>

#include "kernels/gpu/attention.hpp"

namespace troupe::kernels::gpu {

/// Of the rows. Statistics and arithmetic are fp32 for bf16 and fp32, fp64 for fp64.
enum class Element : std::uint8_t { bf16, fp32, fp64 };

struct NormRows {
  Element element = Element::fp32;
  std::int64_t rows = 0, width = 0;
  const void* in = nullptr;
  const void* weight = nullptr;
  void* scale = nullptr;  ///< [rows], fp32 or fp64: 1 / sqrt(mean(in^2) + eps).
};

/// Widest rows that `rms_norm_backward` has shared memory for.
inline constexpr std::int64_t kNormWidthMax = 24576;
/// Partial sums of a weight's gradient that `rms_norm_backward` needs room for: [parts, width].
inline constexpr std::int64_t kNormParts = 264;

/// out = in * scale, rounded, * weight; writes scale.
void rms_norm(const NormRows& norm, double eps, void* out, Stream stream);
/// d_in and d_weight may each be null. partial: fp32 or fp64 [kNormParts, width].
/// REQUIRES: width <= kNormWidthMax (fp64: half of it).
void rms_norm_backward(const NormRows& norm, const void* d_out, void* d_in, void* d_weight,
                       void* partial, Stream stream);

struct LayerNormRows {
  Element element = Element::fp32;
  std::int64_t rows = 0, width = 0;
  const void* in = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* mean = nullptr;   ///< [rows], fp32 or fp64.
  void* scale = nullptr;  ///< Likewise: 1 / sqrt(variance + eps).
};

/// out = (in - mean) * scale * weight + bias, rounded once; writes mean and scale.
void layer_norm(const LayerNormRows& norm, double eps, void* out, Stream stream);
/// Any gradient may be null. partial: fp32 or fp64 [2, kNormParts, width], where the weight's or
/// the bias's is wanted. REQUIRES: width <= kNormWidthMax / 2 (fp64: a quarter of it).
void layer_norm_backward(const LayerNormRows& norm, const void* d_out, void* d_in, void* d_weight,
                         void* d_bias, void* partial, Stream stream);

/// Activation functions of one input.
enum class Unit : std::uint8_t {
  gelu,        ///< x * Phi(x), the exact normal distribution function.
  quick_gelu,  ///< x * sigmoid(1.702 x).
};
/// out = unit(in), rounded once; `count` elements.
void activate(Element element, Unit unit, const void* in, void* out, std::int64_t count,
              Stream stream);
/// d_in = unit'(in) * d_out, rounded once.
void activate_backward(Element element, Unit unit, const void* in, const void* d_out, void* d_in,
                       std::int64_t count, Stream stream);

/// out = silu(gate), rounded, * up; `count` elements.
void swiglu(Element element, const void* gate, const void* up, void* out, std::int64_t count,
            Stream stream);
/// d_gate and d_up may each be null.
void swiglu_backward(Element element, const void* gate, const void* up, const void* d_out,
                     void* d_gate, void* d_up, std::int64_t count, Stream stream);

/// out(j), out(j + half) = the pair turned by sign * angle(row, j). cosine, sine: [rows, half],
/// fp32 or fp64 as the element says. in: strides given; out: dense.
struct TurnedHeads {
  Element element = Element::fp32;
  std::int64_t rows = 0, heads = 0, half = 0;
  HeadRows in;
  const void* cosine = nullptr;
  const void* sine = nullptr;
  double sign = 1;
};
void rotate(const TurnedHeads& heads, void* out, Stream stream);

/// Cross entropy of rows of logits [rows, width]: losses and log_total (log of the sum of
/// exponentials), both [rows], fp32 or fp64. targets: int64 [rows]; the loss of one outside [0,
/// width) is no number.
struct LogitRows {
  Element element = Element::fp32;
  std::int64_t rows = 0, width = 0;
  const void* logits = nullptr;
  const std::int64_t* targets = nullptr;
  void* log_total = nullptr;
};
void cross_entropy(const LogitRows& rows, void* losses, Stream stream);
/// d_logits = (softmax - one at the target) * d_losses, in the logits' type; it may be the logits.
/// These may be some columns of those that `log_total` is of: targets count from the first of them,
/// and one outside [0, width) is none of these.
void cross_entropy_backward(const LogitRows& rows, const void* d_losses, void* d_logits,
                            Stream stream);

}  // namespace troupe::kernels::gpu
