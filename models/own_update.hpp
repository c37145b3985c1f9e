// Parameters that a family moves by a rule of its own instead of AdamW: a router's bias that
// follows the load of its experts, running statistics, another optimizer. They are parameters like
// all others: checkpoints, recoveries, joins, standby holders and `--reference` treat them alike.
//
// What a rule goes by is summed over the global batch like a gradient, so that every holder of the
// parameter takes the same step, whatever the layout.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace troupe::models {

/// One step of one parameter, for `Family::update`: behind COMMIT, at every holder. A rule writes
/// `value`, `first` and `second` in place, by a function of what stands here alone. All tensors
/// have the parameter's shape, and are fp64 for fp64 models, else fp32.
struct ParameterUpdate {
  const std::string& name;   ///< In full, as in `Parameter`.
  at::Tensor value;          ///< The exact one; a bf16 parameter is rounded from it afterwards.
  at::Tensor sum;            ///< Contributions, or gradients, of the global batch; not clipped.
  at::Tensor first, second;  ///< The rule's own: they begin at zero, and are saved and moved.
  std::int64_t step = 0;     ///< From 1; skipped ones are counted.
  double learning_rate = 0;  ///< Of this step and module.
};

/// For layers, in `forward`: `rows` as they are, whose backward adds `amount` to the gradient of
/// `parameter`, once for each part, whatever the gradient of the rows. Returns `rows` where the
/// parameter does not train or nothing is recorded. Rows go on to what is trained, or nothing is
/// added; nobody writes to them.
///
/// `amount`: of the parameter's shape, the sum of what each segment of the batch gives by itself
/// (a count, a sum of squares), so that no layout, policy or schedule changes it. It carries no
/// graph, and is rounded to the model's type: in bf16 a count over 256 is.
/// Throws c10::Error for another shape.
at::Tensor contribute(const at::Tensor& rows, const at::Tensor& parameter,
                      const at::Tensor& amount);

}  // namespace troupe::models
