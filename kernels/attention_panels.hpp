// Scratch memory, sharing of tasks and a tile's view of the mask, for both passes of blocked
// attention.
//
// Internal to kernels/.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>

#include "kernels/attention_loops.hpp"
#include "kernels/mask_tiles.hpp"
#include "kernels/share_tasks.hpp"

namespace troupe::kernels::cpu {

/// Uninitialised numbers at the start of a cache line.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t count)
      : data_(
            static_cast<T*>(::operator new[](static_cast<std::size_t>(count) * sizeof(T), kLine))) {
  }
  T* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(T* data) const { ::operator delete[](data, kLine); }
  };
  std::unique_ptr<T[], Free> data_;
};

/// Runs `Worker(arguments...)(task)` for each task in [0, task_count): each thread has a worker and
/// takes the next task. work: multiply-adds of all. REQUIRES: tasks that do not depend on each
/// other, nor on their worker's past.
template <class Worker, class... Arguments>
void share_tasks(std::int64_t task_count, std::int64_t work, const Arguments&... arguments) {
  std::atomic<std::int64_t> next{0};
  run_on_threads(useful_threads(task_count, work), [&] {
    auto task = next++;
    if (task >= task_count) return;
    for (Worker run(arguments...); task < task_count; task = next++) run(task);
  });
}

/// [begin, end), empty where begin >= end.
struct Extent {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Which keys the queries of a strip see in one tile, and hiding the others.
class TileView {
 public:
  TileView(const MaskTiles& tiles, const MaskTile& tile)
      : mask_(tiles.mask()),
        tested_by_word_(tile.test == TileTest::words),
        query_begin_(tile.block * tiles.shape().block),
        key_begin_(tile.tile * tiles.shape().tile),
        key_end_(std::min(key_begin_ + tiles.shape().tile, mask_.size())) {}

  /// Columns of the tile that a row of the block sees none outside of.
  Extent columns(std::int64_t row) const {
    const auto query = query_begin_ + row;
    if (query >= mask_.size()) return {};
    const auto& keys = mask_.range(query);
    return {std::max(keys.begin, key_begin_) - key_begin_,
            std::min(keys.end, key_end_) - key_begin_};
  }

  /// The same of the strip that begins at `row`.
  Extent strip_columns(std::int64_t row) const {
    Extent all{key_end_ - key_begin_, 0};
    for (std::int64_t r = row; r < row + kStrip; ++r)
      if (const auto own = columns(r); own.begin < own.end)
        all = {std::min(all.begin, own.begin), std::max(all.end, own.end)};
    return all;
  }

  /// Sets scores[0, count), which belong to columns from `first` on, to -infinity where `row` does
  /// not see the key.
  template <class T>
  void hide(std::int64_t row, std::int64_t first, std::int64_t count, T* scores) const;

 private:
  const TokenMask& mask_;
  bool tested_by_word_;
  std::int64_t query_begin_, key_begin_, key_end_;
};

template <class T>
void TileView::hide(std::int64_t row, std::int64_t first, std::int64_t count, T* scores) const {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  const auto seen = columns(row);
  const auto begin = std::clamp<std::int64_t>(seen.begin - first, 0, count);
  const auto end = std::clamp<std::int64_t>(seen.end - first, begin, count);
  std::fill_n(scores, begin, kHidden);
  std::fill_n(scores + end, count - end, kHidden);
  if (!tested_by_word_) return;
  for (auto column = begin; column < end; ++column)
    if (!mask_.sees(query_begin_ + row, key_begin_ + first + column)) scores[column] = kHidden;
}

}  // namespace troupe::kernels::cpu
