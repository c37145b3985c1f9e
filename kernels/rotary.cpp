#include "kernels/rotary.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "kernels/cpu_loops.hpp"

namespace troupe::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<double> inverse_frequencies(std::int64_t count, double exponent, double theta) {
  std::vector<double> result(static_cast<std::size_t>(count));
  for (std::int64_t j = 0; j < count; ++j)
    result[static_cast<std::size_t>(j)] = std::pow(theta, -exponent * static_cast<double>(j));
  return result;
}

// Angles are filled in double on the host; `fill(row, column)` must be pure.
template <class Angle>
RotaryTable make_table(std::int64_t rows, std::int64_t half, at::ScalarType dtype,
                       at::Device device, Angle angle) {
  RotaryTable table{at::empty({rows, half}, at::kDouble), at::empty({rows, half}, at::kDouble)};
  auto* cosine = table.cosine.mutable_data_ptr<double>();
  auto* sine = table.sine.mutable_data_ptr<double>();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t j = 0; j < half; ++j) {
      const double value = angle(row, j);
      *cosine++ = std::cos(value);
      *sine++ = std::sin(value);
    }
  const auto type = dtype == at::kDouble ? at::kDouble : at::kFloat;
  return {table.cosine.to(device, type), table.sine.to(device, type)};
}

template <class T>
at::Tensor rotate_cpu(const at::Tensor& heads, const at::Tensor& cosine, const at::Tensor& sine,
                      double sign) {
  const auto half = heads.size(2) / 2, width = heads.size(1) * heads.size(2);
  auto out = at::empty(heads.sizes(), heads.options());
  const T *from = heads.const_data_ptr<T>(), *c = cosine.const_data_ptr<T>(),
          *s = sine.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  at::parallel_for(0, heads.size(0), cpu::grain(width), [&](std::int64_t begin, std::int64_t end) {
    cpu::rotate(
        from + begin * heads.stride(0), c + begin * half, s + begin * half, static_cast<T>(sign),
        {end - begin, heads.size(1), half, heads.stride(0), heads.stride(1)}, to + begin * width);
  });
  return out;
}

at::Tensor turn(const at::Tensor& heads, const at::Tensor& cosine, const at::Tensor& sine,
                double sign) {
  if (heads.is_cpu() && heads.scalar_type() == cosine.scalar_type()) {
    const auto dense = heads.stride(2) == 1 ? heads : heads.contiguous();
    return heads.scalar_type() == at::kDouble ? rotate_cpu<double>(dense, cosine, sine, sign)
                                              : rotate_cpu<float>(dense, cosine, sine, sign);
  }
  const auto halves = heads.to(cosine.scalar_type()).chunk(2, -1);
  const auto c = cosine.unsqueeze(1), s = sine.unsqueeze(1).mul(sign);
  const auto low = halves[0].mul(c).sub_(halves[1].mul(s));
  const auto high = halves[1].mul(c).add_(halves[0].mul(s));
  return at::cat({low, high}, -1).to(heads.scalar_type());
}

struct Rotate : torch::autograd::Function<Rotate> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& heads,
                            const at::Tensor& cosine, const at::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return turn(heads, cosine, sine, 1);
  }

  // A rotation's adjoint is the rotation back.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {turn(gradients[0], saved[0], saved[1], -1), {}, {}};
  }
};

}  // namespace

RotaryTable text_rotary(const std::vector<std::int64_t>& positions, std::int64_t head_dim,
                        double theta, at::ScalarType dtype, at::Device device) {
  const auto frequencies =
      inverse_frequencies(head_dim / 2, 2.0 / static_cast<double>(head_dim), theta);
  return make_table(static_cast<std::int64_t>(positions.size()), head_dim / 2, dtype, device,
                    [&](std::int64_t row, std::int64_t j) {
                      return static_cast<double>(positions[static_cast<std::size_t>(row)]) *
                             frequencies[static_cast<std::size_t>(j)];
                    });
}

RotaryTable grid_rotary(const std::vector<std::int64_t>& heights,
                        const std::vector<std::int64_t>& widths, std::int64_t merge,
                        std::int64_t head_dim, double theta, at::ScalarType dtype,
                        at::Device device) {
  const auto quarter = head_dim / 4;
  const auto frequencies = inverse_frequencies(quarter, 4.0 / static_cast<double>(head_dim), theta);
  std::vector<double> row_of, column_of;
  for (std::size_t image = 0; image < heights.size(); ++image)
    for (std::int64_t block_row = 0; block_row < heights[image]; block_row += merge)
      for (std::int64_t block_column = 0; block_column < widths[image]; block_column += merge)
        for (std::int64_t y = 0; y < merge; ++y)
          for (std::int64_t x = 0; x < merge; ++x) {
            row_of.push_back(static_cast<double>(block_row + y));
            column_of.push_back(static_cast<double>(block_column + x));
          }
  return make_table(static_cast<std::int64_t>(row_of.size()), 2 * quarter, dtype, device,
                    [&](std::int64_t row, std::int64_t j) {
                      const auto& position = j < quarter ? row_of : column_of;
                      return position[static_cast<std::size_t>(row)] *
                             frequencies[static_cast<std::size_t>(j % quarter)];
                    });
}

at::Tensor rotate(const at::Tensor& heads, const RotaryTable& table) {
  return Rotate::apply(heads, table.cosine, table.sine);
}

}  // namespace troupe::kernels
