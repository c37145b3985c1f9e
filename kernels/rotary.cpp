#include "kernels/rotary.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/cpu_loops.hpp"
#include "kernels/device_copies.hpp"
#include "kernels/gpu/tensors.hpp"

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

// Rows' places along one axis, and how fast each pair of columns turns along it.
struct Axis {
  std::vector<double> places;
  std::vector<double> frequencies;
};

// Columns of the axes side by side. Angles are computed in double, on a CPU one by one.
RotaryTable table_on_host(const std::vector<Axis>& axes, at::ScalarType type) {
  const auto rows = static_cast<std::int64_t>(axes.front().places.size());
  std::int64_t half = 0;
  for (const auto& axis : axes) half += static_cast<std::int64_t>(axis.frequencies.size());
  RotaryTable table{at::empty({rows, half}, at::kDouble), at::empty({rows, half}, at::kDouble)};
  auto* cosine = table.cosine.mutable_data_ptr<double>();
  auto* sine = table.sine.mutable_data_ptr<double>();
  for (std::size_t row = 0; row < axes.front().places.size(); ++row)
    for (const auto& axis : axes)
      for (const double frequency : axis.frequencies) {
        *cosine++ = std::cos(axis.places[row] * frequency);
        *sine++ = std::sin(axis.places[row] * frequency);
      }
  return {table.cosine.to(type), table.sine.to(type)};
}

// On a GPU the angles are computed there: a launcher that fills tables keeps it waiting.
RotaryTable table_on_gpu(const std::vector<Axis>& axes, at::ScalarType type, at::Device device) {
  std::vector<at::Tensor> columns;
  const auto send = [&](const std::vector<double>& values) {
    return to_device(at::tensor(values, at::kDouble), device);
  };
  for (const auto& axis : axes)
    columns.push_back(send(axis.places).unsqueeze(1).mul(send(axis.frequencies).unsqueeze(0)));
  const auto angles = columns.size() == 1 ? columns.front() : at::cat(columns, 1);
  return {angles.cos().to(type), angles.sin().to(type)};
}

RotaryTable make_table(const std::vector<Axis>& axes, at::ScalarType dtype, at::Device device) {
  const auto type = dtype == at::kDouble ? at::kDouble : at::kFloat;
  if (device.is_cuda()) return table_on_gpu(axes, type, device);
  const auto table = table_on_host(axes, type);
  return {table.cosine.to(device), table.sine.to(device)};
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

at::Tensor rotate_on_gpu(const at::Tensor& given, const at::Tensor& cosine, const at::Tensor& sine,
                         double sign) {
  const auto heads = given.stride(2) == 1 ? given : given.contiguous();
  auto out = at::empty(heads.sizes(), heads.options());
  gpu::rotate({gpu::element_of(heads),
               heads.size(0),
               heads.size(1),
               heads.size(2) / 2,
               {const_cast<void*>(heads.const_data_ptr()), heads.stride(0), heads.stride(1)},
               cosine.const_data_ptr(),
               sine.const_data_ptr(),
               sign},
              out.mutable_data_ptr(), gpu::Place(heads).stream);
  return out;
}

at::Tensor turn(const at::Tensor& heads, const at::Tensor& cosine, const at::Tensor& sine,
                double sign) {
  if (heads.is_cpu() && heads.scalar_type() == cosine.scalar_type()) {
    const auto dense = heads.stride(2) == 1 ? heads : heads.contiguous();
    return heads.scalar_type() == at::kDouble ? rotate_cpu<double>(dense, cosine, sine, sign)
                                              : rotate_cpu<float>(dense, cosine, sine, sign);
  }
  if (gpu::takes(heads) && cosine.scalar_type() == gpu::wide_type(heads))
    return rotate_on_gpu(heads, cosine, sine, sign);
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
  return make_table(
      {{{positions.begin(), positions.end()},
        inverse_frequencies(head_dim / 2, 2.0 / static_cast<double>(head_dim), theta)}},
      dtype, device);
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
  return make_table({{std::move(row_of), frequencies}, {std::move(column_of), frequencies}}, dtype,
                    device);
}

at::Tensor rotate(const at::Tensor& heads, const RotaryTable& table) {
  return Rotate::apply(heads, table.cosine, table.sine);
}

}  // namespace troupe::kernels
