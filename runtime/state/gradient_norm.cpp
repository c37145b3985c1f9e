#include "runtime/state/gradient_norm.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include "kernels/gpu/sums.hpp"
#include "kernels/gpu/tensors.hpp"

namespace troupe::state {

namespace {

// Lanes let the compiler use vector units without changing the order of the sum.
constexpr std::int64_t kLanes = 8;
constexpr std::int64_t kPiece = std::int64_t{1} << 24;  // Of a tensor on a device.

template <class Number>
double sum_of_squares(const Number* values, std::int64_t count) {
  std::array<double, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(values[i + lane]);
      lanes[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  for (; i < count; ++i) {
    const double value = static_cast<double>(values[i]);
    lanes[static_cast<std::size_t>(i % kLanes)] += value * value;
  }
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

template <class Number>
bool all_finite(const Number* values, std::int64_t count) {
  // x - x is 0 for a finite x and NaN otherwise; the sum keeps a NaN.
  Number sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += values[i] - values[i];
  return sum == 0;
}

// A CPU tensor, contiguous, fp32 or fp64; widening is exact.
at::Tensor plain(const at::Tensor& tensor) {
  assert(tensor.is_floating_point());
  const auto type = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return tensor.detach().to(at::kCPU, type).contiguous();
}

// So many zeros in fp64 beside a tensor of a device, and behind them the room of our kernel's sums.
at::Tensor zeros_beside(const at::Tensor& tensor, std::int64_t count) {
  const std::int64_t room = kernels::gpu::takes(tensor) ? kernels::gpu::kSquareRoom : 0;
  return at::zeros({count + room}, tensor.options().dtype(at::kDouble));
}

// Adds the squared norm of a tensor on a device to the first of such zeros, there, so that nobody
// waits for it.
void add_square(const at::Tensor& tensor, const at::Tensor& numbers) {
  namespace gpu = kernels::gpu;
  if (gpu::takes(tensor) && tensor.is_contiguous() && tensor.element_size() >= 4) {
    auto* const first = numbers.mutable_data_ptr<double>();
    gpu::add_squares(tensor.const_data_ptr(), tensor.numel(), tensor.scalar_type() == at::kDouble,
                     first + numbers.numel() - gpu::kSquareRoom, first, gpu::Place(tensor).stream);
    return;
  }
  // LibTorch widens what it sums: piece by piece there is little of it at a time.
  const at::Tensor flat = tensor.detach().flatten();
  at::Tensor total = at::zeros({}, flat.options().dtype(at::kDouble));
  for (std::int64_t begin = 0; begin < flat.numel(); begin += kPiece) {
    const auto size = std::min(kPiece, flat.numel() - begin);
    total.add_(
        at::linalg_vector_norm(flat.narrow(0, begin, size), 2, {}, false, at::kDouble).square_());
  }
  numbers[0].add_(total);
}

// Whether all of a tensor on a device is finite, there.
at::Tensor finite_there(const at::Tensor& tensor) { return at::isfinite(tensor.detach()).all(); }

}  // namespace

double squared_norm(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return 0;
  if (!tensor.is_cpu()) {
    const at::Tensor numbers = zeros_beside(tensor, 1);
    add_square(tensor, numbers);
    return numbers[0].item<double>();
  }
  const auto values = plain(tensor);
  return values.scalar_type() == at::kDouble
             ? sum_of_squares(values.const_data_ptr<double>(), values.numel())
             : sum_of_squares(values.const_data_ptr<float>(), values.numel());
}

bool finite(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return true;
  if (!tensor.is_cpu()) return finite_there(tensor).item<bool>();
  const auto values = plain(tensor);
  return values.scalar_type() == at::kDouble
             ? all_finite(values.const_data_ptr<double>(), values.numel())
             : all_finite(values.const_data_ptr<float>(), values.numel());
}

GradientMeasure measure(std::span<const at::Tensor> gradients) {
  GradientMeasure total;
  for (const auto& gradient : gradients) {
    const double squared = squared_norm(gradient);
    total.squared_norm += squared;
    // Squares of finite fp32 values cannot overflow fp64, those of fp64 values can: then look.
    if (!std::isfinite(squared)) total.finite = total.finite && finite(gradient);
  }
  return total;
}

// Numbers: the squared norm, and how many of `left_out` have something that is not finite.
at::Tensor range_numbers(const at::Tensor& gradients, const IndexRange& range,
                         std::span<const IndexRange> left_out) {
  const at::Tensor room = zeros_beside(gradients, 2), numbers = room.narrow(0, 0, 2);
  const at::Tensor squared = numbers[0], unfinite = numbers[1];
  std::int64_t begin = range.begin;
  const auto count_until = [&](std::int64_t end) {
    if (begin >= end) return;
    const at::Tensor part = gradients.narrow(0, begin, end - begin);
    if (part.is_cpu())
      squared.add_(squared_norm(part));
    else
      add_square(part, room);
  };
  for (const IndexRange& out : left_out) {
    const IndexRange here{std::max(out.begin, range.begin), std::min(out.end, range.end)};
    if (here.begin >= here.end) continue;
    count_until(here.begin);
    const at::Tensor part = gradients.narrow(0, here.begin, here.size());
    if (part.is_cpu())
      unfinite.add_(finite(part) ? 0 : 1);
    else
      unfinite.add_(finite_there(part).logical_not());
    begin = here.end;
  }
  count_until(range.end);
  return numbers;
}

GradientMeasure read_measure(const at::Tensor& numbers) {
  const double* const read = numbers.const_data_ptr<double>();
  return {read[0], read[1] == 0 && std::isfinite(read[0])};
}

GradientMeasure measure_range(const at::Tensor& gradients, const IndexRange& range,
                              std::span<const IndexRange> left_out) {
  return read_measure(range_numbers(gradients, range, left_out).cpu());
}

double global_norm(std::span<const double> squared_norms) {
  double sum = 0;
  for (const double squared : squared_norms) sum += squared;
  return std::sqrt(sum);
}

double clip_factor(double norm, double norm_max) {
  if (norm_max == 0) return 1;
  return std::min(1.0, norm_max / (norm + 1e-6));
}

}  // namespace troupe::state
