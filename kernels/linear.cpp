#include "kernels/linear.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/deferred_gradients.hpp"

namespace troupe::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor as_matrix(const at::Tensor& weight) {
  return weight.dim() == 2 ? weight : weight.flatten(1);
}

at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& rows,
                           const at::Tensor& weight) {
  auto product = at::mm(gradient.t(), rows);
  return weight.dim() == 2 ? product : product.view(weight.sizes());
}

// Autograd does not take undefined tensors as arguments.
std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
    context->save_for_backward({rows, weight, bias.value_or(at::Tensor())});
    const auto matrix = as_matrix(weight).t();
    return bias ? at::addmm(*bias, rows, matrix) : at::mm(rows, matrix);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &rows = saved[0], &weight = saved[1], &bias = saved[2];
    const auto gradient = gradients[0];
    variable_list results(3);
    if (context->needs_input_grad(0)) results[0] = at::mm(gradient, as_matrix(weight));
    const bool for_weight = context->needs_input_grad(1);
    const bool for_bias = bias.defined() && context->needs_input_grad(2);
    auto* queue = current_deferred_gradients();
    if (queue && (!for_weight || weight.is_leaf()) && (!for_bias || bias.is_leaf())) {
      if (for_weight || for_bias)
        queue->add([=] {
          const at::NoGradGuard no_grad;
          if (for_weight) accumulate_gradient(weight, weight_gradient(gradient, rows, weight));
          if (for_bias) accumulate_gradient(bias, gradient.sum(0));
        });
      return results;
    }
    if (for_weight) results[1] = weight_gradient(gradient, rows, weight);
    if (for_bias) results[2] = gradient.sum(0);
    return results;
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias) {
  return Linear::apply(rows, weight, optional(bias));
}

}  // namespace troupe::kernels
