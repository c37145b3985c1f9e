#include "kernels/cross_entropy.hpp"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "tests/kernels/gradient_check.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe::kernels;

namespace {

at::Tensor integers(std::vector<std::int64_t> list) { return at::tensor(list, at::kLong); }

}  // namespace

TEST_CASE("targets are the next labels of the same sample", "[kernels]") {
  // Samples [7 -100 8] and [9 5] and [6]: row 0 sees -100, row 1 predicts 8, row 2 ends its sample;
  // row 3 predicts 5. The first labels (7, 9, 6) are never predicted.
  const auto next = next_token_targets(integers({7, -100, 8, 9, 5, 6}), {3, 2, 1});
  CHECK(next.rows.equal(integers({1, 3})));
  CHECK(next.targets.equal(integers({8, 5})));
  CHECK(next.counts == std::vector<std::int64_t>{1, 1, 0});
  CHECK_THROWS_AS(next_token_targets(integers({1, 2}), {3}), c10::Error);
  CHECK_THROWS_AS(next_token_targets(integers({1, 2}), {1}), c10::Error);
}

TEST_CASE("cross-entropy of equal logits is the logarithm of the vocabulary", "[kernels]") {
  // By hand: two targets of sample 0 cost 2 ln 4, sample 1 has none, sample 2 costs ln 4.
  const auto sums = cross_entropy_sums(values({3, 4}).mul(0.0), integers({0, 3, 1}), {2, 0, 1});
  CHECK(std::abs(sums[0].item<double>() - 2 * std::log(4.0)) < 1e-15);
  CHECK(sums[1].item<double>() == 0);
  CHECK(std::abs(sums[2].item<double>() - std::log(4.0)) < 1e-15);
}

TEST_CASE("cross-entropy sums have the derivatives of their definition", "[kernels][property]") {
  const auto logits = leaf({5, 6}, 1);
  const auto targets = integers({0, 5, 2, 2, 3});
  const auto sums = cross_entropy_sums(logits, targets, {3, 2});
  const auto expected = at::cross_entropy_loss(logits, targets, {}, /*reduction=*/2);
  CHECK(std::abs(sums.sum().item<double>() - expected.item<double>()) < 1e-13);
  CHECK(gradient_error(
            [&] {
              return cross_entropy_sums(logits, targets, {3, 0, 2});
            },
            {logits}) < 1e-8);
}

TEST_CASE("the loss of narrow logits is wide", "[kernels]") {
  const auto logits = values({4, 50}).mul(3.0);
  const auto targets = integers({1, 2, 3, 4});
  const auto narrow = logits.to(at::kBFloat16).set_requires_grad(true);
  const auto sums = cross_entropy_sums(narrow, targets, {4});
  CHECK(sums.scalar_type() == at::kFloat);
  CHECK(largest_difference(sums, cross_entropy_sums(logits, targets, {4})) < 0.1);
  sums.sum().backward();
  CHECK(narrow.grad().scalar_type() == at::kBFloat16);
}

TEST_CASE("a batch without targets has a loss of zero", "[kernels]") {
  const auto rows = leaf({3, 4}, 1);
  const auto next = next_token_targets(integers({1, -100, -100}), {3});
  const auto chosen = select_rows(rows, next.rows);
  CHECK(chosen.size(0) == 0);
  const auto sums = cross_entropy_sums(chosen, next.targets, next.counts);
  CHECK(sums.item<double>() == 0);
  sums.sum().backward();
  CHECK(rows.grad().abs().sum().item<double>() == 0);
}

TEST_CASE("a target outside the vocabulary is refused", "[kernels][errors]") {
  CHECK_THROWS_AS(cross_entropy_sums(values({1, 4}), integers({4}), {1}), c10::Error);
}
