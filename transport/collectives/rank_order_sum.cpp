#include "transport/collectives/rank_order_sum.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace troupe::transport {
namespace {

/// Elements summed at a time: the partial sums stay in the nearest cache, and every input of a
/// block is read before the output, which may be one of them, is written.
constexpr std::size_t kBlock = 1024;

/// An element type as it lies in memory, and the type that it is summed in.
template <class T>
struct Plain {
  using Stored = T;
  using Sum = T;
  static Sum widen(Stored x) { return x; }
  static Stored narrow(Sum x) { return x; }
};

struct Integer : Plain<std::int64_t> {
  // Unsigned, so that an overflow wraps the same everywhere instead of being undefined.
  using Sum = std::uint64_t;
  static Sum widen(Stored x) { return static_cast<Sum>(x); }
  static Stored narrow(Sum x) { return static_cast<Stored>(x); }
};

struct Brain16 {
  using Stored = std::uint16_t;
  using Sum = float;
  static Sum widen(Stored x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }
  static Stored narrow(Sum x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if (x != x) return static_cast<Stored>((bits >> 16) | 0x40);  // Rounding could make it Inf.
    return static_cast<Stored>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }
};

template <class Element>
void sum(std::span<const void* const> inputs, std::size_t count, void* output) {
  using Stored = typename Element::Stored;
  typename Element::Sum sums[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const auto size = std::min(kBlock, count - begin);
    const auto* first = static_cast<const Stored*>(inputs[0]) + begin;
    for (std::size_t i = 0; i < size; ++i) sums[i] = Element::widen(first[i]);
    for (const void* input : inputs.subspan(1)) {
      const auto* block = static_cast<const Stored*>(input) + begin;
      for (std::size_t i = 0; i < size; ++i) sums[i] += Element::widen(block[i]);
    }
    auto* block = static_cast<Stored*>(output) + begin;
    for (std::size_t i = 0; i < size; ++i) block[i] = Element::narrow(sums[i]);
  }
}

}  // namespace

void sum_in_rank_order(std::span<const void* const> inputs, std::size_t count, Scalar scalar,
                       void* output) {
  switch (scalar) {
    case Scalar::fp32: return sum<Plain<float>>(inputs, count, output);
    case Scalar::fp64: return sum<Plain<double>>(inputs, count, output);
    case Scalar::bf16: return sum<Brain16>(inputs, count, output);
    case Scalar::int64: return sum<Integer>(inputs, count, output);
  }
}

}  // namespace troupe::transport
