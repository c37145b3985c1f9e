// Attention under bitfield masks beside LibTorch's with the same mask as a matrix, and beside its
// best kernel where there is one without a matrix: processor time, forward and backward.
//
//   attention_bench [TOKENS_MAX] [REPEATS]
//
// Masks are those of Cornstarch's figure 3.5: encoder rows first, in the middle of text, and
// packed.

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/bitfield_attention.hpp"
#include "kernels/packed_attention.hpp"
#include "tests/bench/attention_masks.hpp"
#include "tests/bench/report.hpp"

using namespace troupe;
using namespace troupe::kernels;
using troupe::bench::masks;
using troupe::bench::median;
using troupe::bench::NamedMask;
using troupe::bench::report;

namespace {

constexpr std::int64_t kHeads = 4;

struct Heads {
  at::Tensor query, key, value, d_out;

  Heads(TokenCount tokens, std::int64_t dim) {
    for (auto* tensor : {&query, &key, &value, &d_out})
      *tensor = at::randn({tokens, kHeads, dim}, at::kFloat);
    for (auto* tensor : {&query, &key, &value}) tensor->requires_grad_();
  }
};

struct Times {
  std::vector<double> forward, backward;
};

template <class Attention>
void measure(const Heads& heads, Attention attention, Times& times) {
  const auto ms = [](std::clock_t begin) {
    return 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  auto begin = std::clock();
  const at::Tensor out = attention(heads.query, heads.key, heads.value);
  times.forward.push_back(ms(begin));
  begin = std::clock();
  out.backward(heads.d_out);
  times.backward.push_back(ms(begin));
}

// 0 where a query sees a key, else -infinity, to be added to scores: what the kernel takes without
// converting.
at::Tensor matrix_of(const TokenMask& mask) {
  auto matrix = at::full({mask.size(), mask.size()}, -std::numeric_limits<float>::infinity());
  auto* to = matrix.mutable_data_ptr<float>();
  for (TokenCount query = 0; query < mask.size(); ++query, to += mask.size())
    std::fill(to + mask.range(query).begin, to + mask.range(query).end, 0.0F);
  return matrix;
}

double share_of(const TokenMask& mask) {
  double pairs = 0;
  for (TokenCount query = 0; query < mask.size(); ++query)
    pairs += static_cast<double>(mask.range(query).end - mask.range(query).begin);
  return pairs / static_cast<double>(mask.size()) / static_cast<double>(mask.size());
}

std::string percent(double share) { return std::to_string(std::lround(100 * share)) + " % seen"; }

void print(const std::string& name, const Times& ours, const Times& theirs,
           const std::string& size) {
  report(name + ", forward", median(ours.forward), "ms",
         {{"bound", median(theirs.forward)}, {"better", "lower"}, {"size", size}});
  report(name + ", backward", median(ours.backward), "ms",
         {{"bound", median(theirs.backward)}, {"better", "lower"}, {"size", size}});
}

// Returns what forward and backward took.
double compare(const NamedMask& named, std::int64_t dim, int repeats, double full_ms) {
  const auto mask = TokenMask::from_samples(named.samples).value();
  const auto tokens = mask.size();
  const auto matrix = matrix_of(mask);
  const auto tiles = std::make_shared<const MaskTiles>(mask, kAttentionTiles);
  std::vector<std::int64_t> segments;
  for (const auto& sample : named.samples) segments.push_back(sample.tokens);
  const Heads heads(tokens, dim);
  Times ours, dense, library;
  const auto by_head = [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
  // In turn, so that what the machine does meanwhile concerns all; the first round warms up.
  for (int round = 0; round <= repeats; ++round) {
    if (round == 1) ours = dense = library = {};
    measure(
        heads, [&](auto... x) { return bitfield_attention(x..., tiles); }, ours);
    measure(
        heads,
        [&](auto... x) {
          return at::scaled_dot_product_attention(by_head(x)..., matrix).squeeze(0).transpose(0, 1);
        },
        dense);
    if (named.causal || named.name == "full")
      measure(
          heads, [&](auto... x) { return packed_attention(x..., segments, named.causal); },
          library);
  }
  const auto size = std::to_string(tokens) + " tokens, " + percent(share_of(mask)) + ", " +
                    std::to_string(kHeads) + " heads of " + std::to_string(dim);
  print("attention, " + named.name + ", beside a matrix", ours, dense, size);
  if (!library.forward.empty())
    print("attention, " + named.name + ", beside LibTorch's without a matrix", ours, library, size);
  const double ms = median(ours.forward) + median(ours.backward);
  if (full_ms > 0)
    report("attention, " + named.name + ", time over that of all pairs", ms / full_ms, "",
           {{"bound", share_of(mask)}, {"better", "lower"}, {"size", size}});
  return ms;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const TokenCount tokens_max = argc > 1 ? std::stol(argv[1]) : 8192;
  const int repeats = argc > 2 ? std::stoi(argv[2]) : 5;
  for (const std::int64_t dim : {64, 128})
    for (TokenCount tokens = 1024; tokens <= tokens_max; tokens *= 2) {
      if (dim == 128 && tokens != 2048) continue;  // One length says what wider heads change.
      double full_ms = 0;
      for (const auto& mask : masks(tokens)) {
        const double ms = compare(mask, dim, repeats, full_ms);
        if (full_ms == 0) full_ms = ms;
      }
    }
}
