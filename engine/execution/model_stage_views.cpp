// What a stage lets others see of what it computed: losses, and what observers look at.

#include <cmath>
#include <utility>

#include "engine/execution/model_stage.hpp"

#include <ATen/ops/stack.h>

namespace troupe::engine {

std::vector<PartLoss> ModelStage::losses() const {
  std::vector<PartLoss> losses;
  for (const auto& [part, sample_losses] : losses_) losses.push_back(loss_of(part, sample_losses));
  return losses;
}

std::vector<PartAuxiliary> ModelStage::auxiliary() const {
  std::vector<PartAuxiliary> all;
  if (auxiliary_.empty()) return all;
  std::vector<at::Tensor> sums;
  std::map<ModuleId, std::int64_t> segments;
  for (const auto& [part, module, loss] : auxiliary_) {
    sums.push_back(loss.values);
    if (!segments.contains(module)) segments[module] = segments_of_batch(module);
  }
  const at::Tensor read = at::stack(sums).to(at::kCPU);  // Of an accelerator: once.
  const double* sum = read.const_data_ptr<double>();
  for (const auto& [part, module, loss] : auxiliary_)
    all.push_back({plan_.model.at(module).name + "." + loss.name, id_, part.microbatch, part.part,
                   models::contribution(loss, *sum++, segments.at(module))});
  return all;
}

PartLoss ModelStage::loss_of(PartKey part, const at::Tensor& sample_losses) const {
  PartLoss loss{plan_.at(id_).replica, part.microbatch, part.part, 0, {}};
  const at::Tensor values = sample_losses.to(at::kCPU, at::kDouble).contiguous();
  const auto& part_samples = samples_of(part);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double value = values.data_ptr<double>()[i];
    loss.sum += value;
    if (!std::isfinite(value))
      loss.nonfinite_samples.push_back(
          iteration_->sample(part_samples[static_cast<std::size_t>(i)]).id);
  }
  return loss;
}

/// Outputs of modules that end here, and from now on their gradients, for who wants to see them.
void ModelStage::show_outputs(const Flight& flight) const {
  for (std::size_t i = 0; i < runs().size(); ++i) {
    const ModuleId module = runs()[i].range.module;
    const at::Tensor& output = flight.outputs[i];
    if (!output.defined() || !runs()[i].ends_module) continue;
    const bool is_loss = module == plan_.model.llm();
    const auto kind = is_loss ? observers::Kind::losses : observers::Kind::rows;
    if (viewer_->wants(module, kind)) viewer_->show(module, kind, output.detach());
    if (!is_loss && output.requires_grad() && viewer_->wants(module, observers::Kind::gradients))
      output.retain_grad();
  }
}

void ModelStage::show_gradients(const Flight& flight) const {
  for (std::size_t i = 0; i < flight.outputs.size(); ++i) {
    const at::Tensor& output = flight.outputs[i];
    if (output.defined() && output.retains_grad() && output.grad().defined())
      viewer_->show(runs()[i].range.module, observers::Kind::gradients, output.grad());
  }
}

}  // namespace troupe::engine
