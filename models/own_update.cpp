#include "models/own_update.hpp"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

namespace troupe::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// In the graph and not beside it: a part that is given up adds nothing, one that is recomputed
/// adds once.
struct Contribution : torch::autograd::Function<Contribution> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& /*parameter*/, const at::Tensor& amount) {
    context->save_for_backward({amount});
    return rows;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0], context->get_saved_variables()[0], {}};
  }
};

}  // namespace

at::Tensor contribute(const at::Tensor& rows, const at::Tensor& parameter,
                      const at::Tensor& amount) {
  TORCH_CHECK_VALUE(amount.sizes() == parameter.sizes(), "a contribution of shape ", amount.sizes(),
                    " to a parameter of shape ", parameter.sizes(), "; they must be of one shape");
  if (!c10::GradMode::is_enabled() || !parameter.requires_grad()) return rows;
  return Contribution::apply(rows, parameter,
                             amount.detach().to(parameter.device(), parameter.scalar_type()));
}

}  // namespace troupe::models
