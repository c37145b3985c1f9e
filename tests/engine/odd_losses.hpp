// A job whose llm's last layer gives what a test makes of its losses.

#pragma once

#include "tests/torch_catch.hpp"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "models/built_on.hpp"
#include "models/family/registry.hpp"
#include "models/layer.hpp"
#include "runtime/job/job.hpp"

namespace troupe::engine {

/// What is made of the losses from now on; empty: nothing.
inline std::function<at::Tensor(const at::Tensor&)>& change_of_losses() {
  static std::function<at::Tensor(const at::Tensor&)> change;
  return change;
}

class OddLosses final : public models::Layer {
 public:
  explicit OddLosses(std::unique_ptr<models::Layer> inner) : inner_(std::move(inner)) {}

  at::Tensor forward(const at::Tensor& rows, const models::PackedBatch& batch) override {
    const at::Tensor losses = inner_->forward(rows, batch);
    return change_of_losses() ? change_of_losses()(losses) : losses;
  }
  std::vector<models::Parameter>& parameters() override { return inner_->parameters(); }

 private:
  const std::unique_ptr<models::Layer> inner_;
};

/// The job with such a layer. REQUIRES: a llama is its last module.
inline job::Job with_odd_losses(job::Job job) {
  job.modules.back().family = "odd-losses";
  if (models::find_family("odd-losses") != nullptr) return job;
  models::Family family = models::built_on(*models::find_family("llama"), "odd-losses");
  family.make = [sizes = family.sizes, of = family.make](
                    const ModuleConfig& module, int index,
                    std::vector<models::Parameter> list) -> std::unique_ptr<models::Layer> {
    auto made = of(module, index, std::move(list));
    if (index + 1 < sizes(module.config).layers) return made;
    return std::make_unique<OddLosses>(std::move(made));
  };
  REQUIRE(models::register_family(std::move(family)).ok());
  return job;
}

}  // namespace troupe::engine
