// Attention work per block of queries, from sample lengths and spans alone.

#include <algorithm>
#include <string>

#include "balancer/tokens/token_blocks.hpp"

namespace troupe::balancer {

namespace {

constexpr TokenCount kBlocksMax = TokenCount{1} << 23;  // 2^30 tokens in blocks of 128.

Status check(std::span<const TokenSample> samples, BlockShape shape) {
  if (shape.block < 1 || shape.tile < 1)
    return Error{Errc::invalid_argument, "block and tile must be at least 1", "block", {}};
  if (auto fine = check_samples(samples); !fine.ok()) return fine;
  TokenCount all = 0;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    all += samples[s].tokens;
    if ((all + shape.block - 1) / shape.block > kBlocksMax)
      return Error{Errc::invalid_argument,
                   "the samples up to this one have more than " + std::to_string(kBlocksMax) +
                       " blocks of " + std::to_string(shape.block) + " tokens",
                   "sample " + std::to_string(s), "take larger blocks, or fewer samples at a time"};
  }
  return Done{};
}

// Counts the tiles that ascending key ranges touch, each once.
class TileCounter {
 public:
  explicit TileCounter(TokenCount tile) : tile_(tile) {}

  void add(TokenCount begin, TokenCount end) {
    const TokenCount first = std::max(begin / tile_, covered_);
    const TokenCount last = (end + tile_ - 1) / tile_;
    if (last <= first) return;
    count_ += last - first;
    covered_ = last;
  }
  std::int64_t count() const { return count_; }

 private:
  TokenCount tile_;
  TokenCount covered_ = 0;
  std::int64_t count_ = 0;
};

// Walks samples and their spans alongside the blocks.
class BlockWalk {
 public:
  BlockWalk(std::span<const TokenSample> samples, BlockShape shape)
      : samples_(samples), shape_(shape) {}

  std::vector<std::int64_t> run() {
    TokenCount all = 0;
    for (const auto& sample : samples_) all += sample.tokens;
    std::vector<std::int64_t> loads;
    for (TokenCount begin = 0; begin < all; begin += shape_.block)
      loads.push_back(block(begin, std::min(all, begin + shape_.block)));
    return loads;
  }

 private:
  std::int64_t block(TokenCount begin, TokenCount end) {
    TileCounter tiles(shape_.tile);
    while (sample_ < samples_.size() && start_ < end) {
      const TokenCount sample_end = start_ + samples_[sample_].tokens;
      add_rows(std::max(begin, start_) - start_, std::min(end, sample_end) - start_, tiles);
      if (sample_end > end) break;
      start_ = sample_end;
      ++sample_;
      span_ = 0;
    }
    return tiles.count();
  }

  // Rows [begin, end) of the current sample: the last text row sees all that earlier ones see.
  void add_rows(TokenCount begin, TokenCount end, TileCounter& tiles) {
    const auto& spans = samples_[sample_].spans;
    while (span_ < spans.size() && spans[span_].end <= begin) ++span_;
    std::size_t stop = span_;
    while (stop < spans.size() && spans[stop].begin < end) ++stop;
    TokenCount text_end = end;  // Behind the last text row.
    for (std::size_t s = stop; s > span_ && spans[s - 1].end >= text_end; --s)
      text_end = spans[s - 1].begin;
    if (text_end > begin) tiles.add(start_, start_ + text_end);
    for (std::size_t s = span_; s < stop; ++s)
      tiles.add(start_ + spans[s].begin, start_ + spans[s].end);
  }

  std::span<const TokenSample> samples_;
  BlockShape shape_;
  std::size_t sample_ = 0;
  TokenCount start_ = 0;  // Of the current sample.
  std::size_t span_ = 0;  // First span of the sample that is not behind the rows.
};

}  // namespace

Result<std::vector<std::int64_t>> block_loads(std::span<const TokenSample> samples,
                                              BlockShape shape) {
  if (auto fine = check(samples, shape); !fine.ok()) return fine.error();
  return BlockWalk(samples, shape).run();
}

}  // namespace troupe::balancer
