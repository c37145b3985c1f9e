// A stage around another one: what is not overridden goes on to it.

#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/execution/stage_program.hpp"

namespace troupe::engine {
/// Base of stages that add something to another one.
class StageFilter : public StageProgram {
 public:
  /// REQUIRES: `inner` is not null.
  explicit StageFilter(std::unique_ptr<StageProgram> inner) : inner_(std::move(inner)) {}

  bool show_to(Viewer* viewer) override { return inner_->show_to(viewer); }
  Status begin(const IterationPlan& plan, const data::DecodedSamples& samples) override {
    return inner_->begin(plan, samples);
  }
  void abandon() override { inner_->abandon(); }
  Status forward(PartKey part) override { return inner_->forward(part); }
  Status backward(PartKey part) override { return inner_->backward(part); }
  Status backward_input(PartKey part) override { return inner_->backward_input(part); }
  Status backward_weight(PartKey part) override { return inner_->backward_weight(part); }  ///< So.
  Result<Bytes> offload(PartKey part, Device& device) override {
    return inner_->offload(part, device);
  }
  Result<Bytes> fetch(PartKey part, Device& device) override { return inner_->fetch(part, device); }
  void accept_rows(MessageId message, at::Tensor rows) override {
    inner_->accept_rows(message, std::move(rows));
  }
  Result<at::Tensor> rows_for(MessageId message) override { return inner_->rows_for(message); }
  void accept_gradient(MessageId message, at::Tensor gradient) override {
    inner_->accept_gradient(message, std::move(gradient));
  }
  Result<at::Tensor> gradient_for(MessageId message) override {
    return inner_->gradient_for(message);
  }
  GroupState& state(GroupId group, LayerId layer) override { return inner_->state(group, layer); }
  std::vector<models::Parameter*> parameters() override { return inner_->parameters(); }
  std::vector<PartLoss> losses() const override { return inner_->losses(); }
  std::vector<PartAuxiliary> auxiliary() const override { return inner_->auxiliary(); }
  Bytes activations() const override { return inner_->activations(); }

 private:
  std::unique_ptr<StageProgram> inner_;
};

}  // namespace troupe::engine
