// Test helpers: repeatable values, and derivatives by central differences.

#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>

#include <vector>

namespace troupe::kernels {

/// Values in (-1, 1) without a pattern that a wrong kernel could share. fp64.
inline at::Tensor values(std::vector<std::int64_t> shape, double seed = 1) {
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  return at::arange(count, at::kDouble)
      .add(seed)
      .mul(12.9898 + seed)
      .sin()
      .mul(43758.5453)
      .frac()
      .view(shape);
}

inline at::Tensor leaf(std::vector<std::int64_t> shape, double seed = 1) {
  return values(std::move(shape), seed).set_requires_grad(true);
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  return a.detach().to(at::kDouble).sub(b.detach().to(at::kDouble)).abs().max().item<double>();
}

/// Largest difference between the gradient of sum(function() * probe) and central differences,
/// over all elements of `inputs` (fp64 leaves that `function` reads).
template <class Function>
double gradient_error(Function function, const std::vector<at::Tensor>& inputs) {
  const auto loss = [&] {
    const auto output = function();
    return output.mul(values(output.sizes().vec(), 7)).sum();
  };
  for (const auto& input : inputs) input.mutable_grad() = at::Tensor();
  loss().backward();
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  double error = 0;
  for (const auto& input : inputs) {
    auto* data = input.mutable_data_ptr<double>();
    const auto gradient = input.grad().contiguous();
    for (std::int64_t i = 0; i < input.numel(); ++i) {
      const double kept = data[i];
      data[i] = kept + kStep;
      const double above = loss().template item<double>();
      data[i] = kept - kStep;
      const double below = loss().template item<double>();
      data[i] = kept;
      const double expected = (above - below) / (2 * kStep);
      error = std::max(error, std::abs(expected - gradient.const_data_ptr<double>()[i]));
    }
  }
  return error;
}

}  // namespace troupe::kernels
