#include "kernels/dense_attention.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "kernels/packed_attention.hpp"
#include "tests/kernels/masked_heads.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe;
using namespace troupe::kernels;

namespace {

constexpr std::uint64_t kText = ~std::uint64_t{0};

TokenMask mask_of(std::vector<std::uint64_t> words) {
  const std::vector<TokenCount> lengths{static_cast<TokenCount>(words.size())};
  return TokenMask::from_words(std::move(words), lengths).value();
}

}  // namespace

TEST_CASE("dense attention weighs the values that a row sees", "[kernels]") {
  // By hand: scores are 0, so a row is the mean of what it sees: itself; its span, rows 1 and 2;
  // all before it; and padding is 0.
  const auto zero = at::zeros({5, 1, 2}, at::kDouble);
  const auto value = at::tensor({1., 10., 2., 20., 4., 40., 9., 90., 50., 50.}).view({5, 1, 2});
  const auto out =
      dense_attention(zero, zero, value.to(at::kDouble), mask_of({kText, 2, 2, kText, 0}));
  const auto expected =
      at::tensor({1., 10., 3., 30., 3., 30., 4., 40., 0., 0.}, at::kDouble).view({5, 1, 2});
  CHECK(largest_difference(out, expected) < 1e-15);
}

TEST_CASE("dense attention is packed attention where the mask is causal", "[kernels]") {
  const auto mask = TokenMask::from_samples(std::vector<TokenSample>{{7, {}}, {1, {}}, {20, {}}});
  const auto dense = outcome_of(
      {28, 6, 2, 8}, [&](auto... heads) { return dense_attention(heads..., mask.value()); });
  const auto packed = outcome_of({28, 6, 2, 8}, [&](auto... heads) {
    return packed_attention(heads..., {7, 1, 20}, true);
  });
  CHECK(largest_difference(dense, packed) < 1e-13);
}

TEST_CASE("gradients of dense attention are those of differences", "[kernels][property]") {
  const UseThreads alone(1);
  for (unsigned seed = 0; seed < 6; ++seed) {
    Random random(seed);
    const auto mask = random_mask(random, 12);
    const Heads x(mask.size(), 4, 2, 3);
    CHECK(gradient_error([&] { return dense_attention(x.query, x.key, x.value, mask); },
                         {x.query, x.key, x.value}) < 1e-8);
  }
}

TEST_CASE("dense attention computes narrow types in fp32", "[kernels]") {
  Random random(3);
  const auto mask = random_mask(random, 60);
  const auto attention = [&](auto... heads) { return dense_attention(heads..., mask); };
  const auto narrow = outcome_of({mask.size(), 4, 2, 32, at::kBFloat16}, attention);
  CHECK(narrow.out.scalar_type() == at::kBFloat16);
  CHECK(narrow.d_key.scalar_type() == at::kBFloat16);
  // The same bf16 values, computed in fp64: what is left is one rounding to 8 bits.
  Heads wide(mask.size(), 4, 2, 32, at::kBFloat16);
  const at::NoGradGuard no_grad;
  const auto exact =
      attention(wide.query.to(at::kDouble), wide.key.to(at::kDouble), wide.value.to(at::kDouble));
  CHECK(
      exact.sub(narrow.out.to(at::kDouble)).abs().div(exact.abs().add(1e-6)).max().item<double>() <
      1.0 / 256);
}

TEST_CASE("heads that do not fit each other or the mask are refused", "[kernels][errors]") {
  const auto mask = mask_of({kText, kText, kText});
  const auto refused = [&](Heads x, const char* message) {
    try {
      dense_attention(x.query, x.key, x.value, mask);
    } catch (const c10::ValueError& error) {
      return std::string(error.what()).find(message) != std::string::npos;
    }
    return false;
  };
  const auto with = [](auto change) {
    Heads x(3, 4, 2, 8);
    change(x);
    return x;
  };
  CHECK(refused(Heads(4, 4, 2, 8), "the mask holds 3 rows, the query has 4"));
  CHECK(refused(Heads(3, 4, 3, 8), "4 query heads cannot share 3 key heads"));
  CHECK(refused(Heads(3, 4, 2, 0), "head sizes must be equal and above 0"));
  CHECK(refused(Heads(3, 4, 2, 8, at::kHalf), "fp32, bf16 and fp64"));
  CHECK(refused(with([](Heads& x) { x.query = x.query.select(1, 0); }), "takes [rows, heads"));
  CHECK(refused(with([](Heads& x) { x.value = x.value.narrow(0, 0, 2); }), "the same shape"));
  CHECK(refused(with([](Heads& x) { x.query = x.query.narrow(2, 0, 4); }), "found 4 and 8"));
  CHECK(refused(with([](Heads& x) { x.key = x.key.to(at::kFloat); }), "the query is Double"));
  CHECK(dense_attention(Heads(0, 4, 2, 8).query, Heads(0, 4, 2, 8).key, Heads(0, 4, 2, 8).value,
                        mask_of({}))
            .size(0) == 0);
}
