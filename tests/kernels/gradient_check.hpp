// Test helpers: repeatable values, and derivatives by central differences.

#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <cmath>
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

/// The worst of a few parts of the rows: norm of the difference / (norm of what is wanted there,
/// and a twentieth of that of all, since exact zeros are not found by rounded sums). The difference
/// itself where all that is wanted is 0.
inline double relative_difference(const at::Tensor& found, const at::Tensor& wanted) {
  constexpr std::int64_t kParts = 8;
  const auto a = found.detach().to(at::kDouble), b = wanted.detach().to(at::kDouble);
  const auto rows = b.dim() == 0 ? 1 : b.size(0);
  const auto norm = [](const at::Tensor& x) { return x.norm().item<double>(); };
  const double of_all = norm(b);
  double worst = 0;
  for (std::int64_t part = 0; part < kParts; ++part) {
    const auto begin = part * rows / kParts, end = (part + 1) * rows / kParts;
    if (begin == end) continue;
    const auto of = [&](const at::Tensor& x) {
      return x.dim() == 0 ? x : x.narrow(0, begin, end - begin);
    };
    const double apart = norm(of(a).sub(of(b)));
    if (std::isnan(apart)) return apart;
    worst = std::max(worst, of_all > 0 ? apart / (norm(of(b)) + of_all / 20) : apart);
  }
  return worst;
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
