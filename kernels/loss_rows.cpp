#include "kernels/loss_rows.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "kernels/device_copies.hpp"
#include "kernels/gpu/tensors.hpp"

namespace troupe::kernels {

namespace {

gpu::LogitRows described(const at::Tensor& logits, const at::Tensor& targets,
                         const at::Tensor& log_total) {
  return {gpu::element_of(logits),
          logits.size(0),
          logits.size(1),
          logits.const_data_ptr(),
          targets.const_data_ptr<std::int64_t>(),
          log_total.mutable_data_ptr()};
}

}  // namespace

void check_targets(const at::Tensor& targets, const at::Tensor& rows) {
  TORCH_CHECK_VALUE(
      targets.dim() == 1 && targets.size(0) == rows.size(0) && targets.device() == rows.device(),
      "there are ", targets.numel(), " targets on ", targets.device(), " for ", rows.size(0),
      " rows of logits on ", rows.device());
}

LossRows loss_rows(const at::Tensor& logits, const at::Tensor& targets) {
  const auto type = gpu::wide_type(logits);
  if (gpu::takes(logits)) {
    const auto options = logits.options().dtype(type);
    const LossRows made{at::empty({logits.size(0)}, options), at::empty({logits.size(0)}, options)};
    gpu::cross_entropy(described(logits, targets, made.log_total), made.losses.mutable_data_ptr(),
                       gpu::Place(logits).stream);
    return made;
  }
  const auto log_probabilities = at::log_softmax(logits, -1, type);
  // Of the largest one, whose logarithm is the exactest, and finite where any is.
  return {log_probabilities.gather(1, targets.unsqueeze(1)).squeeze(1).neg(),
          logits.amax(1).to(type).sub_(log_probabilities.amax(1))};
}

void logit_gradients(const at::Tensor& logits, const at::Tensor& targets,
                     const at::Tensor& log_total, const at::Tensor& d_losses,
                     const at::Tensor& out) {
  if (gpu::takes(logits)) {
    const auto pushed = d_losses.defined() ? d_losses : at::ones_like(log_total);
    gpu::cross_entropy_backward(described(logits, targets, log_total), pushed.const_data_ptr(),
                                out.mutable_data_ptr(), gpu::Place(logits).stream);
    return;
  }
  const auto type = log_total.scalar_type();
  auto wide = out.scalar_type() == type ? out : at::empty(out.sizes(), out.options().dtype(type));
  at::sub_out(wide, logits, log_total.unsqueeze(1));
  wide.exp_();
  if (d_losses.defined()) wide.mul_(d_losses.unsqueeze(1));
  const auto pushed = d_losses.defined() ? d_losses : at::ones_like(log_total);
  // Those of other columns add nothing to the first or last one.
  const auto inside = targets.ge(0).logical_and_(targets.lt(logits.size(1)));
  wide.scatter_add_(1, targets.clamp(0, logits.size(1) - 1).unsqueeze(1),
                    pushed.mul(inside).neg_().unsqueeze(1));
  if (!wide.is_same(out)) out.copy_(wide);
}

at::Tensor sums_of(const at::Tensor& losses, const std::vector<std::int64_t>& counts) {
  auto sums = at::zeros({static_cast<std::int64_t>(counts.size())}, losses.options());
  std::int64_t begin = 0;
  for (std::size_t sample = 0; sample < counts.size(); begin += counts[sample++])
    if (counts[sample] > 0)
      sums[static_cast<std::int64_t>(sample)] = losses.narrow(0, begin, counts[sample]).sum();
  return sums;
}

at::Tensor by_row(const at::Tensor& d_sums, const std::vector<std::int64_t>& counts,
                  std::int64_t rows, at::ScalarType type) {
  const auto repeats = to_device(at::tensor(counts), d_sums.device());
  return d_sums.repeat_interleave(repeats, 0, rows).to(type);
}

}  // namespace troupe::kernels
