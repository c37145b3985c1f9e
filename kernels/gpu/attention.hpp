// Bitfield attention on a GPU: raw pointers of its memory and a stream, no LibTorch. What is
// launched is finished when the stream is.
//
// Tiles of keys that a block of queries sees nothing of are skipped (Cornstarch section 3.4.2), by
// lists made on the host (kernels/gpu_tile_lists.hpp). Backward is two passes, one by query and one
// by key, that each compute the scores anew. A block with much to do may be cut into sub-blocks
// (section 3.3.2): each leaves a partial result, and one more kernel adds these up in their order.
// No sum is shared between thread blocks otherwise, so the same input gives the same bits.
//
// Internal to kernels/. Shapes: R rows, H heads, K kv_heads, D dim.

#pragma once

#include <cstdint>

namespace troupe::kernels::gpu {

/// A CUDA stream.
using Stream = void*;

/// Blocks of queries and tiles of keys that the kernels below are written for.
inline constexpr int kQueryBlock = 128, kKeyTile = 64;  ///< bf16, forward.
inline constexpr int kBackTile = 64;                    ///< bf16, backward, both ways.
inline constexpr int kPlainTile = 32;                   ///< fp32 and fp64, all ways.
/// Statistics of rows are kept for so many more that the last block is whole.
inline constexpr std::int64_t padded_rows(std::int64_t rows) {
  return (rows + kQueryBlock - 1) / kQueryBlock * kQueryBlock;
}

/// Half of a pair, and what must be asked about its elements: a `TileTest` as a number.
struct TileEntry {
  std::int32_t other = 0;  ///< Tile of keys in a list by query, block of queries in one by key.
  std::int32_t test = 0;
};

/// What one thread block does for one head: a run of a block's turns. A turn is one entry of its
/// list; by key, one entry for one query head of the group: all entries for the first, and so on.
struct alignas(16) SubBlock {
  std::int32_t block = 0;
  std::int32_t from = 0, to = 0;  ///< Turns; 0 and 0 of a block without any.
  std::int32_t slot = -1;         ///< Of its partial result; -1: it has the whole block.

  friend bool operator==(const SubBlock&, const SubBlock&) = default;
};

/// A block that was cut: its partial results have the slots [slot, slot + count), in their order.
struct SplitBlock {
  std::int32_t block = 0;
  std::int32_t slot = 0, count = 0;

  friend bool operator==(const SplitBlock&, const SplitBlock&) = default;
};

/// For each block of one side the blocks of the other that meet it.
struct TileList {
  const std::int32_t* begin = nullptr;  ///< [blocks + 1] places in `entries`.
  const TileEntry* entries = nullptr;
  const SubBlock* parts = nullptr;     ///< [part_count]: those with most to do first.
  const SplitBlock* splits = nullptr;  ///< [split_count].
  std::int64_t part_count = 0, split_count = 0;
  std::int64_t slots = 0;  ///< Partial results of a head.
};

/// How many thread blocks of each kernel a GPU runs at once: what blocks are cut for. 0: none is.
struct Places {
  std::int64_t forward = 0, back_by_query = 0, by_key = 0;
};

/// What rows see, beside the lists.
struct MaskRows {
  const std::int32_t* ranges = nullptr;  ///< [R, 2]: first key and the one behind the last.
  const std::int64_t* words = nullptr;   ///< [R]: words of `TokenMask`.
};

/// Rows of heads; the elements of one lie end to end. Strides in elements.
struct HeadRows {
  void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;
};

struct Attention {
  std::int64_t rows = 0, heads = 0, kv_heads = 0, dim = 0;
  double scale = 0;
  Places places;
  MaskRows mask;
  TileList by_query;               ///< Of forward.
  TileList back_by_query, by_key;  ///< Of backward.
  HeadRows query, key, value;
  void* log_total = nullptr;  ///< [H, padded R]: what weights were divided by, as a power of 2
                              ///< (bf16) or e; fp32 or fp64.
  void* room = nullptr;       ///< `forward_room` numbers, for forward alone; fp32 or fp64.
};

struct AttentionGradients {
  HeadRows d_out, out;               ///< Read.
  void* pull = nullptr;              ///< [H, padded R]: room for sum(d_out * out).
  HeadRows d_query, d_key, d_value;  ///< Written; d_key and d_value have K heads.
  void* room = nullptr;              ///< `backward_room` numbers; fp32 or fp64.
};

/// Columns behind the sums of a row's partial result: its largest score, its sum of weights, and
/// as many unused ones as keep rows of 8 fp32 aligned to 32 bytes.
inline constexpr std::int64_t kTotalColumns = 8;

/// Numbers that partial results take: [slots, H, rows of a block, D + kTotalColumns]. Lists and
/// sizes of `attention` must be there.
inline std::int64_t forward_room(const Attention& attention, bool bf16) {
  return attention.by_query.slots * attention.heads * (bf16 ? kQueryBlock : kPlainTile) *
         (attention.dim + kTotalColumns);
}
/// By key [slots, K, rows of a block, 2 D], and then by query in the same place
/// [slots, H, rows of a block, D].
inline std::int64_t backward_room(const Attention& attention, bool bf16) {
  const auto by_key = 2 * attention.by_key.slots * attention.kv_heads;
  const auto by_query = attention.back_by_query.slots * attention.heads;
  return (by_key > by_query ? by_key : by_query) * (bf16 ? kBackTile : kPlainTile) * attention.dim;
}

/// Whether the bf16 kernels take such heads: sizes of 8 to 128 in steps of 8.
inline bool takes_bf16(std::int64_t dim) { return dim % 8 == 0 && dim <= 128; }
/// Whether the plain kernels do.
inline bool takes_plain(std::int64_t dim, bool wide) { return dim <= (wide ? 128 : 256); }

/// In bf16: products and weights are rounded to it, sums and softmax are fp32. Rows and heads begin
/// at multiples of 16 bytes. REQUIRES: takes_bf16(dim).
void attend_bf16(const Attention& attention, const HeadRows& out, Stream stream);
void attend_bf16_backward(const Attention& attention, const AttentionGradients& gradients,
                          Stream stream);
/// Of the current device; `by_key` and `back_by_query` by the second. REQUIRES: takes_bf16(dim).
std::int64_t places_bf16(std::int64_t dim);
Places places_bf16_backward(std::int64_t dim);

/// In fp32 (`wide`: fp64) throughout. REQUIRES: takes_plain(dim, wide).
void attend_plain(const Attention& attention, const HeadRows& out, bool wide, Stream stream);
void attend_plain_backward(const Attention& attention, const AttentionGradients& gradients,
                           bool wide, Stream stream);
/// Of the current device. REQUIRES: takes_plain(dim, wide).
Places places_plain(std::int64_t dim, bool wide);

}  // namespace troupe::kernels::gpu
