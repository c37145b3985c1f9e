// A stage of a user's that does something of its own in one forward, and is a built-in one else.

#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/execution/stage_program.hpp"

namespace troupe::engine {

class HookedStage : public StageProgram {
 public:
  /// `hook` is called before each forward of microbatch 1, `at_end` before each `abandon`. `inner`
  /// outlives this.
  HookedStage(StageProgram& inner, std::function<void()> hook, std::function<void()> at_end = {})
      : inner_(inner), hook_(std::move(hook)), at_end_(std::move(at_end)) {}

  Status begin(const IterationPlan& plan, const data::DecodedSamples& samples) override {
    return inner_.begin(plan, samples);
  }
  void abandon() override {
    if (at_end_) at_end_();
    inner_.abandon();
  }
  Status forward(PartKey part) override {
    if (part.microbatch == MicrobatchId{1}) hook_();
    return inner_.forward(part);
  }
  Status backward(PartKey part) override { return inner_.backward(part); }
  Status backward_input(PartKey part) override { return inner_.backward_input(part); }
  Status backward_weight(PartKey part) override { return inner_.backward_weight(part); }
  void accept_rows(MessageId id, at::Tensor rows) override {
    inner_.accept_rows(id, std::move(rows));
  }
  Result<at::Tensor> rows_for(MessageId id) override { return inner_.rows_for(id); }
  void accept_gradient(MessageId id, at::Tensor gradient) override {
    inner_.accept_gradient(id, std::move(gradient));
  }
  Result<at::Tensor> gradient_for(MessageId id) override { return inner_.gradient_for(id); }
  GroupState& state(GroupId group, LayerId layer) override { return inner_.state(group, layer); }
  std::vector<models::Parameter*> parameters() override { return inner_.parameters(); }
  std::vector<PartLoss> losses() const override { return inner_.losses(); }
  Bytes activations() const override { return inner_.activations(); }

 private:
  StageProgram& inner_;
  std::function<void()> hook_, at_end_;
};

}  // namespace troupe::engine
