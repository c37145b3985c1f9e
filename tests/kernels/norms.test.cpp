#include "kernels/norms.hpp"

#include <ATen/ops/full.h>

#include "tests/kernels/gradient_check.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe::kernels;

TEST_CASE("rms_norm divides by the root of the mean square", "[kernels]") {
  // By hand: [3 4 0 0]: mean square 25 / 4, root 2.5 -> [1.2 1.6 0 0]; times weight 2 -> [2.4 3.2].
  const auto row = at::full({1, 4}, 0.0, at::kDouble);
  row[0][0] = 3, row[0][1] = 4;
  const auto out = rms_norm(row, at::full({4}, 2.0, at::kDouble), 0);
  CHECK(std::abs(out[0][0].item<double>() - 2.4) < 1e-15);
  CHECK(std::abs(out[0][1].item<double>() - 3.2) < 1e-15);
  CHECK(out[0][2].item<double>() == 0);
}

TEST_CASE("norms have the derivatives of their definition", "[kernels][property]") {
  // 19 columns: more than one group of partial sums, and a tail.
  const auto rows = leaf({3, 19}, 1), weight = leaf({19}, 2), bias = leaf({19}, 3);
  CHECK(gradient_error([&] { return rms_norm(rows, weight, 1e-5); }, {rows, weight}) < 1e-8);
  CHECK(gradient_error([&] { return layer_norm(rows, weight, bias, 1e-5); }, {rows, weight, bias}) <
        1e-8);
}

TEST_CASE("norms of strided rows and of no rows are those of a copy", "[kernels]") {
  const auto wide = values({4, 20}), weight = values({10}, 2);
  const auto strided = wide.narrow(1, 5, 10);
  CHECK(rms_norm(strided, weight, 1e-5).equal(rms_norm(strided.contiguous(), weight, 1e-5)));
  CHECK(rms_norm(wide.narrow(0, 0, 0).narrow(1, 0, 10), weight, 1e-5).size(0) == 0);
}

TEST_CASE("rms_norm keeps its statistics wide for narrow rows", "[kernels]") {
  const auto rows = values({5, 64}), weight = values({64}, 2);
  const auto exact = rms_norm(rows, weight, 1e-5);
  CHECK(largest_difference(rms_norm(rows.to(at::kFloat), weight.to(at::kFloat), 1e-5), exact) <
        1e-6);
  const auto narrow_rows = rows.to(at::kBFloat16).set_requires_grad(true);
  const auto narrow_weight = weight.to(at::kBFloat16).set_requires_grad(true);
  const auto narrow = rms_norm(narrow_rows, narrow_weight, 1e-5);
  CHECK(narrow.scalar_type() == at::kBFloat16);
  CHECK(largest_difference(narrow, exact) < 0.03);  // Values up to 2, 8 bits of mantissa.
  narrow.sum().backward();
  CHECK(narrow_rows.grad().scalar_type() == at::kBFloat16);
  CHECK(narrow_weight.grad().scalar_type() == at::kBFloat16);
}
