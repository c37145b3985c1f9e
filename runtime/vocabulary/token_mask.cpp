#include "runtime/vocabulary/token_mask.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr TokenCount kTokensOfAllMax = TokenCount{1} << 40;

Error invalid(std::string message, std::string where, std::string fix = {}) {
  return {Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

std::string sample_name(std::size_t sample) { return "sample " + std::to_string(sample); }
std::string token_name(TokenCount token) { return "token " + std::to_string(token); }

Status check_lengths(std::size_t words, std::span<const TokenCount> lengths) {
  if (words > static_cast<std::size_t>(TokenMask::kTokensMax))
    return invalid("a mask holds at most 2^30 tokens, found " + std::to_string(words), "words",
                   "mask fewer samples at a time");
  // Each is bounded before it is added: their sum cannot overflow.
  auto left = static_cast<TokenCount>(words);
  for (std::size_t s = 0; s < lengths.size(); left -= lengths[s++])
    if (lengths[s] < 0 || lengths[s] > left)
      return invalid("a length of " + std::to_string(lengths[s]) + " where " +
                         std::to_string(left) + " words are left",
                     sample_name(s));
  if (left > 0)
    return invalid(
        std::to_string(left) + " of " + std::to_string(words) + " words belong to no " + "sample",
        "lengths");
  return Done{};
}

Status check_words(std::span<const std::uint64_t> words) {
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] == kCausalBit)
      return invalid("a causal word without a modality sees not even itself",
                     token_name(static_cast<TokenCount>(i)),
                     "name a modality (text has bit 0), or use 0 for padding");
  return Done{};
}

// Ends of the spans and runs of padding of one sample: where the word changes, or a start is given.
class RunEnds {
 public:
  RunEnds(std::span<const std::uint64_t> words, std::span<const TokenCount> starts)
      : words_(words), starts_(starts) {}

  // End of the run that begins at `token`, in a sample that ends at `sample_end`. Ascending calls.
  TokenCount operator()(TokenCount token, TokenCount sample_end) {
    const auto word = at(token);
    for (++token; token < sample_end && at(token) == word; ++token)
      if (next_ < starts_.size() && starts_[next_] == token) {
        ++next_;
        break;
      }
    return token;
  }
  // The first start that divided nothing, or null.
  const TokenCount* unused() const { return next_ < starts_.size() ? &starts_[next_] : nullptr; }

 private:
  std::uint64_t at(TokenCount token) const { return words_[static_cast<std::size_t>(token)]; }

  std::span<const std::uint64_t> words_;
  std::span<const TokenCount> starts_;
  std::size_t next_ = 0;
};

}  // namespace

Status check_samples(std::span<const TokenSample> samples) {
  TokenCount all = 0;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const TokenCount tokens = samples[s].tokens;
    if (tokens < 0 || tokens > kTokensOfAllMax || (all += tokens) > kTokensOfAllMax)
      return invalid("tokens must be >= 0 and at most 2^40 in all, found " + std::to_string(tokens),
                     sample_name(s));
    TokenCount end = 0;
    for (const auto& span : samples[s].spans) {
      if (span.begin < end || span.end <= span.begin || span.end > tokens)
        return invalid("span [" + std::to_string(span.begin) + ", " + std::to_string(span.end) +
                           ") is empty, out of order or outside its " + std::to_string(tokens) +
                           " tokens",
                       sample_name(s));
      end = span.end;
    }
  }
  return Done{};
}

double seen_pairs(const TokenSample& sample) {
  // Of a text of so many tokens, each sees itself and those before it.
  const auto of_text = [](TokenCount tokens) {
    return static_cast<double>(tokens) * static_cast<double>(tokens + 1) / 2;
  };
  double pairs = of_text(sample.tokens);
  for (const auto& span : sample.spans) {
    const auto rows = static_cast<double>(span.end - span.begin);
    pairs += rows * rows - (of_text(span.end) - of_text(span.begin));
  }
  return pairs;
}

Result<TokenMask> TokenMask::from_words(std::vector<std::uint64_t> words,
                                        std::span<const TokenCount> lengths,
                                        std::span<const TokenCount> span_starts) {
  if (auto fine = check_lengths(words.size(), lengths); !fine.ok()) return fine.error();
  if (auto fine = check_words(words); !fine.ok()) return fine.error();
  TokenMask mask;
  mask.ranges_.resize(words.size());
  RunEnds run_end(words, span_starts);
  TokenCount begin = 0;
  for (const auto length : lengths) {
    const TokenCount end = begin + length;
    for (TokenCount token = begin; token < end;) {
      const auto word = words[static_cast<std::size_t>(token)];
      const auto range = mask.ranges_.begin() + token;
      if ((word & kCausalBit) != 0) {
        *range = {begin, ++token};
      } else {
        const TokenCount run = run_end(token, end);
        std::fill_n(range, run - token, word == 0 ? TokenSpan{} : TokenSpan{token, run});
        token = run;
      }
    }
    begin = end;
  }
  if (const auto* start = run_end.unused())
    return invalid(
        "a span start must lie inside a run of equal words without the causal bit, "
        "after the one before it",
        token_name(*start));
  mask.words_ = std::move(words);
  mask.lengths_.assign(lengths.begin(), lengths.end());
  return mask;
}

Result<TokenMask> TokenMask::from_samples(std::span<const TokenSample> samples) {
  if (auto fine = check_samples(samples); !fine.ok()) return fine.error();
  constexpr std::uint64_t kMedia = kTextBit << 1, kText = ~std::uint64_t{0};
  std::vector<TokenCount> lengths, starts;
  TokenCount all = 0;
  for (const auto& sample : samples) {
    lengths.push_back(sample.tokens);
    all += sample.tokens;
  }
  if (all > kTokensMax)
    return invalid("a mask holds at most 2^30 tokens, found " + std::to_string(all), "samples",
                   "mask fewer samples at a time");
  std::vector<std::uint64_t> words(static_cast<std::size_t>(all), kText);
  TokenCount begin = 0;
  for (const auto& sample : samples) {
    TokenCount last_end = 0;
    for (const auto& span : sample.spans) {
      std::fill(words.begin() + begin + span.begin, words.begin() + begin + span.end, kMedia);
      if (span.begin == last_end && span.begin > 0) starts.push_back(begin + span.begin);
      last_end = span.end;
    }
    begin += sample.tokens;
  }
  return from_words(std::move(words), lengths, starts);
}

std::vector<TokenSample> TokenMask::samples() const {
  std::vector<TokenSample> samples;
  TokenCount begin = 0;
  for (const auto length : lengths_) {
    TokenSample sample{length, {}};
    for (TokenCount token = begin; token < begin + length;) {
      if ((word(token) & kCausalBit) != 0) {
        ++token;
        continue;
      }
      TokenCount end = range(token).end;
      if (word(token) == 0)
        for (end = token + 1; end < begin + length && word(end) == 0;) ++end;
      sample.spans.push_back({token - begin, end - begin});
      token = end;
    }
    samples.push_back(std::move(sample));
    begin += length;
  }
  return samples;
}

}  // namespace troupe
