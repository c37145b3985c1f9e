// Stages that let no number pass that is none: rows that are handed on and gradients that are sent
// back are looked at, and a value that is not finite ends the step with an error that names module
// and samples; step, device and stage the engine adds. Without it a loss that is no number is all
// there is to see.

#include <ATen/ops/isfinite.h>

#include "engine/execution/stage_filter.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "runtime/plugins/entry_point.hpp"

namespace {

using namespace troupe;
using namespace troupe::engine;

class Sentry : public StageFilter {
 public:
  Sentry(std::unique_ptr<StageProgram> inner, const ModelGraph& model)
      : StageFilter(std::move(inner)), model_(model) {}

  Status begin(const IterationPlan& plan, const data::DecodedSamples& samples) override {
    plan_ = &plan;
    return StageFilter::begin(plan, samples);
  }
  Result<at::Tensor> rows_for(MessageId message) override {
    return passed(StageFilter::rows_for(message), message, "rows of ");
  }
  Result<at::Tensor> gradient_for(MessageId message) override {
    return passed(StageFilter::gradient_for(message), message, "the gradient of rows of ");
  }

 private:
  // values: [rows of the message, width].
  Result<at::Tensor> passed(Result<at::Tensor> values, MessageId id, const char* what) const {
    if (!values.ok() || at::isfinite(values.value()).all().item<bool>()) return values;
    const Message& message = plan_->at(id);
    std::string samples;
    for (const std::int32_t unit : message.samples)  // Samples, or pieces of them: not an index.
      samples += (samples.empty() ? "" : ", ") + plan_->sample(unit).id;
    return Error{Errc::internal,
                 std::string("not finite: ") + what + model_.at(message.module).name +
                     ", samples " + samples,
                 "the training itself", "lower the learning rate, or look at these samples"};
  }

  const ModelGraph& model_;
  const IterationPlan* plan_ = nullptr;
};

Status register_all() {
  StageKind kind{"sentry", {}, {}};  // No families: all stages.
  kind.make = [](const StageRequest& request) -> Result<std::unique_ptr<StageProgram>> {
    auto inner = built_in_stage(request);
    if (!inner.ok()) return inner;
    return std::unique_ptr<StageProgram>(
        std::make_unique<Sentry>(std::move(inner).value(), request.plan.model));
  };
  kind.offloads = true;  // As the engine's own stage does, to which all goes on.
  return register_stage(std::move(kind));
}

}  // namespace

TROUPE_PLUGIN(register_all)
