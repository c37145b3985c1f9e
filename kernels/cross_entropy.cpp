#include "kernels/cross_entropy.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/device_copies.hpp"
#include "kernels/gpu/tensors.hpp"
#include "kernels/loss_rows.hpp"

namespace troupe::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kIgnored = -100;

// Keeps logits and a number per row, where LibTorch's operators keep log probabilities in fp32.
struct CrossEntropyOnGpu : torch::autograd::Function<CrossEntropyOnGpu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& targets, const std::vector<std::int64_t>& counts) {
    const auto logits = given.contiguous();
    const auto rows = loss_rows(logits, targets);
    context->save_for_backward({logits, targets, rows.log_total});
    context->saved_data["counts"] = counts;
    return sums_of(rows.losses, counts);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &logits = saved[0], &targets = saved[1], &log_total = saved[2];
    const auto d_losses = by_row(gradients[0], context->saved_data["counts"].toIntVector(),
                                 logits.size(0), log_total.scalar_type());
    const auto d_logits = at::empty(logits.sizes(), logits.options());
    logit_gradients(logits, targets, log_total, d_losses, d_logits);
    return {d_logits, {}, {}};
  }
};

struct CrossEntropySums : torch::autograd::Function<CrossEntropySums> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& targets, const std::vector<std::int64_t>& counts) {
    const auto type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto log_probabilities = at::log_softmax(logits, -1, type);
    const auto losses = log_probabilities.gather(1, targets.unsqueeze(1)).squeeze(1).neg();
    context->save_for_backward({log_probabilities, targets});
    context->saved_data["counts"] = counts;
    context->saved_data["type"] = logits.scalar_type();
    return sums_of(losses, counts);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &log_probabilities = saved[0], &targets = saved[1];
    const auto per_row = by_row(gradients[0], context->saved_data["counts"].toIntVector(),
                                log_probabilities.size(0), log_probabilities.scalar_type())
                             .unsqueeze(1);
    auto result = log_probabilities.exp();
    result.mul_(per_row);
    result.scatter_add_(1, targets.unsqueeze(1), per_row.neg());
    return {result.to(context->saved_data["type"].toScalarType()), {}, {}};
  }
};

struct SelectRows : torch::autograd::Function<SelectRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& index) {
    context->save_for_backward({index});
    context->saved_data["rows"] = rows.size(0);
    return rows.index_select(0, index);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto& gradient = gradients[0];
    auto result = gradient.new_zeros({context->saved_data["rows"].toInt(), gradient.size(1)});
    return {result.index_copy_(0, context->get_saved_variables()[0], gradient), {}};
  }
};

}  // namespace

NextTokenTargets next_token_targets(const at::Tensor& labels,
                                    const std::vector<std::int64_t>& samples) {
  const auto host = labels.to(at::kCPU).contiguous();
  const auto* label = host.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> rows, targets;
  NextTokenTargets result;
  std::int64_t begin = 0;
  for (const auto length : samples) {
    const auto before = rows.size();
    TORCH_CHECK_VALUE(begin + length <= host.size(0), "samples hold more rows than there are ",
                      "labels (", host.size(0), ")");
    for (auto t = begin; t + 1 < begin + length; ++t)
      if (label[t + 1] != kIgnored) {
        rows.push_back(t);
        targets.push_back(label[t + 1]);
      }
    result.counts.push_back(static_cast<std::int64_t>(rows.size() - before));
    begin += length;
  }
  TORCH_CHECK_VALUE(begin == host.size(0), "samples hold ", begin, " rows, labels ", host.size(0));
  result.rows = to_device(at::tensor(rows, at::kLong), labels.device());
  result.targets = to_device(at::tensor(targets, at::kLong), labels.device());
  return result;
}

at::Tensor cross_entropy_sums(const at::Tensor& logits, const at::Tensor& targets,
                              const std::vector<std::int64_t>& counts) {
  check_targets(targets, logits);
  if (gpu::takes(logits) && logits.size(0) > 0)
    return CrossEntropyOnGpu::apply(logits, targets.contiguous(), counts);
  return CrossEntropySums::apply(logits, targets, counts);
}

at::Tensor select_rows(const at::Tensor& rows, const at::Tensor& index) {
  return SelectRows::apply(rows, index);
}

}  // namespace troupe::kernels
