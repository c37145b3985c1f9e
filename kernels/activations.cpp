#include "kernels/activations.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/gpu/tensors.hpp"

namespace troupe::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool has_kernel(const at::Tensor& a, const at::Tensor& b) {
  return gpu::takes(a) && a.is_contiguous() && b.is_contiguous() && a.sizes() == b.sizes() &&
         a.scalar_type() == b.scalar_type();
}

at::Tensor forward_kernel(const at::Tensor& gate, const at::Tensor& up) {
  auto out = at::empty_like(gate);
  gpu::swiglu(gpu::element_of(gate), gate.const_data_ptr(), up.const_data_ptr(),
              out.mutable_data_ptr(), gate.numel(), gpu::Place(gate).stream);
  return out;
}

variable_list backward_kernel(const at::Tensor& given, const at::Tensor& gate, const at::Tensor& up,
                              bool for_gate, bool for_up) {
  const auto d_out = given.contiguous();
  at::Tensor d_gate, d_up;
  if (for_gate) d_gate = at::empty_like(gate);
  if (for_up) d_up = at::empty_like(up);
  gpu::swiglu_backward(gpu::element_of(gate), gate.const_data_ptr(), up.const_data_ptr(),
                       d_out.const_data_ptr(), for_gate ? d_gate.mutable_data_ptr() : nullptr,
                       for_up ? d_up.mutable_data_ptr() : nullptr, gate.numel(),
                       gpu::Place(gate).stream);
  return {d_gate, d_up};
}

// bf16 rounds between the two factors, as the reference implementations do.
struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate,
                            const at::Tensor& up) {
    context->save_for_backward({gate, up});
    if (has_kernel(gate, up)) return forward_kernel(gate, up);
    return at::silu(gate).mul_(up);
  }

  // silu(gate) is recomputed: cheaper than keeping it from forward to backward.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &gate = saved[0], &up = saved[1];
    if (has_kernel(gate, up))
      return backward_kernel(gradients[0], gate, up, context->needs_input_grad(0),
                             context->needs_input_grad(1));
    variable_list results(2);
    if (context->needs_input_grad(0)) results[0] = at::silu_backward(gradients[0].mul(up), gate);
    if (context->needs_input_grad(1)) results[1] = at::silu(gate).mul_(gradients[0]);
    return results;
  }
};

at::Tensor activate_kernel(gpu::Unit unit, const at::Tensor& x) {
  auto out = at::empty_like(x);
  gpu::activate(gpu::element_of(x), unit, x.const_data_ptr(), out.mutable_data_ptr(), x.numel(),
                gpu::Place(x).stream);
  return out;
}

at::Tensor activate_backward_kernel(gpu::Unit unit, const at::Tensor& x, const at::Tensor& given) {
  const auto d_out = given.contiguous();
  auto d_x = at::empty_like(x);
  gpu::activate_backward(gpu::element_of(x), unit, x.const_data_ptr(), d_out.const_data_ptr(),
                         d_x.mutable_data_ptr(), x.numel(), gpu::Place(x).stream);
  return d_x;
}

constexpr double kQuick = 1.702;

struct QuickGelu : torch::autograd::Function<QuickGelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    if (has_kernel(x, x)) return activate_kernel(gpu::Unit::quick_gelu, x);
    return x.mul(kQuick).sigmoid_().mul_(x);
  }

  // With s = sigmoid(kx): d = s (1 + kx (1 - s)).
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto x = context->get_saved_variables()[0];
    if (has_kernel(x, x)) return {activate_backward_kernel(gpu::Unit::quick_gelu, x, gradients[0])};
    const auto scaled = x.mul(kQuick);
    const auto s = at::sigmoid(scaled);
    return {s.neg().add_(1).mul_(scaled).add_(1).mul_(s).mul_(gradients[0])};
  }
};

/// For GPUs that have the kernel; LibTorch's operator has a backward of its own.
struct Gelu : torch::autograd::Function<Gelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return activate_kernel(gpu::Unit::gelu, x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto x = context->get_saved_variables()[0];
    return {activate_backward_kernel(gpu::Unit::gelu, x, gradients[0])};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return Swiglu::apply(gate, up); }

at::Tensor quick_gelu(const at::Tensor& x) { return QuickGelu::apply(x); }

at::Tensor gelu(const at::Tensor& x) { return has_kernel(x, x) ? Gelu::apply(x) : at::gelu(x); }

}  // namespace troupe::kernels
