// Test helpers of attention under a mask: heads, random masks, and gradients of a fixed loss.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/vocabulary/random.hpp"
#include "runtime/vocabulary/token_mask.hpp"
#include "tests/kernels/gradient_check.hpp"

namespace troupe::kernels {

struct Heads {
  at::Tensor query, key, value;

  Heads(std::int64_t rows, std::int64_t heads, std::int64_t kv_heads, std::int64_t dim,
        at::ScalarType type = at::kDouble)
      : query(leaf({rows, heads, dim}, 1).detach().to(type).set_requires_grad(true)),
        key(leaf({rows, kv_heads, dim}, 2).detach().to(type).set_requires_grad(true)),
        value(leaf({rows, kv_heads, dim}, 3).detach().to(type).set_requires_grad(true)) {}
};

/// An output, and the gradients of query, key and value of sum(output * a fixed probe).
struct Outcome {
  at::Tensor out, d_query, d_key, d_value;
};

template <class Attention>
Outcome outcome_of(Heads heads, Attention attention) {
  const auto out = attention(heads.query, heads.key, heads.value);
  out.mul(values(out.sizes().vec(), 5).to(out.scalar_type())).sum().backward();
  return {out.detach(), heads.query.grad(), heads.key.grad(), heads.value.grad()};
}

inline double largest_difference(const Outcome& a, const Outcome& b) {
  return std::max({largest_difference(a.out, b.out), largest_difference(a.d_query, b.d_query),
                   largest_difference(a.d_key, b.d_key), largest_difference(a.d_value, b.d_value)});
}

inline bool same_bits(const Outcome& a, const Outcome& b) {
  return a.out.equal(b.out) && a.d_query.equal(b.d_query) && a.d_key.equal(b.d_key) &&
         a.d_value.equal(b.d_value);
}

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
