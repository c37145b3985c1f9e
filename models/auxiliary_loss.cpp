#include "models/auxiliary_loss.hpp"

#include <ATen/ops/full_like.h>
#include <ATen/ops/sum.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "models/layer.hpp"

namespace troupe::models {

void add_loss(const PackedBatch& batch, const std::string& name, const at::Tensor& values,
              double weight) {
  TORCH_CHECK_VALUE(!name.empty(), "an auxiliary loss has no name");
  const auto segments = static_cast<std::int64_t>(batch.segments.size());
  TORCH_CHECK_VALUE(values.dim() == 1 && values.size(0) == segments && values.is_floating_point(),
                    "the auxiliary loss '", name, "' has shape ", values.sizes(), " and type ",
                    values.scalar_type(), "; it must have a floating value for each of ", segments,
                    " segments");
  TORCH_CHECK_VALUE(batch.losses || !batch.needs_losses, "the auxiliary loss '", name,
                    "' would not be trained: the stage kind that runs this layer sets no "
                    "`batch.losses`; have it set that before `forward`, seed them in the backward "
                    "and tell them by `auxiliary`, or cut the layout between the modules of its "
                    "families and others");
  if (!batch.losses) return;
  const bool wide = values.scalar_type() == at::kDouble;
  batch.losses->push_back({name, weight, wide ? values : values.to(at::kFloat)});
}

at::Tensor sum_of(const AuxiliaryLoss& loss) { return loss.values.detach().sum(at::kDouble); }

double contribution(const AuxiliaryLoss& loss, double sum, std::int64_t segments) {
  return segments == 0 ? 0 : loss.weight / static_cast<double>(segments) * sum;
}

bool train_anything(const AuxiliaryLosses& losses) {
  return std::ranges::any_of(losses,
                             [](const AuxiliaryLoss& loss) { return loss.values.requires_grad(); });
}

void append_roots(const AuxiliaryLosses& losses, std::int64_t segments,
                  std::vector<at::Tensor>& roots, std::vector<at::Tensor>& gradients) {
  for (const AuxiliaryLoss& loss : losses) {
    if (!loss.values.requires_grad()) continue;
    roots.push_back(loss.values);
    gradients.push_back(
        at::full_like(loss.values.detach(), loss.weight / static_cast<double>(segments)));
  }
}

}  // namespace troupe::models
