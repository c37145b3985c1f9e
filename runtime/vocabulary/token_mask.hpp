// Which tokens of packed samples see each other in attention: a 64-bit word per token (Cornstarch
// section 3.4.2), and the same as lengths and spans, for planners that count work.
//
// Pure values.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe {

/// Tokens [begin, end) of a sample that one encoder made of one picture or one sound.
struct TokenSpan {
  TokenCount begin = 0;
  TokenCount end = 0;

  friend bool operator==(const TokenSpan&, const TokenSpan&) = default;
};

/// One sample of a packed sequence. A text token sees everything before it in its sample; a token
/// of a span sees its own span in full and nothing else. Samples never see each other.
struct TokenSample {
  TokenCount tokens = 0;
  std::vector<TokenSpan> spans;  ///< Ascending, not overlapping, within the sample.

  friend bool operator==(const TokenSample&, const TokenSample&) = default;
};

/// Sizes in tokens. A block of queries meets the keys in tiles.
struct BlockShape {
  TokenCount block = 128;  ///< Queries; >= 1.
  TokenCount tile = 32;    ///< Keys; >= 1.

  friend bool operator==(const BlockShape&, const BlockShape&) = default;
};

/// Whether the sample keeps what `TokenSample` and `BlockShape` promise.
///
/// Errors (`where` is "sample N", of the first bad one):
/// - invalid_argument: a negative length, more than 2^40 tokens in all, a span that is empty, out
///   of order or outside its sample.
Status check_samples(std::span<const TokenSample> samples);

/// Pairs of tokens of which one sees the other, each token and itself included: what attention
/// under the mask computes. Exact below 2^53. Cost: O(spans).
/// REQUIRES: a sample that `check_samples` passes.
double seen_pairs(const TokenSample& sample);

/// Set in the word of a token that sees backwards only: text.
inline constexpr std::uint64_t kCausalBit = std::uint64_t{1} << 63;
/// The llm's own bit, by custom: the least. Encoders have those above it.
inline constexpr std::uint64_t kTextBit = 1;

/// The bitfield mask of a pack of samples. Bits 0 to 62 of a token's word name modalities:
/// - with `kCausalBit`, the token sees itself and the tokens before it in its sample whose words
///   share a modality with its own;
/// - without, it sees its span in full and nothing else. A span is a run of tokens of one sample
///   with equal words; two that lie side by side are told apart by where the second starts;
/// - a word of 0 is padding: it sees nothing, and nothing sees it.
/// A value: copies are equal and independent. Takes 24 bytes a token.
class TokenMask {
 public:
  static constexpr TokenCount kTokensMax = TokenCount{1} << 30;

  /// words: of the samples end to end. lengths: tokens per sample. span_starts: ascending tokens of
  /// the pack at which a new span begins though the word is that of the token before.
  ///
  /// Errors:
  /// - invalid_argument: lengths below 0 or not those of the words, more than `kTokensMax` tokens,
  ///   a causal word without a modality, or a span start that divides no span.
  static Result<TokenMask> from_words(std::vector<std::uint64_t> words,
                                      std::span<const TokenCount> lengths,
                                      std::span<const TokenCount> span_starts = {});

  /// The mask that planners mean: text sees all modalities.
  ///
  /// Errors: as `check_samples`; invalid_argument for more than `kTokensMax` tokens.
  static Result<TokenMask> from_samples(std::span<const TokenSample> samples);

  TokenCount size() const { return static_cast<TokenCount>(words_.size()); }  ///< Padding too.
  /// The bits of a token in [0, size()).
  std::uint64_t word(TokenCount token) const { return words_[static_cast<std::size_t>(token)]; }

  /// Tokens of the pack outside of which `token` sees nothing; empty for padding.
  const TokenSpan& range(TokenCount token) const {
    return ranges_[static_cast<std::size_t>(token)];
  }

  /// Whether the query token sees the key token. Both in [0, size()).
  bool sees(TokenCount query, TokenCount key) const {
    const auto& keys = range(query);
    return key >= keys.begin && key < keys.end && (word(query) & word(key) & ~kCausalBit) != 0;
  }

  /// Lengths and spans, as planners take them. Says less than the words: text that leaves out a
  /// modality is counted as if it saw it, padding as if it were a span.
  std::vector<TokenSample> samples() const;

  friend bool operator==(const TokenMask&, const TokenMask&) = default;

 private:
  TokenMask() = default;

  std::vector<std::uint64_t> words_;
  std::vector<TokenSpan> ranges_;
  std::vector<TokenCount> lengths_;
};

}  // namespace troupe
