#include "tests/torch_catch.hpp"

#include "models/auxiliary_loss.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string>

#include "models/layer.hpp"

namespace troupe::models {
namespace {

TEST_CASE("a layer's loss is its weight times the mean over segments of the batch", "[models]") {
  PackedBatch batch;
  batch.segments = {3, 1};
  batch.losses = std::make_shared<AuxiliaryLosses>();
  const at::Tensor weight = at::ones({2}, at::kDouble).requires_grad_();
  add_loss(batch, "balance", weight.mul(at::tensor({3.0, 5.0}, at::kDouble)), 0.5);
  add_loss(batch, "shown", at::tensor({1.0, 2.0}, at::kDouble), 2);
  REQUIRE(batch.losses->size() == 2);
  // The batch has ten segments, two of them here: 0.5 * (3 + 5) / 10.
  const AuxiliaryLoss& first = batch.losses->front();
  CHECK(sum_of(first).item<double>() == 8);
  CHECK(contribution(first, 8, 10) == 0.4);
  CHECK(contribution(first, 0, 0) == 0);
  CHECK(train_anything(*batch.losses));
  std::vector<at::Tensor> roots, gradients;
  append_roots(*batch.losses, 10, roots, gradients);
  REQUIRE(roots.size() == 1);  // The other one has nothing to train.
  torch::autograd::backward(roots, gradients);
  CHECK(weight.grad()[0].item<double>() == 3 * (0.5 / 10));
  CHECK(weight.grad()[1].item<double>() == 5 * (0.5 / 10));
  CHECK_FALSE(train_anything({(*batch.losses)[1]}));
}

TEST_CASE("a layer's loss is as exact as the loss of tokens", "[models]") {
  PackedBatch batch;
  batch.segments = {3};
  batch.losses = std::make_shared<AuxiliaryLosses>();
  const at::Tensor weight = at::ones({1}, at::kBFloat16).requires_grad_();
  add_loss(batch, "balance", weight.mul(1), 1);
  std::vector<at::Tensor> roots, gradients;
  append_roots(*batch.losses, 1001, roots, gradients);
  CHECK(gradients[0].item<float>() == 1 / 1001.0F);  // Which bf16 does not know.
  torch::autograd::backward(roots, gradients);
  CHECK(weight.grad().scalar_type() == at::kBFloat16);
}

TEST_CASE("a layer's loss has a floating value for each segment and a name", "[models][errors]") {
  PackedBatch batch;
  batch.segments = {3, 1};
  const at::Tensor right = at::ones({2});
  add_loss(batch, "balance", right, 1);  // Nobody collects them.
  CHECK_THROWS_AS(add_loss(batch, "", right, 1), c10::Error);
  CHECK_THROWS_AS(add_loss(batch, "x", at::ones({4}), 1), c10::Error);
  CHECK_THROWS_AS(add_loss(batch, "x", at::ones({2, 1}), 1), c10::Error);
  CHECK_THROWS_AS(add_loss(batch, "x", at::arange(2), 1), c10::Error);
}

TEST_CASE("a layer's loss that is to be trained is not lost", "[models][errors]") {
  PackedBatch batch;
  batch.segments = {3, 1};
  batch.needs_losses = true;
  std::string said;
  try {
    add_loss(batch, "balance", at::ones({2}), 1);
  } catch (const c10::Error& error) {
    said = error.what_without_backtrace();
  }
  CHECK(said.starts_with("the auxiliary loss 'balance' would not be trained: the stage kind "));
  batch.losses = std::make_shared<AuxiliaryLosses>();
  add_loss(batch, "balance", at::ones({2}), 1);
  CHECK(batch.losses->size() == 1);
}

}  // namespace
}  // namespace troupe::models
