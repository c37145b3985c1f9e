#include "tests/torch_catch.hpp"

#include "runtime/state/gradient_norm.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <limits>
#include <vector>

using Catch::Matchers::WithinRel;

namespace troupe::state {
namespace {

at::Tensor random(std::int64_t seed, at::IntArrayRef sizes, at::ScalarType type) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  return at::randn(sizes, generator, at::kDouble).to(type);
}

TEST_CASE("the squared norm of 3, 4 is 25, over tensors 25 + 144 = 169", "[state]") {
  const std::vector<at::Tensor> gradients{at::tensor({3.0F, 4.0F}), at::Tensor(),
                                          at::tensor({-12.0F})};
  CHECK(squared_norm(gradients[0]) == 25);
  CHECK(measure(gradients).squared_norm == 169);
  CHECK(measure(gradients).finite);
  const std::vector<double> squares{25, 144};
  CHECK(global_norm(squares) == 13);
}

TEST_CASE("what is left out of a range counts in no norm, and must be finite", "[state]") {
  const auto gradients = at::tensor({1.0, 2.0, 100.0, 100.0, 3.0, 4.0, 100.0});
  const std::vector<IndexRange> out{{2, 4}, {6, 7}};
  CHECK(measure_range(gradients, {0, 7}, out).squared_norm == 1 + 4 + 9 + 16);
  CHECK(measure_range(gradients, {1, 3}, out).squared_norm == 4);
  CHECK(measure_range(gradients, {3, 6}, out).squared_norm == 9 + 16);
  CHECK(measure_range(gradients, {2, 4}, out).squared_norm == 0);
  CHECK(measure_range(gradients, {4, 7}, {}).squared_norm == 9 + 16 + 10000);
  CHECK(measure_range(gradients, {0, 7}, out).finite);
  gradients[3] = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(measure_range(gradients, {0, 7}, out).finite);
  CHECK(measure_range(gradients, {0, 7}, out).squared_norm == 30);
  CHECK(measure_range(gradients, {4, 7}, out).finite);
  gradients[5] = std::numeric_limits<double>::infinity();
  CHECK_FALSE(measure_range(gradients, {4, 7}, out).finite);
}

TEST_CASE("squares of fp32 values neither overflow nor vanish", "[state]") {
  CHECK_THAT(squared_norm(at::full({2}, 1e30F)), WithinRel(2e60, 1e-6));
  CHECK_THAT(squared_norm(at::full({2}, 1e-30F)), WithinRel(2e-60, 1e-6));
}

TEST_CASE("an undefined or empty gradient has norm 0 and is finite", "[state]") {
  CHECK(squared_norm(at::Tensor()) == 0);
  CHECK(squared_norm(at::empty({0, 3})) == 0);
  CHECK(finite(at::Tensor()));
  CHECK(finite(at::empty({0})));
}

TEST_CASE("one NaN or infinity anywhere is found", "[state]") {
  const auto type = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  const double value =
      GENERATE(std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
               -std::numeric_limits<double>::infinity());
  for (const std::int64_t at : {0, 7, 16, 18}) {
    auto tensor = at::full({19}, 1.5, type);
    tensor.select(0, at).fill_(value);
    CHECK_FALSE(finite(tensor));
    const std::vector<at::Tensor> gradients{at::full({4}, 1.0), tensor};
    CHECK_FALSE(measure(gradients).finite);
  }
}

TEST_CASE("huge fp64 values overflow the square but stay finite", "[state]") {
  const std::vector<at::Tensor> gradients{at::full({2}, 1e200, at::kDouble)};
  CHECK(std::isinf(measure(gradients).squared_norm));
  CHECK(measure(gradients).finite);
}

TEST_CASE("clipping keeps small gradients and scales large ones to the bound", "[state]") {
  CHECK(clip_factor(0.5, 1) == 1);
  CHECK(clip_factor(1e9, 0) == 1);
  CHECK_THAT(clip_factor(4, 1), WithinRel(1 / (4 + 1e-6), 1e-15));
}

TEST_CASE("the norm agrees with a plain sum and ignores threads and strides", "[state][property]") {
  const auto seed = GENERATE(range(0, 8));
  const auto rows = GENERATE(1, 13, 200);
  const auto type = GENERATE(at::kFloat, at::kDouble);
  CAPTURE(seed, rows);
  const auto tensor = random(seed, {rows, 31}, type);
  const auto wide = tensor.to(at::kDouble).contiguous();
  long double plain = 0;
  for (std::int64_t i = 0; i < wide.numel(); ++i) {
    const double value = wide.const_data_ptr<double>()[i];
    plain += static_cast<long double>(value) * value;
  }
  const double measured = squared_norm(tensor);
  CHECK_THAT(measured, WithinRel(static_cast<double>(plain), 1e-13));
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  CHECK(squared_norm(tensor) == measured);
  at::set_num_threads(threads);
  // A transposed view of the transposed copy has the same elements in the same order.
  CHECK(squared_norm(tensor.t().contiguous().t()) == measured);
}

}  // namespace
}  // namespace troupe::state
