#include "kernels/projected_cross_entropy.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "kernels/cross_entropy.hpp"
#include "kernels/deferred_gradients.hpp"
#include "kernels/gpu/tensors.hpp"
#include "kernels/linear.hpp"
#include "kernels/loss_rows.hpp"

namespace troupe::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Calls `function(begin, size)` for chunks of at most `at_once`, in order.
template <class Function>
void in_chunks(std::int64_t count, std::int64_t at_once, Function function) {
  for (std::int64_t begin = 0; begin < count; begin += at_once)
    function(begin, std::min(at_once, count - begin));
}

/// What the weights' gradient is made of.
struct WeightGradient {
  at::Tensor rows, weight, targets, log_total, d_losses;
  LogitChunks chunks;

  at::Tensor compute() const {
    auto total = at::empty(weight.sizes(), weight.options());
    const auto at_once = chunks.at_once(rows.size(0), rows.element_size());
    in_chunks(weight.size(0), at_once, [&](std::int64_t begin, std::int64_t size) {
      const auto logits = at::mm(rows, weight.narrow(0, begin, size).t());
      logit_gradients(logits, targets.sub(begin), log_total, d_losses, logits);
      auto part = total.narrow(0, begin, size);
      at::mm_out(part, logits.t(), rows);
    });
    return total;
  }
};

struct ProjectedCrossEntropy : torch::autograd::Function<ProjectedCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& weight, const at::Tensor& targets,
                            const std::vector<std::int64_t>& counts, const LogitChunks& chunks,
                            bool wants_gradient) {
    const auto options = rows.options().dtype(gpu::wide_type(rows));
    const auto losses = at::empty({rows.size(0)}, options);
    const auto log_total = at::empty({rows.size(0)}, options);
    const auto d_rows = wants_gradient ? at::empty(rows.sizes(), rows.options()) : at::Tensor();
    const auto at_once = chunks.at_once(weight.size(0), rows.element_size());
    in_chunks(rows.size(0), at_once, [&](std::int64_t begin, std::int64_t size) {
      const auto chunk = targets.narrow(0, begin, size);
      const auto logits = at::mm(rows.narrow(0, begin, size), weight.t());
      const auto found = loss_rows(logits, chunk);
      losses.narrow(0, begin, size).copy_(found.losses);
      log_total.narrow(0, begin, size).copy_(found.log_total);
      if (!wants_gradient) return;
      logit_gradients(logits, chunk, found.log_total, {}, logits);
      auto part = d_rows.narrow(0, begin, size);
      at::mm_out(part, logits, weight);
    });
    context->save_for_backward({rows, weight, targets, log_total, d_rows});
    context->saved_data["counts"] = counts;
    context->saved_data["bytes"] = chunks.bytes;
    context->saved_data["least"] = chunks.least;
    return sums_of(losses, counts);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &rows = saved[0], &weight = saved[1], &log_total = saved[3], &d_rows = saved[4];
    const auto d_losses = by_row(gradients[0], context->saved_data["counts"].toIntVector(),
                                 rows.size(0), log_total.scalar_type());
    variable_list results(6);
    if (context->needs_input_grad(0))
      results[0] = d_rows.mul(d_losses.unsqueeze(1)).to(rows.scalar_type());
    if (!context->needs_input_grad(1)) return results;
    const WeightGradient work{
        rows,     weight,
        saved[2], log_total,
        d_losses, {context->saved_data["bytes"].toInt(), context->saved_data["least"].toInt()}};
    auto* queue = current_deferred_gradients();
    if (queue && weight.is_leaf()) {
      queue->add([work] {
        const at::NoGradGuard no_grad;
        accumulate_gradient(work.weight, work.compute());
      });
      return results;
    }
    results[1] = work.compute();
    return results;
  }
};

}  // namespace

at::Tensor projected_cross_entropy(const at::Tensor& rows, const at::Tensor& weight,
                                   const at::Tensor& targets,
                                   const std::vector<std::int64_t>& counts,
                                   const LogitChunks& chunks) {
  if (rows.size(0) <= chunks.at_once(weight.size(0), rows.element_size()))
    return cross_entropy_sums(kernels::linear(rows, weight), targets, counts);
  check_targets(targets, rows);
  const bool wants_gradient = at::GradMode::is_enabled() && rows.requires_grad();
  return ProjectedCrossEntropy::apply(rows, weight, targets.contiguous(), counts, chunks,
                                      wants_gradient);
}

}  // namespace troupe::kernels
