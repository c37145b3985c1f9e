// Jobs with a teacher: a llama whose last layer gives logits. Their llm makes nothing of its rows.

#pragma once

#include "tests/torch_catch.hpp"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/linear.hpp"
#include "kernels/norms.hpp"
#include "models/built_on.hpp"
#include "models/family/registry.hpp"
#include "models/llama/family.hpp"
#include "models/parameter_layer.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {

class LogitsLayer final : public models::ParameterLayer {
 public:
  LogitsLayer(const models::LlmConfig& config, std::vector<models::Parameter> list)
      : ParameterLayer(std::move(list)), eps_(config.rms_norm_eps) {}

  at::Tensor forward(const at::Tensor& rows, const models::PackedBatch& /*batch*/) override {
    const auto& p = *this;  // norm, weight
    return kernels::linear(kernels::rms_norm(rows, p[0], eps_), p[1]);
  }

 private:
  const double eps_;
};

/// Adds the family `tiny-teacher`, once.
inline void register_teacher_family() {
  if (models::find_family("tiny-teacher") != nullptr) return;
  models::Family family = models::built_on(*models::find_family("llama"), "tiny-teacher");
  family.kind = ModuleKind::teacher;
  family.takes_masks = false;
  family.sizes = [of = family.sizes](const FamilyConfig& config) {
    models::ModuleSizes sizes = of(config);
    sizes.input_width = 0;
    sizes.output_width = sizes.vocabulary;
    return sizes;
  };
  family.describe = [of = family.describe](const ModuleConfig& module,
                                           const models::Widths& widths) {
    models::ModuleDescription made = of(module, widths);
    made.output_width = module.config.as<models::LlmConfig>().vocab_size;
    return made;
  };
  models::end_with<models::LlmConfig, LogitsLayer>(family);
  REQUIRE(models::register_family(std::move(family)).ok());
}

/// The job with a teacher in this place among its modules.
inline job::Job with_teacher(job::Job job, std::size_t place) {
  register_teacher_family();
  ModuleConfig teacher{"teacher", ModuleKind::teacher, "tiny-teacher", "llm", true, {}, 0.02, {}};
  teacher.config = models::LlmConfig{.num_hidden_layers = 2,
                                     .hidden_size = 16,
                                     .intermediate_size = 24,
                                     .num_attention_heads = 2,
                                     .num_key_value_heads = 1};
  job.modules.insert(job.modules.begin() + static_cast<std::ptrdiff_t>(place), std::move(teacher));
  return job;
}

}  // namespace troupe::engine
