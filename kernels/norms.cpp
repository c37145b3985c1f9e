#include "kernels/norms.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/cpu_loops.hpp"
#include "kernels/gpu/tensors.hpp"

namespace troupe::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool has_loops(const at::Tensor& rows) {
  return rows.is_cpu() && (rows.scalar_type() == at::kFloat || rows.scalar_type() == at::kDouble);
}

template <class T>
void forward_loop(const at::Tensor& rows, const at::Tensor& weight, double eps,
                  const at::Tensor& scale, const at::Tensor& out) {
  const auto width = rows.size(1);
  const T *from = rows.const_data_ptr<T>(), *by = weight.const_data_ptr<T>();
  T *factor = scale.mutable_data_ptr<T>(), *to = out.mutable_data_ptr<T>();
  at::parallel_for(0, rows.size(0), cpu::grain(width), [&](std::int64_t begin, std::int64_t end) {
    cpu::rms_norm(from + begin * width, by, static_cast<T>(eps), end - begin, width, factor + begin,
                  to + begin * width);
  });
}

// Rows are independent; the weight's gradient is summed over rows by one thread, so that the number
// of threads does not change its bits.
template <class T>
void backward_loop(const at::Tensor& d_out, const at::Tensor& rows, const at::Tensor& weight,
                   const at::Tensor& scale, const at::Tensor& d_rows, const at::Tensor& d_weight) {
  const auto width = rows.size(1);
  const T *d = d_out.const_data_ptr<T>(), *x = rows.const_data_ptr<T>(),
          *w = weight.const_data_ptr<T>(), *s = scale.const_data_ptr<T>();
  if (d_weight.defined())
    cpu::rms_norm_backward(d, x, w, s, rows.size(0), width, static_cast<T*>(nullptr),
                           d_weight.mutable_data_ptr<T>());
  if (!d_rows.defined()) return;
  T* to = d_rows.mutable_data_ptr<T>();
  at::parallel_for(0, rows.size(0), cpu::grain(width), [&](std::int64_t begin, std::int64_t end) {
    const auto first = begin * width;
    cpu::rms_norm_backward(d + first, x + first, w, s + begin, end - begin, width, to + first,
                           static_cast<T*>(nullptr));
  });
}

gpu::NormRows describe(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& scale) {
  return {gpu::element_of(rows),
          rows.size(0),
          rows.size(1),
          rows.const_data_ptr(),
          weight.const_data_ptr(),
          scale.mutable_data_ptr()};
}

// Half of what a thread block has room for holds sums of fp64.
bool has_kernel(const at::Tensor& rows, const at::Tensor& weight) {
  const auto width = rows.size(1) * (rows.scalar_type() == at::kDouble ? 2 : 1);
  return gpu::takes(rows) && width <= gpu::kNormWidthMax && weight.is_contiguous() &&
         weight.scalar_type() == rows.scalar_type();
}

variable_list backward_kernel(const at::Tensor& d_out, const at::Tensor& rows,
                              const at::Tensor& weight, const at::Tensor& scale, bool for_rows,
                              bool for_weight) {
  at::Tensor d_rows, d_weight, partial;
  if (for_rows) d_rows = at::empty_like(rows);
  if (for_weight) {
    d_weight = at::zeros_like(weight);  // There may be no row.
    partial = at::empty({gpu::kNormParts, rows.size(1)}, scale.options());
  }
  const auto data = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
  };
  gpu::rms_norm_backward(describe(rows, weight, scale), d_out.const_data_ptr(), data(d_rows),
                         data(d_weight), data(partial), gpu::Place(rows).stream);
  return {d_rows, d_weight, {}};
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& weight, double eps) {
    const auto rows = given.contiguous();
    at::Tensor scale, out;
    if (has_loops(rows)) {
      scale = at::empty({rows.size(0), 1}, rows.options());
      out = at::empty_like(rows);
      if (rows.scalar_type() == at::kDouble)
        forward_loop<double>(rows, weight, eps, scale, out);
      else
        forward_loop<float>(rows, weight, eps, scale, out);
    } else if (has_kernel(rows, weight)) {
      scale = at::empty({rows.size(0), 1}, rows.options().dtype(gpu::wide_type(rows)));
      out = at::empty_like(rows);
      gpu::rms_norm(describe(rows, weight, scale), eps, out.mutable_data_ptr(),
                    gpu::Place(rows).stream);
    } else {
      const auto wide = rows.scalar_type() == at::kDouble ? rows : rows.to(at::kFloat);
      scale = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true).add_(eps));
      out = wide.mul(scale).to(rows.scalar_type()).mul(weight);
    }
    context->save_for_backward({rows, weight, scale});
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &rows = saved[0], &weight = saved[1], &scale = saved[2];
    const auto d_out = gradients[0].contiguous();
    const bool for_rows = context->needs_input_grad(0);
    const bool for_weight = context->needs_input_grad(1);
    at::Tensor d_rows, d_weight;
    if (has_loops(rows)) {
      if (for_rows) d_rows = at::empty_like(rows);
      if (for_weight) d_weight = at::zeros_like(weight);
      if (rows.scalar_type() == at::kDouble)
        backward_loop<double>(d_out, rows, weight, scale, d_rows, d_weight);
      else
        backward_loop<float>(d_out, rows, weight, scale, d_rows, d_weight);
      return {d_rows, d_weight, {}};
    }
    if (has_kernel(rows, weight))
      return backward_kernel(d_out, rows, weight, scale, for_rows, for_weight);
    const auto type = scale.scalar_type();
    const auto normalised = rows.to(type).mul(scale);
    const auto wide = d_out.to(type);
    if (for_weight) d_weight = wide.mul(normalised).sum(0).to(weight.scalar_type());
    if (for_rows) {
      const auto pushed = wide.mul(weight.to(type));
      const auto along = pushed.mul(normalised).mean(-1, /*keepdim=*/true);
      d_rows = pushed.sub(normalised.mul(along)).mul_(scale).to(rows.scalar_type());
    }
    return {d_rows, d_weight, {}};
  }
};

// Two sums per column instead of one.
bool has_kernel(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias) {
  const auto width = rows.size(1) * (rows.scalar_type() == at::kDouble ? 2 : 1);
  return has_kernel(rows, weight) && 2 * width <= gpu::kNormWidthMax && bias.is_contiguous() &&
         bias.scalar_type() == rows.scalar_type();
}

gpu::LayerNormRows describe(const at::Tensor& rows, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& statistics) {
  return {gpu::element_of(rows),
          rows.size(0),
          rows.size(1),
          rows.const_data_ptr(),
          weight.const_data_ptr(),
          bias.const_data_ptr(),
          statistics[0].mutable_data_ptr(),
          statistics[1].mutable_data_ptr()};
}

/// For GPUs that have the kernel; LibTorch's operator has a backward of its own.
struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& weight, const at::Tensor& bias, double eps) {
    const auto rows = given.contiguous();
    const auto out = at::empty_like(rows);
    const auto statistics =
        at::empty({2, rows.size(0)}, rows.options().dtype(gpu::wide_type(rows)));
    gpu::layer_norm(describe(rows, weight, bias, statistics), eps, out.mutable_data_ptr(),
                    gpu::Place(rows).stream);
    context->save_for_backward({rows, weight, bias, statistics});
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &rows = saved[0], &weight = saved[1], &bias = saved[2], &statistics = saved[3];
    const auto d_out = gradients[0].contiguous();
    at::Tensor d_rows, d_weight, d_bias, partial;
    if (context->needs_input_grad(0)) d_rows = at::empty_like(rows);
    if (context->needs_input_grad(1)) d_weight = at::zeros_like(weight);  // There may be no row.
    if (context->needs_input_grad(2)) d_bias = at::zeros_like(bias);
    if (d_weight.defined() || d_bias.defined())
      partial = at::empty({2, gpu::kNormParts, rows.size(1)}, statistics.options());
    const auto data = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
    };
    gpu::layer_norm_backward(describe(rows, weight, bias, statistics), d_out.const_data_ptr(),
                             data(d_rows), data(d_weight), data(d_bias), data(partial),
                             gpu::Place(rows).stream);
    return {d_rows, d_weight, d_bias, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& rows, const at::Tensor& weight, double eps) {
  return RmsNorm::apply(rows, weight, eps);
}

at::Tensor layer_norm(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                      double eps) {
  if (has_kernel(rows, weight, bias)) return LayerNorm::apply(rows, weight, bias, eps);
  return at::layer_norm(rows, {rows.size(1)}, weight, bias, eps);
}

}  // namespace troupe::kernels
