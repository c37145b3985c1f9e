// The masks that attention is measured under, on a CPU and on a GPU.

#pragma once

#include <string>
#include <vector>

#include "runtime/vocabulary/token_mask.hpp"

namespace troupe::bench {

struct NamedMask {
  std::string name;
  std::vector<TokenSample> samples;
  bool causal = false;  // Text alone: LibTorch needs no matrix, a segment at a time.
};

// Text of 160 tokens before each image of 576, text at the end.
inline TokenSample with_images(TokenCount tokens) {
  TokenSample sample{tokens, {}};
  for (TokenCount at = 160; at + 576 <= tokens; at += 160 + 576)
    sample.spans.push_back({at, at + 576});
  return sample;
}

// Samples of many lengths: a half, a quarter and so on, the last two equal.
template <class Make>
std::vector<TokenSample> packed(TokenCount tokens, Make make) {
  std::vector<TokenSample> samples;
  for (TokenCount left = tokens; left > 0; left -= samples.back().tokens)
    samples.push_back(make(left > 256 ? left / 2 : left));
  return samples;
}

/// Those of Cornstarch's figure 3.5, each of so many tokens.
inline std::vector<NamedMask> masks(TokenCount tokens) {
  const auto text = [](TokenCount length) { return TokenSample{length, {}}; };
  return {{"full", {{tokens, {{0, tokens}}}}},       {"causal", {text(tokens)}, true},
          {"prefix", {{tokens, {{0, tokens / 4}}}}}, {"embedded", {with_images(tokens)}},
          {"packed", packed(tokens, with_images)},   {"packed text", packed(tokens, text), true}};
}

}  // namespace troupe::bench
