// Test helper: masks of every kind.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/vocabulary/random.hpp"
#include "runtime/vocabulary/token_mask.hpp"

namespace troupe::kernels {

/// Words of packed samples of text, spans of a few encoders (some side by side), text that leaves
/// out an encoder, and padding.
inline TokenMask random_mask(Random& random, TokenCount tokens_max) {
  constexpr std::uint64_t kModalities[] = {2, 4, std::uint64_t{1} << 62};
  const bool plain = random.below(2) == 0;  // Text that sees all, and no padding.
  std::vector<std::uint64_t> words;
  std::vector<TokenCount> lengths, starts;
  const auto tokens = 1 + random.below(static_cast<std::uint64_t>(tokens_max));
  while (words.size() < tokens) {
    const auto sample = 1 + random.below(tokens - words.size());
    const auto begin = words.size(), end = begin + sample;
    while (words.size() < end) {
      const auto kind = random.below(plain ? 8 : 10);
      auto word = kind < 4   ? ~std::uint64_t{0}
                  : kind < 8 ? kModalities[random.below(3)]
                  : kind < 9 ? kCausalBit | kTextBit | kModalities[random.below(3)]
                             : 0;
      if (words.size() > begin && words.back() == word && (word & kCausalBit) == 0 && word != 0)
        starts.push_back(static_cast<TokenCount>(words.size()));
      const auto run = std::min<std::size_t>(1 + random.below(1 + sample / 2), end - words.size());
      words.insert(words.end(), run, word);
    }
    lengths.push_back(static_cast<TokenCount>(sample));
  }
  return TokenMask::from_words(std::move(words), lengths, starts).value();
}

}  // namespace troupe::kernels
