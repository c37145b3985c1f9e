// Online softmax over the tiles of a block: each query block and key head is a task of its own.

#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/attention_panels.hpp"
#include "kernels/blocked_attention.hpp"
#include "runtime/vocabulary/cpu_clones.hpp"

namespace troupe::kernels::cpu {

namespace {

// Sizes that packing follows from.
template <class T>
struct Packing {
  explicit Packing(const BlockedAttention<T>& attention)
      : dim(attention.sizes.dim),
        padded_dim(round_up(dim, kPanel<T>)),
        block(attention.tiles->shape().block),
        tile(attention.tiles->shape().tile) {}

  std::int64_t dim, padded_dim, block, tile;
};

// Keys and values of all tiles as right operands, [kv_heads, tiles, ...].
template <class T>
struct PackedKeys {
  explicit PackedKeys(const BlockedAttention<T>& attention)
      : sizes(attention),
        tile_count(attention.tiles->tile_count()),
        key(attention.sizes.kv_heads * tile_count * sizes.tile * sizes.dim),
        value(attention.sizes.kv_heads * tile_count * sizes.tile * sizes.padded_dim) {}

  T* keys_of(std::int64_t head, std::int64_t tile) const {
    return key.data() + (head * tile_count + tile) * sizes.tile * sizes.dim;
  }
  T* values_of(std::int64_t head, std::int64_t tile) const {
    return value.data() + (head * tile_count + tile) * sizes.tile * sizes.padded_dim;
  }

  Packing<T> sizes;
  std::int64_t tile_count;
  Scratch<T> key, value;
};

template <class T>
struct PackTile {
  PackTile(const BlockedAttention<T>& attention, const PackedKeys<T>& keys)
      : attention(attention), keys(keys) {}

  void operator()(std::int64_t task) {
    const auto head = task / keys.tile_count, tile = task % keys.tile_count;
    const auto first = tile * keys.sizes.tile;
    const auto rows = std::min(keys.sizes.tile, attention.sizes.rows - first);
    const auto slice = [&](const HeadRows<const T>& from) {
      return HeadSlice<T>{from.at(first, head), from.row_stride, rows, keys.sizes.dim};
    };
    loops.pack_transposed(slice(attention.key), keys.sizes.tile, keys.keys_of(head, tile));
    loops.pack_panels(slice(attention.value), T(1), keys.sizes.tile, keys.values_of(head, tile));
  }

  const AttentionLoops<T>& loops = attention_loops<T>(cpu_level());
  const BlockedAttention<T>& attention;
  const PackedKeys<T>& keys;
};

// One block of queries at a time, for all query heads of a key head, so that a tile's keys serve
// them while they are near.
template <class T>
class ForwardBlock {
 public:
  ForwardBlock(const BlockedAttention<T>& attention, const PackedKeys<T>& keys,
               const HeadRows<T>& out)
      : attention_(attention),
        keys_(keys),
        result_(out),
        sizes_(attention),
        group_(attention.sizes.group()),
        query_(group_ * sizes_.block * sizes_.dim),
        out_(group_ * sizes_.block * sizes_.padded_dim),
        scores_(sizes_.block * sizes_.tile),
        top_(group_ * sizes_.block),
        total_(group_ * sizes_.block) {}

  // The last blocks come first: of a causal mask they are the long ones.
  void operator()(std::int64_t task) {
    const auto kv_heads = attention_.sizes.kv_heads;
    block_ = attention_.tiles->block_count() - 1 - task / kv_heads;
    kv_head_ = task % kv_heads;
    first_row_ = block_ * sizes_.block;
    rows_ = std::min(sizes_.block, attention_.sizes.rows - first_row_);
    begin();
    for (const auto& tile : attention_.tiles->of_block(block_))
      for (std::int64_t member = 0; member < group_; ++member) meet(tile, member);
    end();
  }

 private:
  std::int64_t padded_rows() const { return round_up(rows_, kStrip); }

  void begin() {
    // In base 2, whose powers are cheap.
    const T factor = static_cast<T>(attention_.sizes.scale() * std::numbers::log2e);
    for (std::int64_t member = 0; member < group_; ++member)
      loops_.pack_rows({attention_.query.at(first_row_, kv_head_ * group_ + member),
                        attention_.query.row_stride, rows_, sizes_.dim},
                       factor, padded_rows(), query_.data() + member * sizes_.block * sizes_.dim);
    std::fill_n(out_.data(), group_ * sizes_.block * sizes_.padded_dim, T(0));
    std::fill_n(top_.data(), group_ * sizes_.block, -std::numeric_limits<T>::infinity());
    std::fill_n(total_.data(), group_ * sizes_.block, T(0));
  }

  void meet(const MaskTile& tile, std::int64_t member) {
    if (tile.test == TileTest::none)
      return step(tile.tile, member, {0, padded_rows()}, {0, sizes_.tile / kPanel<T>}, nullptr);
    // A strip at a time, and of it no more panels than it sees.
    const TileView view(*attention_.tiles, tile);
    for (std::int64_t row = 0; row < rows_; row += kStrip)
      if (const auto columns = view.strip_columns(row); columns.begin < columns.end)
        step(tile.tile, member, {row, row + kStrip},
             {columns.begin / kPanel<T>, (columns.end + kPanel<T> - 1) / kPanel<T>}, &view);
  }

  void step(std::int64_t tile, std::int64_t member, Extent rows, Extent panels,
            const TileView* view) {
    const auto count = rows.end - rows.begin, width = panels.end - panels.begin;
    const auto first = member * sizes_.block + rows.begin;
    const RowMatrix<T> scores{scores_.data(), sizes_.tile};
    const RowMatrix<T> out{out_.data() + first * sizes_.padded_dim, sizes_.padded_dim};
    const auto key_panel = sizes_.dim * kPanel<T>, value_panel = sizes_.tile * kPanel<T>;
    const PanelMatrix<T> keys{keys_.keys_of(kv_head_, tile) + panels.begin * key_panel, key_panel};
    // Its rows are keys: those of the panels.
    const PanelMatrix<T> values{
        keys_.values_of(kv_head_, tile) + panels.begin * kPanel<T> * kPanel<T>, value_panel};
    loops_.product({query_.data() + first * sizes_.dim, sizes_.dim, 1}, keys, scores,
                   {count, width, sizes_.dim}, /*add=*/false);
    if (view)
      for (std::int64_t row = 0; row < count; ++row)
        view->hide(rows.begin + row, panels.begin * kPanel<T>, width * kPanel<T>,
                   scores.data + row * scores.stride);
    loops_.online_softmax({scores, width * kPanel<T>, top_.data() + first, total_.data() + first,
                           out, sizes_.padded_dim},
                          count);
    loops_.product({scores.data, scores.stride, 1}, values, out,
                   {count, sizes_.padded_dim / kPanel<T>, width * kPanel<T>}, /*add=*/true);
  }

  void end() {
    for (std::int64_t member = 0; member < group_; ++member)
      for (std::int64_t row = 0; row < rows_; ++row) {
        const auto at = member * sizes_.block + row, head = kv_head_ * group_ + member;
        const T total = total_.data()[at];
        const T share = total > 0 ? 1 / total : total;  // Not a number stays one.
        const T* from = out_.data() + at * sizes_.padded_dim;
        T* to = result_.at(first_row_ + row, head);
        for (std::int64_t d = 0; d < sizes_.dim; ++d) to[d] = from[d] * share;
        attention_.log_total[head * attention_.sizes.rows + first_row_ + row] =
            total == 0 ? std::numeric_limits<T>::infinity() : top_.data()[at] + std::log2(total);
      }
  }

  const AttentionLoops<T>& loops_ = attention_loops<T>(cpu_level());
  const BlockedAttention<T>& attention_;
  const PackedKeys<T>& keys_;
  HeadRows<T> result_;
  Packing<T> sizes_;
  std::int64_t group_;
  Scratch<T> query_, out_, scores_, top_, total_;
  std::int64_t block_ = 0, kv_head_ = 0, first_row_ = 0, rows_ = 0;
};

}  // namespace

bool fits_loops(BlockShape shape) {
  return shape.block % kStrip == 0 && shape.tile % kPanel<float> == 0;
}

template <class T>
void attend_forward(const BlockedAttention<T>& attention, HeadRows<T> out) {
  const PackedKeys<T> keys(attention);
  share_tasks<PackTile<T>>(attention.sizes.kv_heads * keys.tile_count,
                           attention.sizes.rows * attention.sizes.kv_heads * attention.sizes.dim,
                           attention, keys);
  share_tasks<ForwardBlock<T>>(attention.sizes.kv_heads * attention.tiles->block_count(),
                               2 * attention.work(), attention, keys, out);
}

template void attend_forward(const BlockedAttention<float>&, HeadRows<float>);
template void attend_forward(const BlockedAttention<double>&, HeadRows<double>);

}  // namespace troupe::kernels::cpu
