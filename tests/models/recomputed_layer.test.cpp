#include "tests/torch_catch.hpp"

#include "models/recomputed_layer.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

#include "kernels/deferred_gradients.hpp"
#include "kernels/linear.hpp"
#include "models/parameter_layer.hpp"
#include "runtime/vocabulary/recomputation.hpp"

namespace troupe::models {
namespace {

/// rows -> (rows w^T)^2, with a loss of each segment; remembers what it made in between.
class Squares final : public ParameterLayer {
 public:
  explicit Squares(bool trains, bool has_loss = false)
      : ParameterLayer(
            {{"w", at::arange(9, at::kDouble).reshape({3, 3}).set_requires_grad(trains)}}),
        has_loss_(has_loss) {}

  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override {
    ++calls;
    graphs += c10::GradMode::is_enabled();
    const at::Tensor between = kernels::linear(rows, (*this)[0]);
    made = between.storage().getWeakStorageImpl();
    if (has_loss_) add_loss(batch, "size", between.pow(2).sum(1), 0.5);
    return between.pow(2);
  }

  bool keeps_what_it_made() const { return made && !made->expired(); }

  int calls = 0, graphs = 0;  ///< Of the calls, those that recorded one.
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> made;

 private:
  bool has_loss_;
};

at::Tensor some_rows(bool needs_gradient) {
  return at::arange(6, at::kDouble).reshape({2, 3}).sub(2).set_requires_grad(needs_gradient);
}

PackedBatch batch_of_two() {
  PackedBatch batch;
  batch.segments = {1, 1};
  batch.losses = std::make_shared<AuxiliaryLosses>();
  return batch;
}

/// A backward of the rows and of all losses.
void run_backward(const at::Tensor& out, const PackedBatch& batch) {
  std::vector<at::Tensor> roots{out}, gradients{at::full(out.sizes(), 0.25, out.options())};
  append_roots(*batch.losses, 7, roots, gradients);
  torch::autograd::backward(roots, gradients);
}

TEST_CASE("a layer that runs again gives the bits of one that keeps everything", "[models]") {
  for (const bool has_loss : {false, true}) {
    CAPTURE(has_loss);
    Squares plain(true, has_loss);
    auto owned = std::make_unique<Squares>(true, has_loss);
    Squares& inner = *owned;
    const auto again = recomputed(std::move(owned));
    const at::Tensor rows = some_rows(true), same_rows = some_rows(true);
    const PackedBatch batch = batch_of_two(), same_batch = batch_of_two();
    const at::Tensor out = plain.forward(rows, batch), same = again->forward(same_rows, same_batch);
    CHECK(plain.keeps_what_it_made());
    CHECK_FALSE(inner.keeps_what_it_made());
    CHECK((inner.calls == 1 && inner.graphs == 0));
    CHECK(at::equal(out, same));
    REQUIRE(same_batch.losses->size() == batch.losses->size());
    if (has_loss) {
      CHECK(same_batch.losses->front().name == "size");
      CHECK(same_batch.losses->front().weight == 0.5);
      CHECK(at::equal(same_batch.losses->front().values, batch.losses->front().values));
    }
    run_backward(out, batch);
    run_backward(same, same_batch);
    CHECK((inner.calls == 2 && inner.graphs == 1));
    CHECK(at::equal(rows.grad(), same_rows.grad()));
    CHECK(at::equal(plain.parameters()[0].value.grad(), again->parameters()[0].value.grad()));
  }
}

TEST_CASE("a layer runs again only where its backward has something to do", "[models]") {
  const auto calls_of = [](bool trains, bool needs_gradient) {
    auto owned = std::make_unique<Squares>(trains);
    Squares& inner = *owned;
    const auto again = recomputed(std::move(owned));
    const at::Tensor rows = some_rows(needs_gradient);
    const PackedBatch batch = batch_of_two();
    const at::Tensor out = again->forward(rows, batch);
    if (!out.requires_grad()) return inner.calls;
    run_backward(out, batch);
    CHECK(rows.grad().defined() == needs_gradient);
    CHECK(inner.parameters()[0].value.grad().defined() == trains);
    return inner.calls;
  };
  CHECK(calls_of(false, false) == 1);
  CHECK(calls_of(false, true) == 2);
  CHECK(calls_of(true, false) == 2);
  const c10::AutoGradMode off(false);
  CHECK(calls_of(true, true) == 1);
}

TEST_CASE("weight gradients of a layer that runs again may wait", "[models]") {
  Squares plain(true);
  const auto again = recomputed(std::make_unique<Squares>(true));
  const PackedBatch batch = batch_of_two();
  run_backward(plain.forward(some_rows(true), batch), batch);
  const at::Tensor rows = some_rows(true);
  const auto deferred = std::make_shared<kernels::DeferredGradients>();
  const at::Tensor out = again->forward(rows, batch);
  {
    const kernels::DeferWeightGradients guard(deferred);
    run_backward(out, batch);
  }
  CHECK(rows.grad().defined());
  CHECK_FALSE(again->parameters()[0].value.grad().defined());
  {
    const c10::AutoGradMode off(false);
    deferred->run();
  }
  CHECK(at::equal(plain.parameters()[0].value.grad(), again->parameters()[0].value.grad()));
}

TEST_CASE("all layers of a module but its first and its last run again", "[models]") {
  std::vector<int> found;
  for (int layer = 0; layer < 5; ++layer)
    if (is_recomputed(layer, 5)) found.push_back(layer);
  CHECK(found == std::vector<int>{1, 2, 3});
  CHECK_FALSE(is_recomputed(0, 1));
}

}  // namespace
}  // namespace troupe::models
