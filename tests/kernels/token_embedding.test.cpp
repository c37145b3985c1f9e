#include "kernels/token_embedding.hpp"

#include <ATen/ops/all.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "tests/kernels/gradient_check.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe::kernels;

namespace {

at::Tensor ids(std::initializer_list<std::int64_t> list) {
  return at::tensor(std::vector<std::int64_t>(list), at::kLong);
}

}  // namespace

TEST_CASE("media rows stand in the places of their markers", "[kernels]") {
  const auto weight = values({4, 3}, 1), media = values({2, 3}, 2);
  // Ids at media positions are never looked up: 99 and -1 are out of range.
  const auto out = embed_tokens(ids({1, 99, 3, -1}), weight, ids({3, 1}), media);
  CHECK(out[0].equal(weight[1]));
  CHECK(out[1].equal(media[1]));
  CHECK(out[2].equal(weight[3]));
  CHECK(out[3].equal(media[0]));
}

TEST_CASE("embedding gradients reach used tokens and media rows", "[kernels][property]") {
  const auto weight = leaf({5, 3}, 1), media = leaf({2, 3}, 2);
  CHECK(gradient_error(
            [&] {
              return embed_tokens(ids({1, 4, 1, 0, 2}), weight);
            },
            {weight}) < 1e-8);
  CHECK(gradient_error(
            [&] {
              return embed_tokens(ids({1, 0, 1, 0, 2}), weight, ids({3, 1}), media);
            },
            {weight, media}) < 1e-8);
}

TEST_CASE("the gradient of a bf16 token is the sum of its rows, however many", "[kernels]") {
  const auto weight = at::zeros({5, 8}, at::kBFloat16).requires_grad_();
  std::vector<std::int64_t> list(1026, 2);
  list[7] = 0;
  list[9] = 99;  // A media position.
  const auto media = values({1, 8}, 2).to(at::kBFloat16);
  embed_tokens(at::tensor(list, at::kLong), weight, ids({9}), media).sum().backward();
  const auto gradient = weight.grad().to(at::kFloat);
  REQUIRE(weight.grad().scalar_type() == at::kBFloat16);
  CHECK(gradient[2].eq(1024).all().item<bool>());
  CHECK(gradient[0].eq(1).all().item<bool>());
  for (const std::int64_t unused : {1, 3, 4}) CHECK(gradient[unused].eq(0).all().item<bool>());
}

TEST_CASE("a frozen embedding still passes gradients to media rows", "[kernels]") {
  const auto weight = values({5, 3}, 1), media = leaf({1, 3}, 2);
  embed_tokens(ids({1, 0}), weight, ids({1}), media).sum().backward();
  CHECK(media.grad().sum().item<double>() == 3);
  CHECK_FALSE(embed_tokens(ids({1, 0}), weight).requires_grad());
}

TEST_CASE("ids and positions out of range are refused", "[kernels][errors]") {
  const auto weight = values({4, 3}), media = values({1, 3}, 2);
  CHECK_THROWS_AS(embed_tokens(ids({0, 4}), weight), c10::Error);
  CHECK_THROWS_AS(embed_tokens(ids({-1}), weight), c10::Error);
  CHECK_THROWS_AS(embed_tokens(ids({0, 1}), weight, ids({2}), media), c10::Error);
}
