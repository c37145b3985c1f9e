// Test helper: attention in sub-blocks on a CPU in fp64, in the order of the GPU's kernels: a
// partial result for each part of a block, then one of all its parts, in the order of their slots.

#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "kernels/gpu_sub_blocks.hpp"
#include "kernels/mask_tiles.hpp"
#include "tests/kernels/masked_heads.hpp"

namespace troupe::kernels {

class SubBlockAttention {
 public:
  /// Every block in parts of at most `turns_max`. heads: in fp64.
  SubBlockAttention(const MaskTiles& tiles, const Heads& heads, std::int32_t turns_max)
      : tiles_(tiles),
        query_(heads.query.detach().contiguous()),
        key_(heads.key.detach().contiguous()),
        value_(heads.value.detach().contiguous()),
        group_(query_.size(1) / key_.size(1)),
        scale_(1 / std::sqrt(static_cast<double>(query_.size(2)))),
        by_query_(gpu::cut_blocks(counts(/*by_query=*/true, 1), turns_max)),
        by_key_(gpu::cut_blocks(counts(/*by_query=*/false, group_), turns_max)),
        log_total_(static_cast<std::size_t>(query_.size(0) * query_.size(1))) {}

  /// Blocks that were cut.
  std::size_t cut_count() const { return by_query_.splits.size() + by_key_.splits.size(); }

  /// Gradients are those of sum(out * d_out).
  Outcome run(const at::Tensor& d_out) {
    const auto out = forward();
    const auto pull = d_out.mul(out).sum(-1);
    auto [d_key, d_value] = backward_by_key(d_out, pull);
    return {out, backward_by_query(d_out, pull), std::move(d_key), std::move(d_value)};
  }

 private:
  using Rows = std::vector<std::vector<double>>;  // Of a block: what they sum up.

  std::vector<std::int32_t> counts(bool by_query, std::int64_t turns_per_entry) const {
    std::vector<std::int32_t> result;
    const auto blocks = by_query ? tiles_.block_count() : tiles_.tile_count();
    for (std::int64_t block = 0; block < blocks; ++block) {
      const auto entries = by_query ? tiles_.of_block(block) : tiles_.of_tile(block);
      result.push_back(static_cast<std::int32_t>(std::ssize(entries) * turns_per_entry));
    }
    return result;
  }

  // Calls finish(block, partial results in the order of slots) for every block.
  template <class Compute, class Finish>
  static void by_parts(const gpu::SubBlocks& list, Compute compute, Finish finish) {
    std::vector<Rows> room(static_cast<std::size_t>(list.slots));
    for (const auto& part : list.parts) {
      auto found = compute(part);
      if (part.slot < 0)
        finish(part.block, std::span<const Rows>(&found, 1));
      else
        room[static_cast<std::size_t>(part.slot)] = std::move(found);
    }
    for (const auto& split : list.splits)
      finish(split.block,
             std::span<const Rows>(room).subspan(static_cast<std::size_t>(split.slot),
                                                 static_cast<std::size_t>(split.count)));
  }

  static double* row_of(const at::Tensor& heads, std::int64_t row, std::int64_t head) {
    return heads.mutable_data_ptr<double>() + (row * heads.size(1) + head) * heads.size(2);
  }
  // Of a query head's row and one of its key head.
  double product(const at::Tensor& a, std::int64_t query, std::int64_t head, const at::Tensor& b,
                 std::int64_t key) const {
    const auto* left = row_of(a, query, head);
    return std::inner_product(left, left + dim(), row_of(b, key, head / group_), 0.0);
  }

  std::int64_t dim() const { return query_.size(2); }
  std::int64_t rows() const { return query_.size(0); }
  std::int64_t rows_of_block(std::int64_t block) const {
    return std::min(tiles_.shape().block, rows() - block * tiles_.shape().block);
  }
  double& log_total(std::int64_t row, std::int64_t head) {
    return log_total_[static_cast<std::size_t>(row * query_.size(1) + head)];
  }

  // Calls visit(query, key) for the pairs of a tile that see each other.
  template <class Visit>
  void for_pairs(const MaskTile& tile, Visit visit) const {
    const auto shape = tiles_.shape();
    const auto first = tile.block * shape.block;
    for (auto query = first; query < std::min(first + shape.block, rows()); ++query)
      for (auto key = tile.tile * shape.tile; key < std::min((tile.tile + 1) * shape.tile, rows());
           ++key)
        if (tiles_.mask().sees(query, key)) visit(query, key);
  }

  // Sums of values, then the largest score and the sum of weights.
  Rows attend(const gpu::SubBlock& part, std::int64_t head) const {
    const auto width = static_cast<std::size_t>(dim());
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    std::vector<double> empty(width + 2);
    empty[width] = -kInfinity;
    Rows found(static_cast<std::size_t>(rows_of_block(part.block)), empty);
    const auto entries = tiles_.of_block(part.block);
    for (auto turn = part.from; turn < part.to; ++turn)
      for_pairs(entries[static_cast<std::size_t>(turn)], [&](std::int64_t query, std::int64_t key) {
        auto& row = found[static_cast<std::size_t>(query - part.block * tiles_.shape().block)];
        const double score = scale_ * product(query_, query, head, key_, key);
        if (score > row[width]) {
          const double factor = std::exp(row[width] - score);
          for (auto& number : row) number *= factor;
          row[width] = score;
        }
        const double weight = std::exp(score - row[width]);
        const auto* value = row_of(value_, key, head / group_);
        for (std::size_t i = 0; i < width; ++i) row[i] += weight * value[i];
        row[width + 1] += weight;
      });
    return found;
  }

  at::Tensor forward() {
    const auto out = at::zeros_like(query_);
    const auto width = static_cast<std::size_t>(dim());
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (std::int64_t head = 0; head < query_.size(1); ++head)
      by_parts(
          by_query_, [&](const gpu::SubBlock& part) { return attend(part, head); },
          [&](std::int64_t block, std::span<const Rows> parts) {
            for (std::size_t row = 0; row < parts[0].size(); ++row) {
              double top = -kInfinity, total = 0;
              for (const auto& part : parts) top = std::max(top, part[row][width]);
              std::vector<double> sums(width);
              for (const auto& part : parts) {
                const double own = part[row][width];
                const double weight = own == -kInfinity ? 0 : std::exp(own - top);
                total += weight * part[row][width + 1];
                for (std::size_t i = 0; i < width; ++i) sums[i] += weight * part[row][i];
              }
              const auto query = block * tiles_.shape().block + static_cast<std::int64_t>(row);
              for (std::size_t i = 0; i < width; ++i)
                row_of(out, query, head)[i] = total > 0 ? sums[i] / total : 0;
              log_total(query, head) = total > 0 ? top + std::log(total) : kInfinity;
            }
          });
    return out;
  }

  // A pair's weight, and what pulls at its score.
  std::pair<double, double> weigh(std::int64_t query, std::int64_t key, std::int64_t head,
                                  const at::Tensor& d_out, const at::Tensor& pull) {
    const double score = scale_ * product(query_, query, head, key_, key);
    const double weight = std::exp(score - log_total(query, head));
    const double pushed = product(d_out, query, head, value_, key);
    return {weight,
            weight * (pushed - pull.const_data_ptr<double>()[query * query_.size(1) + head])};
  }

  // Adds up the parts of a block in their order; columns from `column` on, times a factor.
  static void add_up(const at::Tensor& to, std::int64_t first, std::int64_t head,
                     std::span<const Rows> parts, std::size_t column, double factor) {
    for (std::size_t row = 0; row < parts[0].size(); ++row)
      for (std::int64_t i = 0; i < to.size(2); ++i) {
        double sum = 0;
        for (const auto& part : parts) sum += part[row][column + static_cast<std::size_t>(i)];
        row_of(to, first + static_cast<std::int64_t>(row), head)[i] = sum * factor;
      }
  }

  at::Tensor backward_by_query(const at::Tensor& d_out, const at::Tensor& pull) {
    const auto d_query = at::zeros_like(query_);
    const auto width = static_cast<std::size_t>(dim());
    for (std::int64_t head = 0; head < query_.size(1); ++head) {
      const auto compute = [&](const gpu::SubBlock& part) {
        const auto first = part.block * tiles_.shape().block;
        Rows found(static_cast<std::size_t>(rows_of_block(part.block)), std::vector<double>(width));
        const auto entries = tiles_.of_block(part.block);
        for (auto turn = part.from; turn < part.to; ++turn)
          for_pairs(entries[static_cast<std::size_t>(turn)],
                    [&](std::int64_t query, std::int64_t key) {
                      const double push = weigh(query, key, head, d_out, pull).second;
                      for (std::size_t i = 0; i < width; ++i)
                        found[static_cast<std::size_t>(query - first)][i] +=
                            push * row_of(key_, key, head / group_)[i];
                    });
        return found;
      };
      by_parts(by_query_, compute, [&](std::int64_t block, std::span<const Rows> parts) {
        add_up(d_query, block * tiles_.shape().block, head, parts, 0, scale_);
      });
    }
    return d_query;
  }

  // Turns of a tile go through all its entries for the first query head of the group, and so on.
  std::pair<at::Tensor, at::Tensor> backward_by_key(const at::Tensor& d_out,
                                                    const at::Tensor& pull) {
    const auto d_key = at::zeros_like(key_), d_value = at::zeros_like(value_);
    const auto width = static_cast<std::size_t>(dim());
    for (std::int64_t kv_head = 0; kv_head < key_.size(1); ++kv_head) {
      const auto compute = [&](const gpu::SubBlock& part) {
        const auto first = part.block * tiles_.shape().tile;
        const auto keys = std::min(tiles_.shape().tile, rows() - first);
        Rows found(static_cast<std::size_t>(keys), std::vector<double>(2 * width));
        const auto entries = tiles_.of_tile(part.block);
        for (std::int64_t turn = part.from; turn < part.to; ++turn) {
          const auto head = kv_head * group_ + turn / std::ssize(entries);
          for_pairs(entries[static_cast<std::size_t>(turn % std::ssize(entries))],
                    [&](std::int64_t query, std::int64_t key) {
                      const auto [weight, push] = weigh(query, key, head, d_out, pull);
                      auto& row = found[static_cast<std::size_t>(key - first)];
                      for (std::size_t i = 0; i < width; ++i) {
                        row[i] += push * row_of(query_, query, head)[i];
                        row[width + i] += weight * row_of(d_out, query, head)[i];
                      }
                    });
        }
        return found;
      };
      by_parts(by_key_, compute, [&](std::int64_t block, std::span<const Rows> parts) {
        const auto first = block * tiles_.shape().tile;
        add_up(d_key, first, kv_head, parts, 0, scale_);
        add_up(d_value, first, kv_head, parts, width, 1);
      });
    }
    return {d_key, d_value};
  }

  const MaskTiles& tiles_;
  at::Tensor query_, key_, value_;
  std::int64_t group_;
  double scale_;
  gpu::SubBlocks by_query_, by_key_;
  std::vector<double> log_total_;  // [rows, heads].
};

}  // namespace troupe::kernels
