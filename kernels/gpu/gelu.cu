#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/row_pieces.cuh"

namespace troupe::kernels::gpu {

namespace {

// x Phi(x), by the complement of the error function: 1 + erf loses all digits where x is far below
// zero.
struct Gelu {
  template <class W>
  static __device__ W share(W x) {
    return W{0.5} * erfc(-x * W{0.70710678118654752440});
  }
  template <class W>
  static __device__ W value(W x) {
    return x * share(x);
  }
  template <class W>
  static __device__ W slope(W x) {
    return share(x) + x * exp(W{-0.5} * x * x) * W{0.39894228040143267794};  // 1 / sqrt(2 pi).
  }
};

// With s = sigmoid(kx): s (1 + kx (1 - s)).
struct QuickGelu {
  template <class W>
  static __device__ W value(W x) {
    return x * sigmoid(W{1.702} * x);
  }
  template <class W>
  static __device__ W slope(W x) {
    const W scaled = W{1.702} * x, s = sigmoid(scaled);
    return s * (1 + scaled * (1 - s));
  }
};

template <int Count, class T, class Of>
__global__ void unit_forward(const T* in, T* out, std::int64_t count) {
  const std::int64_t at = thread_of_grid() * Count;
  if (at >= count) return;
  const auto x = read<Count>(in, at);
  Piece<Count, T> y;
  for (int e = 0; e < Count; ++e) y.at[e] = narrow<T>(Of::value(widen(x.at[e])));
  write<Count>(out, at, y);
}

template <int Count, class T, class Of>
__global__ void unit_backward(const T* in, const T* d_out, T* d_in, std::int64_t count) {
  const std::int64_t at = thread_of_grid() * Count;
  if (at >= count) return;
  const auto x = read<Count>(in, at), d = read<Count>(d_out, at);
  Piece<Count, T> y;
  for (int e = 0; e < Count; ++e) y.at[e] = narrow<T>(Of::slope(widen(x.at[e])) * widen(d.at[e]));
  write<Count>(d_in, at, y);
}

// Calls `function` with the unit.
template <class Function>
void in_unit(Unit unit, Function function) {
  switch (unit) {
    case Unit::gelu: return function(Gelu{});
    case Unit::quick_gelu: return function(QuickGelu{});
  }
}

}  // namespace

void activate(Element element, Unit unit, const void* in, void* out, std::int64_t count,
              Stream stream) {
  in_unit(unit, [&](auto of) {
    in_pieces(
        element, count,
        [&](auto zero, auto per) {
          using T = decltype(zero);
          start(unit_forward<decltype(per)::value, T, decltype(of)>, blocks_for(count / per),
                kThreads, 0, stream, static_cast<const T*>(in), static_cast<T*>(out), count);
        },
        in, out);
  });
}

void activate_backward(Element element, Unit unit, const void* in, const void* d_out, void* d_in,
                       std::int64_t count, Stream stream) {
  in_unit(unit, [&](auto of) {
    in_pieces(
        element, count,
        [&](auto zero, auto per) {
          using T = decltype(zero);
          start(unit_backward<decltype(per)::value, T, decltype(of)>, blocks_for(count / per),
                kThreads, 0, stream, static_cast<const T*>(in), static_cast<const T*>(d_out),
                static_cast<T*>(d_in), count);
        },
        in, d_out, d_in);
  });
}

}  // namespace troupe::kernels::gpu
