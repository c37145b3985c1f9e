// The two passes of attention over the tiles that a mask leaves, on raw pointers: fp32 or fp64.
// Every sum has one order, so results do not depend on the number of threads.
//
// Internal to kernels/; `bitfield_attention` is what models call.

#pragma once

#include <cstdint>

#include "kernels/attention_heads.hpp"
#include "kernels/mask_tiles.hpp"

namespace troupe::kernels::cpu {

/// Heads of packed rows; the elements of one head lie end to end.
template <class T>
struct HeadRows {
  T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;

  T* at(std::int64_t row, std::int64_t head) const {
    return data + row * row_stride + head * head_stride;
  }
};

/// What both passes read. log_total, [heads, rows], is written by the forward pass: the logarithm
/// in base 2 of a row's sum of weights, infinity where it sees nothing.
template <class T>
struct BlockedAttention {
  HeadSizes sizes;
  const MaskTiles* tiles = nullptr;  ///< Blocks in strips, tiles in panels: see `fits_loops`.
  HeadRows<const T> query, key, value;
  T* log_total = nullptr;

  /// Multiply-adds of one product of all tiles.
  std::int64_t work() const {
    const auto shape = tiles->shape();
    return tiles->size() * shape.block * shape.tile * sizes.heads * sizes.dim;
  }
};

/// Whether blocks are a multiple of kStrip, tiles of the widest panel.
bool fits_loops(BlockShape shape);

/// Writes out, [rows, heads, dim]. Scratch: a copy of keys and values, and a block per thread.
template <class T>
void attend_forward(const BlockedAttention<T>& attention, HeadRows<T> out);

/// What comes back and where gradients go. pull: [heads, rows], sum of d_out * out. d_key and
/// d_value have a row per query head: the caller adds up those that share a key head.
template <class T>
struct BlockedGradients {
  HeadRows<const T> d_out;
  const T* pull = nullptr;
  HeadRows<T> d_query, d_key, d_value;
};

/// Writes all gradients. Parallel over query heads. Scratch per thread: five copies of a head.
template <class T>
void attend_backward(const BlockedAttention<T>& attention, const BlockedGradients<T>& gradients);

}  // namespace troupe::kernels::cpu
