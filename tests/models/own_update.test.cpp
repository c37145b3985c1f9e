#include "tests/torch_catch.hpp"

#include "models/own_update.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <memory>
#include <vector>

#include "models/parameter_layer.hpp"
#include "models/recomputed_layer.hpp"

namespace troupe::models {
namespace {

/// Rows times a weight; counts its rows.
struct Counting final : ParameterLayer {
  using ParameterLayer::ParameterLayer;

  at::Tensor forward(const at::Tensor& rows, const PackedBatch&) override {
    const auto& p = *this;  // weight, seen
    return contribute(rows.mul(p[0]), p[1], at::full({1}, double(rows.size(0)), at::kDouble));
  }
};

std::vector<Parameter> weight_and_seen(bool trains) {
  std::vector<Parameter> list{{"m.weight", at::full({1}, 3.0, at::kDouble)},
                              {"m.seen", at::full({1}, 0.0, at::kDouble)}};
  for (auto& parameter : list) parameter.value.set_requires_grad(trains);
  return list;
}

TEST_CASE("a contribution comes once for each part, whatever the gradient of its rows",
          "[models]") {
  for (const bool recomputes : {false, true}) {
    CAPTURE(recomputes);
    std::unique_ptr<Layer> layer = std::make_unique<Counting>(weight_and_seen(true));
    if (recomputes) layer = recomputed(std::move(layer));
    const at::Tensor weight = layer->parameters()[0].value, seen = layer->parameters()[1].value;
    const at::Tensor rows = at::ones({2, 1}, at::kDouble).requires_grad_();
    const at::Tensor out = layer->forward(rows, {});
    CHECK(at::equal(out, at::full({2, 1}, 3.0, at::kDouble)));
    static_cast<void>(layer->forward(rows, {}));  // Given up: no backward.
    CHECK_FALSE(seen.grad().defined());
    out.mul(7).sum().backward();
    CHECK(at::equal(seen.grad(), at::tensor({2.0}, at::kDouble)));
    // The rows' own gradients pass: 7 times two rows of 1, and 7 times the weight.
    CHECK(at::equal(weight.grad(), at::tensor({14.0}, at::kDouble)));
    CHECK(at::equal(rows.grad(), at::full({2, 1}, 21.0, at::kDouble)));
    layer->forward(at::ones({3, 1}, at::kDouble), {}).sum().backward();
    CHECK(at::equal(seen.grad(), at::tensor({5.0}, at::kDouble)));
  }
}

TEST_CASE("nothing is contributed where nothing trains or is recorded", "[models]") {
  Counting frozen(weight_and_seen(false)), trained(weight_and_seen(true));
  const at::Tensor rows = at::ones({2, 1}, at::kDouble).requires_grad_();
  frozen.forward(rows, {}).sum().backward();
  CHECK_FALSE(frozen.parameters()[1].value.grad().defined());
  const c10::AutoGradMode records(false);
  CHECK_FALSE(trained.forward(rows, {}).requires_grad());
}

TEST_CASE("a contribution has the shape of its parameter", "[models][errors]") {
  const at::Tensor rows = at::ones({2, 1}), parameter = at::ones({3}).requires_grad_();
  CHECK_THROWS_AS(contribute(rows, parameter, at::ones({1})), c10::Error);
  CHECK_THROWS_AS(contribute(rows, at::ones({3}), at::ones({1})), c10::Error);
}

}  // namespace
}  // namespace troupe::models
