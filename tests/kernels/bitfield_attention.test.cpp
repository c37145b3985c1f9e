#include "kernels/bitfield_attention.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/dense_attention.hpp"
#include "kernels/packed_attention.hpp"
#include "tests/kernels/masked_heads.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe;
using namespace troupe::kernels;

namespace {

std::shared_ptr<const MaskTiles> tiles_of(TokenMask mask, BlockShape shape = kAttentionTiles) {
  return std::make_shared<const MaskTiles>(std::move(mask), shape);
}

TokenMask mask_of(const std::vector<TokenSample>& samples) {
  return TokenMask::from_samples(samples).value();
}

Outcome blocked(const Heads& heads, std::shared_ptr<const MaskTiles> tiles) {
  return outcome_of(heads, [&](auto... x) { return bitfield_attention(x..., tiles); });
}

Outcome dense(const Heads& heads, const TokenMask& mask) {
  return outcome_of(heads, [&](auto... x) { return dense_attention(x..., mask); });
}

// Text with an image and a window of sound in it, packed behind a short sample.
TokenMask multimodal(TokenCount length) {
  const TokenCount first = length / 5, rest = length - first;
  return mask_of(
      {{first, {{0, first / 2}}}, {rest, {{rest / 8, rest / 2}, {rest / 2, rest * 5 / 8}}}});
}

}  // namespace

TEST_CASE("grouped heads meet masks of any length", "[kernels][property]") {
  const UseThreads alone(1);
  // Long ones with one number of keys and one head size each, but for scripts/test --thorough.
  const bool wants_all = std::getenv("TROUPE_THOROUGH") != nullptr;
  for (const std::int64_t dim : {32, 64, 128})
    for (const std::int64_t kv_heads : {1, 2, 3})
      for (const std::int64_t length : {57, 128, 144, 256, 283, 512, 1024}) {
        const bool is_long = length > 150 && !wants_all;
        if (is_long && (kv_heads != length % 3 + 1 || (length > 512 && dim != 32))) continue;
        CAPTURE(dim, kv_heads, length);
        for (const auto& mask : {multimodal(length), mask_of({{length, {}}})}) {
          const auto found = blocked({length, 6, kv_heads, dim}, tiles_of(mask));
          CHECK(largest_difference(found, dense({length, 6, kv_heads, dim}, mask)) < 1e-12);
        }
      }
}

TEST_CASE("blocked attention is dense attention under 2000 masks", "[kernels][property]") {
  const UseThreads alone(1);  // Small tensors: several take longer.
  for (unsigned seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto mask = random_mask(random, 150);
    const BlockShape shape{8 * (1 + static_cast<TokenCount>(random.below(4))),
                           16 * (1 + static_cast<TokenCount>(random.below(3)))};
    const auto kv_heads = 1 + static_cast<std::int64_t>(random.below(2));
    const auto heads = kv_heads * (1 + static_cast<std::int64_t>(random.below(3)));
    const auto dim = 1 + static_cast<std::int64_t>(random.below(40));
    const auto found = blocked({mask.size(), heads, kv_heads, dim}, tiles_of(mask, shape));
    REQUIRE(largest_difference(found, dense({mask.size(), heads, kv_heads, dim}, mask)) < 1e-12);
  }
}

TEST_CASE("gradients of blocked attention are those of differences", "[kernels][property]") {
  const UseThreads alone(1);
  for (unsigned seed = 0; seed < 8; ++seed) {
    Random random(seed);
    const auto tiles = tiles_of(random_mask(random, 24), {8, 16});
    const Heads x(tiles->mask().size(), 4, 2, 3);
    CHECK(gradient_error([&] { return bitfield_attention(x.query, x.key, x.value, tiles); },
                         {x.query, x.key, x.value}) < 1e-8);
  }
}

TEST_CASE("blocked attention is packed attention where the mask is causal", "[kernels][property]") {
  const auto tiles = tiles_of(mask_of({{7, {}}, {1, {}}, {250, {}}, {130, {}}}));
  const auto found = blocked({388, 6, 2, 32}, tiles);
  const auto packed = outcome_of({388, 6, 2, 32}, [&](auto... heads) {
    return packed_attention(heads..., {7, 1, 250, 130}, true);
  });
  CHECK(largest_difference(found, packed) < 1e-12);
}

TEST_CASE("threads do not change a bit of attention", "[kernels][property]") {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const auto tiles = tiles_of(multimodal(700));
    const Heads x(700, 6, 3, 40, type);
    const UseThreads restored(1);
    const auto alone = blocked(x, tiles);
    for (const int count : {1, 2, 3, 7}) {
      CAPTURE(count);
      const UseThreads threads(count);
      CHECK(same_bits(blocked({700, 6, 3, 40, type}, tiles), alone));
    }
  }
}

TEST_CASE("padding is 0, takes no gradient and gives none", "[kernels]") {
  // 20 tokens of text, a block and more of padding, and text.
  std::vector<std::uint64_t> words(200, ~std::uint64_t{0});
  std::fill_n(words.begin() + 20, 150, 0);
  const std::vector<TokenCount> lengths{200};
  const auto tiles = tiles_of(TokenMask::from_words(words, lengths).value(), {64, 64});
  const auto found = blocked({200, 2, 1, 16}, tiles);
  for (const auto& tensor : {found.out, found.d_query, found.d_key, found.d_value}) {
    CHECK(tensor.narrow(0, 20, 150).abs().max().item<double>() == 0);
    CHECK(tensor.isfinite().all().item<bool>());
  }
  CHECK(largest_difference(found, dense({200, 2, 1, 16}, tiles->mask())) < 1e-12);
}

TEST_CASE("tiles that nothing sees are not touched", "[kernels]") {
  // A sample of three blocks behind one of one block, whose numbers are none: even a weight of 0
  // would spread them. In the second an image that no text before it may see.
  const auto tiles = tiles_of(mask_of({{64, {}}, {192, {{64, 128}}}}), {64, 64});
  Heads x(256, 2, 2, 16), same(256, 2, 2, 16);
  {
    const at::NoGradGuard no_grad;
    for (const auto& tensor : {x.query, x.key, x.value})
      tensor.narrow(0, 0, 64).fill_(std::numeric_limits<double>::quiet_NaN());
  }
  const auto found = blocked(x, tiles), expected = blocked(same, tiles);
  const auto rest = [](const at::Tensor& tensor) { return tensor.narrow(0, 64, 192); };
  CHECK(rest(found.out).equal(rest(expected.out)));
  CHECK(rest(found.d_query).equal(rest(expected.d_query)));
  CHECK(rest(found.d_key).equal(rest(expected.d_key)));
  CHECK(found.out.narrow(0, 0, 64).isnan().all().item<bool>());
}

TEST_CASE("attention of large scores stays finite", "[kernels]") {
  const auto mask = multimodal(150);
  const auto scaled = [&](auto attention) {
    return outcome_of({150, 2, 1, 8, at::kFloat}, [&](auto query, auto key, auto value) {
      return attention(query.mul(3000), key, value);
    });
  };
  const auto found = scaled([&](auto... x) { return bitfield_attention(x..., tiles_of(mask)); });
  const auto expected = scaled([&](auto... x) { return dense_attention(x..., mask); });
  CHECK(found.d_query.isfinite().all().item<bool>());
  CHECK(largest_difference(found.out, expected.out) < 2e-3);
}

TEST_CASE("blocked attention takes strided heads and narrow types", "[kernels]") {
  const auto packed = leaf({170, 3, 2, 32});
  const auto parts = packed.unbind(1);
  const auto tiles = tiles_of(multimodal(170));
  const auto expected = dense_attention(parts[0], parts[1], parts[2], tiles->mask());
  const auto found = bitfield_attention(parts[0], parts[1], parts[2], tiles);
  CHECK(largest_difference(found, expected) < 1e-12);
  const auto last = [](const at::Tensor& heads) {  // Elements of a head lie apart.
    return heads.transpose(1, 2).contiguous().transpose(1, 2);
  };
  const auto apart = bitfield_attention(last(parts[0]), last(parts[1]), last(parts[2]), tiles);
  CHECK(apart.equal(found));
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Heads exact(170, 4, 2, 64, type);
    const auto narrow = blocked(exact, tiles);
    const auto wide = outcome_of({170, 4, 2, 64, type}, [&](auto query, auto key, auto value) {
      return dense_attention(query.to(at::kDouble), key.to(at::kDouble), value.to(at::kDouble),
                             tiles->mask());
    });
    CHECK(narrow.out.scalar_type() == type);
    CHECK(narrow.d_key.scalar_type() == type);
    CHECK(largest_difference(narrow, wide) < (type == at::kFloat ? 2e-6 : 0.02));
    // Computed in fp32: what is left of an output is its one rounding to 8 bits.
    const auto wrong = narrow.out.to(at::kDouble).sub(wide.out).abs();
    CHECK(wrong.div(wide.out.abs().add(1e-4)).max().item<double>() < 1.0 / 256);
  }
}

TEST_CASE("without gradients attention records nothing", "[kernels]") {
  const auto tiles = tiles_of(multimodal(20));
  const Heads x(20, 2, 1, 8);
  CHECK_FALSE(
      bitfield_attention(x.query.detach(), x.key.detach(), x.value.detach(), tiles).grad_fn());
  CHECK(bitfield_attention(x.query.detach(), x.key.detach(), x.value, tiles).grad_fn());
  CHECK(tiles.use_count() == 1);  // The second was kept for a backward that cannot come any more.
}

TEST_CASE("blocked attention of no rows is no rows, and what does not fit is refused",
          "[kernels][errors]") {
  const Heads none(0, 2, 2, 4), x(5, 2, 2, 4);
  const auto attend = [](const Heads& heads, std::shared_ptr<const MaskTiles> tiles) {
    return bitfield_attention(heads.query, heads.key, heads.value, std::move(tiles));
  };
  CHECK(attend(none, tiles_of(mask_of({}))).size(0) == 0);
  CHECK_THROWS_AS(attend(x, tiles_of(mask_of({{4, {}}}))), c10::ValueError);
  CHECK_THROWS_AS(attend(x, tiles_of(mask_of({{5, {}}}), {12, 16})), c10::ValueError);
  CHECK_THROWS_AS(attend(x, tiles_of(mask_of({{5, {}}}), {8, 24})), c10::ValueError);
  CHECK_NOTHROW(attend(x, tiles_of(mask_of({{5, {}}}), {8, 16})));
}
