#include "kernels/activations.hpp"

#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <limits>

#include "tests/kernels/gradient_check.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe::kernels;

namespace {

// From -40 to 40: both saturated ends and the middle. 203 values: whole vectors and a tail.
at::Tensor wide_range() { return at::arange(203, at::kDouble).sub(101).mul(0.4).view({7, 29}); }

}  // namespace

TEST_CASE("activations are their definitions", "[kernels]") {
  const auto x = wide_range(), up = values({7, 29}, 3);
  CHECK(largest_difference(swiglu(x, up), x.mul(at::sigmoid(x)).mul(up)) < 1e-13);
  CHECK(largest_difference(quick_gelu(x), x.mul(at::sigmoid(x.mul(1.702)))) < 1e-13);
  // By hand: gelu(1) = 1 * Phi(1) = 0.8413447460685429.
  CHECK(std::abs(gelu(at::tensor({1.0}, at::kDouble)).item<double>() - 0.8413447460685429) < 1e-14);
}

TEST_CASE("activations agree between types", "[kernels]") {
  const auto x = wide_range(), up = values({7, 29}, 3);
  const auto relative = [](const at::Tensor& narrow, const at::Tensor& exact) {
    return narrow.to(at::kDouble).sub(exact).div(exact.abs().add(1e-3)).abs().max().item<double>();
  };
  CHECK(relative(swiglu(x.to(at::kFloat), up.to(at::kFloat)), swiglu(x, up)) < 2e-5);
  CHECK(relative(quick_gelu(x.to(at::kFloat)), quick_gelu(x)) < 2e-5);
  CHECK(relative(swiglu(x.to(at::kBFloat16), up.to(at::kBFloat16)), swiglu(x, up)) < 0.6);
  CHECK(quick_gelu(x.to(at::kBFloat16)).scalar_type() == at::kBFloat16);
}

TEST_CASE("activations have the derivatives of their definitions", "[kernels][property]") {
  const auto gate = leaf({5, 9}, 1), up = leaf({5, 9}, 2);
  CHECK(gradient_error([&] { return swiglu(gate, up); }, {gate, up}) < 1e-8);
  CHECK(gradient_error([&] { return quick_gelu(gate); }, {gate}) < 1e-8);
  CHECK(gradient_error([&] { return gelu(gate); }, {gate}) < 1e-8);
}

TEST_CASE("activations pass on what is not a number", "[kernels]") {
  const auto bad = std::numeric_limits<double>::quiet_NaN();
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    auto x = values({1, 40}).to(dtype);
    x[0][3] = bad;
    x[0][35] = bad;
    CHECK(quick_gelu(x).isnan().sum().item<std::int64_t>() == 2);
    CHECK(swiglu(x, x.abs()).isnan().sum().item<std::int64_t>() == 2);
  }
}
