#include "kernels/gpu/adamw.hpp"

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <type_traits>

#include "kernels/gpu/adamw_table.hpp"
#include "kernels/gpu/elements.cuh"
#include "kernels/gpu/launch.cuh"

namespace troupe::kernels::gpu {

namespace {

constexpr int kThreads = 256;

template <class N>
struct Coefficients {
  explicit Coefficients(const AdamWCoefficients& c)
      : clip(static_cast<N>(c.clip)),
        mean_rate(static_cast<N>(c.mean_rate)),
        square_decay(static_cast<N>(c.square_decay)),
        square_rate(static_cast<N>(c.square_rate)),
        step_size(static_cast<N>(c.step_size)),
        root_correction(static_cast<N>(c.root_correction)),
        eps(static_cast<N>(c.eps)) {}
  N clip, mean_rate, square_decay, square_rate, step_size, root_correction, eps;
};

// `Count` elements, from `at` on.
template <int Count, class N>
__device__ inline void step_elements(const AdamWTensor& x, std::int64_t at,
                                     const Coefficients<N>& c, N decay, bool zeroes) {
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
    weight.at[e] = weight.at[e] * decay - c.step_size * (m / denominator);
  }
  write<Count>(weights, at, weight);
  write<Count>(means, at, mean);
  write<Count>(squares, at, square);
  if (gradients && zeroes) write<Count>(gradients, at, Piece<Count, N>{});
  if (x.rounded == nullptr) return;
  Piece<Count, __nv_bfloat16> rounded;
#pragma unroll
  for (int e = 0; e < Count; ++e)
    rounded.at[e] = __float2bfloat16_rn(static_cast<float>(weight.at[e]));
  write<Count>(static_cast<__nv_bfloat16*>(x.rounded), at, rounded);
}

// A thread block a piece. In vectors each thread has one, of which the last may be cut; else
// elements in turn. fp64 goes one by one: it is there to compare with, not to be fast.
template <class N>
__global__ void step(const __grid_constant__ AdamWTable table, const Coefficients<N> c,
                     bool zeroes) {
  constexpr int kVector = static_cast<int>(kAdamWElements / kThreads);
  const AdamWPiece piece = piece_of(table, static_cast<std::int32_t>(blockIdx.x));
  const AdamWTensor& x = table.tensors[piece.tensor];
  const N decay = static_cast<N>(x.decay);
  if constexpr (std::is_same_v<N, float>) {
    static_assert(kVector == kPerVector<N>);
    if (table.in_vectors[piece.tensor]) {
      const std::int64_t at = piece.begin + static_cast<std::int64_t>(threadIdx.x) * kVector;
      if (at + kVector <= piece.end) return step_elements<kVector>(x, at, c, decay, zeroes);
      for (std::int64_t e = at; e < piece.end; ++e) step_elements<1>(x, e, c, decay, zeroes);
      return;
    }
  }
  for (std::int64_t at = piece.begin + threadIdx.x; at < piece.end; at += kThreads)
    step_elements<1>(x, at, c, decay, zeroes);
}

static_assert(sizeof(AdamWTable) + sizeof(Coefficients<double>) + sizeof(void*) <= 4096,
              "a kernel takes no more parameters on every GPU");

}  // namespace

void adamw(std::span<const AdamWTensor> tensors, const AdamWPass& pass, Stream stream) {
  const auto run = [&](auto zero) {
    using N = decltype(zero);
    const Coefficients<N> coefficients(pass.coefficients);
    for (const AdamWTable& table : adamw_tables(tensors))
      start(step<N>, dim3(static_cast<unsigned>(table.blocks())), kThreads, 0, stream, table,
            coefficients, pass.zero_gradients);
  };
  pass.wide ? run(double{}) : run(float{});
}

}  // namespace troupe::kernels::gpu
