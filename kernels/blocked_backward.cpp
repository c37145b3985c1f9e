// Each query head is a task: it goes over tiles of keys, and for each over the blocks that meet it,
// so that the gradients of keys stay near and those of queries are added up in one order.

#include <algorithm>
#include <limits>
#include <numbers>
#include <vector>

#include "kernels/attention_panels.hpp"
#include "kernels/blocked_attention.hpp"
#include "runtime/vocabulary/cpu_clones.hpp"

namespace troupe::kernels::cpu {

namespace {

template <class T>
class BackwardHead {
 public:
  BackwardHead(const BlockedAttention<T>& attention, const BlockedGradients<T>& gradients);

  void operator()(std::int64_t head) {
    head_ = head;
    begin();
    for (std::int64_t tile = 0; tile < tiles_.tile_count(); ++tile) {
      begin_tile(tile);
      for (const auto& entry : tiles_.of_tile(tile)) {
        if (entry.test == TileTest::none)
          meet_all(entry.block);
        else
          meet_some(entry);
      }
      end_tile(tile);
    }
    store(d_query_.data(), 0, attention_.sizes.rows, attention_.sizes.scale(), gradients_.d_query);
  }

 private:
  // Rows of one block or tile of this head as the caller has them.
  HeadSlice<T> slice(const HeadRows<const T>& from, std::int64_t head, std::int64_t first,
                     std::int64_t count) const {
    return {from.at(first, head), from.row_stride, std::min(count, attention_.sizes.rows - first),
            dim_};
  }

  void begin();
  void begin_tile(std::int64_t tile);
  void meet_all(std::int64_t block);
  void meet_some(const MaskTile& tile);
  void end_tile(std::int64_t tile);
  void weigh(std::int64_t block, Extent rows, Extent panels, const TileView* view);
  void add_key_gradients(std::int64_t block, Extent keys, Extent rows);
  void add_query_gradients(std::int64_t block, Extent rows, Extent panels);
  void store(const T* from, std::int64_t first, std::int64_t count, double factor,
             const HeadRows<T>& to) const;

  const AttentionLoops<T>& loops_ = attention_loops<T>(cpu_level());
  const BlockedAttention<T>& attention_;
  const BlockedGradients<T>& gradients_;
  const MaskTiles& tiles_;
  std::int64_t dim_, padded_dim_, block_, tile_;
  std::int64_t rows_;  // Of all blocks, each in full.
  std::int64_t head_ = 0;
  // Of a head, by row: left operands, right operands by block, gradients, and what softmax needs.
  Scratch<T> query_, d_out_, query_panels_, d_out_panels_, d_query_, log_total_, pull_;
  // Of a tile: right operands and gradients.
  Scratch<T> key_transposed_, value_transposed_, key_panels_, d_key_, d_value_;
  // Of a block in a tile: weights, the gradients of scores, and by panel of keys who sees it.
  Scratch<T> weights_, d_scores_;
  std::vector<Extent> rows_of_;
};

template <class T>
BackwardHead<T>::BackwardHead(const BlockedAttention<T>& attention,
                              const BlockedGradients<T>& gradients)
    : attention_(attention),
      gradients_(gradients),
      tiles_(*attention.tiles),
      dim_(attention.sizes.dim),
      padded_dim_(round_up(dim_, kPanel<T>)),
      block_(tiles_.shape().block),
      tile_(tiles_.shape().tile),
      rows_(tiles_.block_count() * block_),
      query_(rows_ * dim_),
      d_out_(rows_ * dim_),
      query_panels_(rows_ * padded_dim_),
      d_out_panels_(rows_ * padded_dim_),
      d_query_(rows_ * padded_dim_),
      log_total_(rows_),
      pull_(rows_),
      key_transposed_(tile_ * dim_),
      value_transposed_(tile_ * dim_),
      key_panels_(tile_ * padded_dim_),
      d_key_(tile_ * padded_dim_),
      d_value_(tile_ * padded_dim_),
      weights_(block_ * tile_),
      d_scores_(block_ * tile_),
      rows_of_(static_cast<std::size_t>(tile_ / kPanel<T>)) {}

template <class T>
void BackwardHead<T>::begin() {
  const T factor = static_cast<T>(attention_.sizes.scale() * std::numbers::log2e);
  for (std::int64_t first = 0; first < rows_; first += block_) {
    const auto query = slice(attention_.query, head_, first, block_);
    const auto d_out = slice(gradients_.d_out, head_, first, block_);
    loops_.pack_rows(query, factor, block_, query_.data() + first * dim_);
    loops_.pack_panels(query, factor, block_, query_panels_.data() + first * padded_dim_);
    loops_.pack_rows(d_out, T(1), block_, d_out_.data() + first * dim_);
    loops_.pack_panels(d_out, T(1), block_, d_out_panels_.data() + first * padded_dim_);
  }
  std::fill_n(d_query_.data(), rows_ * padded_dim_, T(0));
  // Rows that fill up the last block weigh nothing.
  const auto rows = attention_.sizes.rows;
  std::fill(log_total_.data() + rows, log_total_.data() + rows_,
            std::numeric_limits<T>::infinity());
  std::fill(pull_.data() + rows, pull_.data() + rows_, T(0));
  std::copy_n(attention_.log_total + head_ * rows, rows, log_total_.data());
  std::copy_n(gradients_.pull + head_ * rows, rows, pull_.data());
}

template <class T>
void BackwardHead<T>::begin_tile(std::int64_t tile) {
  const auto kv_head = head_ / attention_.sizes.group();
  const auto key = slice(attention_.key, kv_head, tile * tile_, tile_);
  loops_.pack_transposed(key, tile_, key_transposed_.data());
  loops_.pack_panels(key, T(1), tile_, key_panels_.data());
  loops_.pack_transposed(slice(attention_.value, kv_head, tile * tile_, tile_), tile_,
                         value_transposed_.data());
  std::fill_n(d_key_.data(), tile_ * padded_dim_, T(0));
  std::fill_n(d_value_.data(), tile_ * padded_dim_, T(0));
}

template <class T>
void BackwardHead<T>::meet_all(std::int64_t block) {
  const Extent rows{0, block_}, panels{0, tile_ / kPanel<T>};
  weigh(block, rows, panels, nullptr);
  add_query_gradients(block, rows, panels);
  add_key_gradients(block, {0, tile_}, rows);
}

// Strips of queries with the panels of keys that they see, then strips of keys with the strips of
// queries that see them. What lies between is 0.
template <class T>
void BackwardHead<T>::meet_some(const MaskTile& tile) {
  const TileView view(tiles_, tile);
  std::fill_n(weights_.data(), block_ * tile_, T(0));
  std::fill_n(d_scores_.data(), block_ * tile_, T(0));
  std::fill(rows_of_.begin(), rows_of_.end(), Extent{block_, 0});
  for (std::int64_t row = 0; row < block_; row += kStrip) {
    const auto columns = view.strip_columns(row);
    if (columns.begin >= columns.end) continue;
    const Extent rows{row, row + kStrip};
    const Extent panels{columns.begin / kPanel<T>, (columns.end + kPanel<T> - 1) / kPanel<T>};
    weigh(tile.block, rows, panels, &view);
    add_query_gradients(tile.block, rows, panels);
    for (auto panel = panels.begin; panel < panels.end; ++panel) {
      auto& seen = rows_of_[static_cast<std::size_t>(panel)];
      seen = {std::min(seen.begin, row), row + kStrip};
    }
  }
  for (std::int64_t first = 0; const auto& rows : rows_of_) {
    if (rows.begin < rows.end) add_key_gradients(tile.block, {first, first + kPanel<T>}, rows);
    first += kPanel<T>;
  }
}

template <class T>
void BackwardHead<T>::weigh(std::int64_t block, Extent rows, Extent panels, const TileView* view) {
  const auto count = rows.end - rows.begin, width = panels.end - panels.begin;
  const auto row = block * block_ + rows.begin, panel = dim_ * kPanel<T>;
  const auto corner = rows.begin * tile_ + panels.begin * kPanel<T>;
  const RowMatrix<T> scores{weights_.data() + corner, tile_};
  const RowMatrix<T> d_weights{d_scores_.data() + corner, tile_};
  const ProductShape shape{count, width, dim_};
  loops_.product({query_.data() + row * dim_, dim_, 1},
                 {key_transposed_.data() + panels.begin * panel, panel}, scores, shape,
                 /*add=*/false);
  loops_.product({d_out_.data() + row * dim_, dim_, 1},
                 {value_transposed_.data() + panels.begin * panel, panel}, d_weights, shape,
                 /*add=*/false);
  if (view)
    for (std::int64_t r = 0; r < count; ++r)
      view->hide(rows.begin + r, panels.begin * kPanel<T>, width * kPanel<T>,
                 scores.data + r * scores.stride);
  loops_.softmax_gradient(
      {scores, d_weights, width * kPanel<T>, log_total_.data() + row, pull_.data() + row}, count);
}

// d_query += d_scores * keys.
template <class T>
void BackwardHead<T>::add_query_gradients(std::int64_t block, Extent rows, Extent panels) {
  const auto first_key = panels.begin * kPanel<T>;
  loops_.product(
      {d_scores_.data() + rows.begin * tile_ + first_key, tile_, 1},
      {key_panels_.data() + first_key * kPanel<T>, tile_ * kPanel<T>},
      {d_query_.data() + (block * block_ + rows.begin) * padded_dim_, padded_dim_},
      {rows.end - rows.begin, padded_dim_ / kPanel<T>, panels.end * kPanel<T> - first_key},
      /*add=*/true);
}

// d_value += weights^T * d_out, d_key += d_scores^T * queries.
template <class T>
void BackwardHead<T>::add_key_gradients(std::int64_t block, Extent keys, Extent rows) {
  const ProductShape shape{keys.end - keys.begin, padded_dim_ / kPanel<T>, rows.end - rows.begin};
  const auto corner = rows.begin * tile_ + keys.begin;
  const auto panels = block * block_ * padded_dim_ + rows.begin * kPanel<T>;
  const auto panel = block_ * kPanel<T>, to = keys.begin * padded_dim_;
  loops_.product({weights_.data() + corner, 1, tile_}, {d_out_panels_.data() + panels, panel},
                 {d_value_.data() + to, padded_dim_}, shape, /*add=*/true);
  loops_.product({d_scores_.data() + corner, 1, tile_}, {query_panels_.data() + panels, panel},
                 {d_key_.data() + to, padded_dim_}, shape, /*add=*/true);
}

template <class T>
void BackwardHead<T>::end_tile(std::int64_t tile) {
  // Queries were scaled, and in base 2.
  store(d_key_.data(), tile * tile_, tile_, std::numbers::ln2, gradients_.d_key);
  store(d_value_.data(), tile * tile_, tile_, 1, gradients_.d_value);
}

template <class T>
void BackwardHead<T>::store(const T* from, std::int64_t first, std::int64_t count, double factor,
                            const HeadRows<T>& to) const {
  loops_.unpack_rows({from, padded_dim_, std::min(count, attention_.sizes.rows - first), dim_},
                     static_cast<T>(factor), {to.at(first, head_), to.row_stride});
}

}  // namespace

template <class T>
void attend_backward(const BlockedAttention<T>& attention, const BlockedGradients<T>& gradients) {
  share_tasks<BackwardHead<T>>(attention.sizes.heads, 5 * attention.work(), attention, gradients);
}

template void attend_backward(const BlockedAttention<float>&, const BlockedGradients<float>&);
template void attend_backward(const BlockedAttention<double>&, const BlockedGradients<double>&);

}  // namespace troupe::kernels::cpu
