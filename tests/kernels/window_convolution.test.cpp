#include "kernels/window_convolution.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/full.h>

#include "tests/kernels/gradient_check.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe::kernels;

TEST_CASE("windows are convolved one by one with zeros around each", "[kernels]") {
  // By hand, one channel, weight [1 10 100], windows [1 2] and [3]: 1*10 + 2*100 = 210,
  // 1*1 + 2*10 = 21, 3*10 = 30. Stride 2 keeps the first of each window.
  const auto frames = at::arange(1, 4, at::kDouble).view({3, 1});
  const auto weight = at::full({1, 1, 3}, 1.0, at::kDouble);
  weight[0][0][1] = 10, weight[0][0][2] = 100;
  const auto bias = at::full({1}, 0.5, at::kDouble);
  const auto fine = window_convolution(frames, weight, bias, {2, 1}, 1);
  CHECK(fine[0][0].item<double>() == 210.5);
  CHECK(fine[1][0].item<double>() == 21.5);
  CHECK(fine[2][0].item<double>() == 30.5);
  const auto coarse = window_convolution(frames, weight, bias, {2, 1}, 2);
  REQUIRE(coarse.size(0) == 2);
  CHECK(coarse[0][0].item<double>() == 210.5);
  CHECK(coarse[1][0].item<double>() == 30.5);
}

TEST_CASE("window convolution equals conv1d on each window", "[kernels][property]") {
  const std::vector<std::int64_t> windows{1, 2, 7, 4, 30};
  for (const std::int64_t stride : {1, 2}) {
    const auto frames = leaf({44, 3}, 1), weight = leaf({5, 3, 3}, 2), bias = leaf({5}, 3);
    std::vector<at::Tensor> parts;
    std::int64_t begin = 0;
    for (const auto window : windows) {
      const auto alone = frames.narrow(0, begin, window).t().unsqueeze(0);
      parts.push_back(at::conv1d(alone, weight, bias, stride, 1)[0].t());
      begin += window;
    }
    const auto ours = window_convolution(frames, weight, bias, windows, stride);
    CHECK(largest_difference(ours, at::cat(parts)) < 1e-13);
    CHECK(gradient_error([&] { return window_convolution(frames, weight, bias, windows, stride); },
                         {frames, weight, bias}) < 1e-8);
  }
}

TEST_CASE("windows that do not add up are refused", "[kernels][errors]") {
  CHECK_THROWS_AS(window_convolution(values({5, 2}), values({3, 2, 3}), values({3}), {2, 2}, 1),
                  c10::Error);
}
