#include "kernels/gpu/adamw.hpp"

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <type_traits>

#include "kernels/gpu/elements.cuh"
#include "kernels/gpu/launch.cuh"

namespace troupe::kernels::gpu {

namespace {

constexpr int kThreads = 256;

template <class N>
struct Coefficients {
  explicit Coefficients(const AdamWCoefficients& c)
      : clip(static_cast<N>(c.clip)),
        decay(static_cast<N>(c.decay)),
        mean_rate(static_cast<N>(c.mean_rate)),
        square_decay(static_cast<N>(c.square_decay)),
        square_rate(static_cast<N>(c.square_rate)),
        step_size(static_cast<N>(c.step_size)),
        root_correction(static_cast<N>(c.root_correction)),
        eps(static_cast<N>(c.eps)) {}
  N clip, decay, mean_rate, square_decay, square_rate, step_size, root_correction, eps;
};

// `Count` elements a thread.
template <int Count, class N>
__global__ void step(AdamWTensors x, Coefficients<N> c) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * Count;
  if (at >= x.count) return;
  auto* weights = static_cast<N*>(x.weight);
  auto* means = static_cast<N*>(x.mean);
  auto* squares = static_cast<N*>(x.square);
  auto* gradients = static_cast<N*>(x.gradient);
  auto weight = read<Count>(weights, at), mean = read<Count>(means, at),
       square = read<Count>(squares, at);
  Piece<Count, N> gradient{};
  if (gradients) gradient = read<Count>(gradients, at);
#pragma unroll
  for (int e = 0; e < Count; ++e) {
    const N g = gradient.at[e] * c.clip;
    const N m = mean.at[e] + c.mean_rate * (g - mean.at[e]);
    const N v = c.square_decay * square.at[e] + c.square_rate * g * g;
    mean.at[e] = m;
    square.at[e] = v;
    const N denominator = sqrt(v) / c.root_correction + c.eps;
    weight.at[e] = weight.at[e] * c.decay - c.step_size * (m / denominator);
  }
  write<Count>(weights, at, weight);
  write<Count>(means, at, mean);
  write<Count>(squares, at, square);
  if (gradients && x.zero_gradient) write<Count>(gradients, at, Piece<Count, N>{});
  if (x.rounded == nullptr) return;
  Piece<Count, __nv_bfloat16> rounded;
#pragma unroll
  for (int e = 0; e < Count; ++e)
    rounded.at[e] = __float2bfloat16_rn(static_cast<float>(weight.at[e]));
  write<Count>(static_cast<__nv_bfloat16*>(x.rounded), at, rounded);
}

}  // namespace

void adamw(const AdamWTensors& x, const AdamWCoefficients& coefficients, Stream stream) {
  const auto run = [&](auto zero, auto count) {
    using N = decltype(zero);
    constexpr int kCount = decltype(count)::value;
    const auto blocks = (x.count + kCount * kThreads - 1) / (kCount * kThreads);
    start(step<kCount, N>, dim3(static_cast<unsigned>(blocks)), kThreads, 0, stream, x,
          Coefficients<N>(coefficients));
  };
  using One = std::integral_constant<int, 1>;
  constexpr int kPiece = 4;
  const bool whole = in_vectors(x.count, kPiece, x.weight, x.mean, x.square, x.gradient, x.rounded);
  if (x.wide)
    run(double{}, One{});
  else if (whole)
    run(float{}, std::integral_constant<int, kPiece>{});
  else
    run(float{}, One{});
}

}  // namespace troupe::kernels::gpu
