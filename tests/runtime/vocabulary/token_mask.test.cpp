#include "runtime/vocabulary/token_mask.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <string>

#include "runtime/vocabulary/random.hpp"

namespace troupe {
namespace {

using Words = std::vector<std::uint64_t>;
using Counts = std::vector<TokenCount>;

constexpr std::uint64_t kText = kCausalBit | 7;  // The llm and the encoders 2 and 4.

// One line per query: '#' where it sees the key.
std::vector<std::string> picture(const TokenMask& mask) {
  std::vector<std::string> lines;
  for (TokenCount query = 0; query < mask.size(); ++query) {
    lines.emplace_back();
    for (TokenCount key = 0; key < mask.size(); ++key)
      lines.back() += mask.sees(query, key) ? '#' : '.';
  }
  return lines;
}

bool refused(const Result<TokenMask>& mask, const std::string& where, const std::string& message) {
  return !mask.ok() && mask.error().code == Errc::invalid_argument && mask.error().where == where &&
         mask.error().message.find(message) != std::string::npos;
}

TEST_CASE("text sees backwards, a span sees itself, samples see nothing of each other",
          "[vocabulary]") {
  // Text, an image of two tokens, one window of sound, text, an image; then another sample.
  const auto mask =
      TokenMask::from_words({kText, 2, 2, 4, kText, 2, kText, 2}, Counts{6, 2}).value();
  CHECK(picture(mask) ==
        std::vector<std::string>{"#.......",  //
                                 ".##.....",  //
                                 ".##.....",  //
                                 "...#....",  //
                                 "#####...",  //
                                 ".....#..",  // The same modality, but another span.
                                 "......#.",  // Another sample.
                                 ".......#"});
  CHECK(mask.samples() == std::vector<TokenSample>{{6, {{1, 3}, {3, 4}, {5, 6}}}, {2, {{1, 2}}}});
}

TEST_CASE("pairs that see each other are counted as by hand", "[vocabulary]") {
  // Two of text see 1 + 2; a picture of 3 sees 9; one of text sees 6; a sound of 3 sees 9; two of
  // text see 10 + 11. The same without media: 11 x 12 / 2.
  CHECK(seen_pairs({11, {{2, 5}, {6, 9}}}) == 3 + 9 + 6 + 9 + 21);
  CHECK(seen_pairs({11, {}}) == 66);
  CHECK(seen_pairs({4, {{0, 4}}}) == 16);
  // Side by side they see 4 + 4, not 16.
  CHECK(seen_pairs({4, {{0, 2}, {2, 4}}}) == 8);
  CHECK(seen_pairs({0, {}}) == 0);
  CHECK(seen_pairs({TokenCount{1} << 26, {}}) == 0x1p51 + 0x1p25);
}

TEST_CASE("counted pairs are those of the mask", "[vocabulary][property]") {
  Random random(GENERATE(range(0u, 30u)));
  TokenSample sample;
  while (random.below(5) > 0) {
    sample.tokens += static_cast<TokenCount>(random.below(4));
    const auto rows = static_cast<TokenCount>(random.below(6));
    if (rows > 0) sample.spans.push_back({sample.tokens, sample.tokens + rows});
    sample.tokens += rows;
  }
  const auto mask = TokenMask::from_samples(std::vector{sample}).value();
  double pairs = 0;
  for (TokenCount query = 0; query < mask.size(); ++query)
    for (TokenCount key = 0; key < mask.size(); ++key) pairs += mask.sees(query, key);
  CHECK(seen_pairs(sample) == pairs);
}

TEST_CASE("a span start divides equal words, and a sample's end does so too", "[vocabulary]") {
  const auto mask = TokenMask::from_words({2, 2, 2, 2, 2}, Counts{3, 2}, Counts{1}).value();
  CHECK(picture(mask) == std::vector<std::string>{"#....", ".##..", ".##..", "...##", "...##"});
  CHECK(mask.samples() == std::vector<TokenSample>{{3, {{0, 1}, {1, 3}}}, {2, {{0, 2}}}});
}

TEST_CASE("a causal token sees the modalities that its word names", "[vocabulary]") {
  // The last one names encoder 4 and the llm, so not the image before it.
  const auto mask = TokenMask::from_words({2, 4, kCausalBit | 4 | kTextBit, kText}, Counts{4});
  CHECK(picture(mask.value()) == std::vector<std::string>{"#...", ".#..", ".##.", "####"});
}

TEST_CASE("padding sees nothing and is not seen", "[vocabulary]") {
  const auto mask = TokenMask::from_words({kText, 0, 0, kText}, Counts{4}).value();
  CHECK(picture(mask) == std::vector<std::string>{"#...", "....", "....", "#..#"});
  CHECK(mask.samples() == std::vector<TokenSample>{{4, {{1, 3}}}});
}

TEST_CASE("a mask of no tokens, and of samples without any", "[vocabulary]") {
  CHECK(TokenMask::from_words({}, {}).value().size() == 0);
  CHECK(TokenMask::from_words({kText}, Counts{0, 1, 0}).value().samples() ==
        std::vector<TokenSample>{{0, {}}, {1, {}}, {0, {}}});
}

TEST_CASE("planners' samples and words are the same mask", "[vocabulary][property]") {
  Random random(GENERATE(range(0u, 300u)));
  std::vector<TokenSample> samples(random.below(5));
  for (auto& sample : samples) {
    sample.tokens = static_cast<TokenCount>(random.below(30));
    for (TokenCount at = 0; at < sample.tokens;) {
      const auto begin = at + static_cast<TokenCount>(random.below(4));
      const auto end = begin + 1 + static_cast<TokenCount>(random.below(8));
      if (end > sample.tokens) break;
      sample.spans.push_back({begin, end});
      at = end;
    }
  }
  const auto mask = TokenMask::from_samples(samples).value();
  CHECK(mask.samples() == samples);
  TokenCount start = 0;
  std::size_t wrong = 0;
  for (const auto& sample : samples) {
    for (TokenCount row = 0; row < sample.tokens; ++row) {
      auto keys = TokenSpan{start, start + row + 1};
      for (const auto& span : sample.spans)
        if (row >= span.begin && row < span.end) keys = {start + span.begin, start + span.end};
      for (TokenCount key = 0; key < mask.size(); ++key)
        wrong += mask.sees(start + row, key) != (key >= keys.begin && key < keys.end);
    }
    start += sample.tokens;
  }
  CHECK(wrong == 0);
}

TEST_CASE("words and samples that make no mask are refused", "[vocabulary][errors]") {
  const auto words = [](Words words, Counts lengths, Counts starts = {}) {
    return TokenMask::from_words(std::move(words), lengths, starts);
  };
  CHECK(refused(words({kText, kText}, {1}), "lengths", "1 of 2 words belong to no sample"));
  CHECK(refused(words({kText}, {1, 1}), "sample 1", "length of 1 where 0 words are left"));
  CHECK(refused(words({kText}, {-1, 2}), "sample 0", "length of -1"));
  CHECK(refused(words({kText, kCausalBit}, {2}), "token 1", "not even itself"));
  // Starts: in text, where the word changes anyway, at a sample's first token, twice, descending.
  CHECK(refused(words({kText, kText}, {2}, {1}), "token 1", "inside a run"));
  CHECK(refused(words({2, 2, 4}, {3}, {2}), "token 2", "inside a run"));
  CHECK(refused(words({2, 2}, {1, 1}, {1}), "token 1", "inside a run"));
  CHECK(refused(words({2, 2}, {2}, {1, 1}), "token 1", "inside a run"));
  CHECK(refused(words({2, 2, 2}, {3}, {2, 1}), "token 1", "inside a run"));
  CHECK(refused(words({2, 2}, {2}, {2}), "token 2", "inside a run"));
  const auto samples = [](TokenSample sample) {
    return TokenMask::from_samples(std::vector<TokenSample>{{1, {}}, std::move(sample)});
  };
  CHECK(refused(samples({-1, {}}), "sample 1", "found -1"));
  CHECK(refused(samples({10, {{5, 11}}}), "sample 1", "span [5, 11)"));
  CHECK(refused(samples({TokenCount{1} << 30, {}}), "samples", "at most 2^30"));
}

}  // namespace
}  // namespace troupe
