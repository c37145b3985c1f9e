// Distillation: a frozen llama whose logits enter the last layer of the llm that learns from it,
// and that llm, whose loss is part the text's and part how far it is from the teacher.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>

#include "kernels/cross_entropy.hpp"
#include "kernels/linear.hpp"
#include "kernels/norms.hpp"
#include "models/built_on.hpp"
#include "models/llama/family.hpp"
#include "models/plugin.hpp"

namespace {

using namespace troupe;
using namespace troupe::models;

// ---- The teacher: layers of a llama, its last one with logits in place of a loss.

struct Logits : ParameterLayer {
  Logits(const LlmConfig& config, std::vector<Parameter> list)
      : ParameterLayer(std::move(list)), eps_(config.rms_norm_eps) {}
  at::Tensor forward(const at::Tensor& rows, const PackedBatch&) override {
    return kernels::linear(kernels::rms_norm(rows, (*this)[0], eps_), (*this)[1]);
  }
  const double eps_;
};

Family teacher() {
  Family family = built_on(*find_family("llama"), "llama-teacher");
  family.kind = ModuleKind::teacher, family.takes_masks = false;
  family.sizes = [of = family.sizes](const FamilyConfig& config) {
    ModuleSizes sizes = of(config);
    sizes.input_width = 0, sizes.output_width = sizes.vocabulary;  // It hands on logits.
    return sizes;
  };
  family.describe = [of = family.describe](const ModuleConfig& module, const Widths& widths) {
    ModuleDescription made = of(module, widths);
    made.output_width = module.config.as<LlmConfig>().vocab_size;
    return made;
  };
  end_with<LlmConfig, Logits>(family);
  return family;
}

// ---- The student: a llama with two more keys, and another last layer.

struct Student {
  LlmConfig llama;
  double share = 0.5, temperature = 2;  // Of the loss that is the teacher's; what softens both.
  friend bool operator==(const Student&, const Student&) = default;
};

void fields(ConfigFields& v, Student& x) {
  v.number("teacher_share", x.share, 0, 1), v.number("temperature", x.temperature, 0.01, 100);
}

/// The loss of a sample: (1 - share) * cross entropy + share * T^2 * KL(teacher || student), both
/// summed over trained tokens. Behind a row of media there is no teacher, and no distance. Logits
/// are made once, for both: a weight that is used twice gives other bits where a backward is split.
struct LearningHead : ParameterLayer {
  LearningHead(const Student& student, std::vector<Parameter> list)
      : ParameterLayer(std::move(list)), student_(student) {}

  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override {
    const auto next = kernels::next_token_targets(batch.labels, batch.segments);
    const auto chosen = kernels::select_rows(rows, next.rows.to(rows.device()));
    const auto logits = kernels::linear(
        kernels::rms_norm(chosen, (*this)[0], student_.llama.rms_norm_eps), (*this)[1]);
    const auto targets = next.targets.to(rows.device());
    auto loss = kernels::cross_entropy_sums(logits, targets, next.counts).mul(1 - student_.share);
    for (const TaughtRows& taught : batch.taught) {
      auto place = at::full({batch.labels.size(0)}, -1, at::kLong);  // Of its row; -1: none.
      place.index_copy_(0, taught.positions, at::arange(taught.positions.size(0), at::kLong));
      place = place.index_select(0, next.rows).to(rows.device());
      const auto theirs = taught.rows.index_select(0, place.clamp_min(0));
      loss = loss.add(distance(theirs, logits, place.ge(0), next.counts));
    }
    return loss;
  }

  at::Tensor distance(const at::Tensor& theirs, const at::Tensor& own, const at::Tensor& known,
                      const std::vector<std::int64_t>& counts) const {
    const double t = student_.temperature;
    const auto p = at::log_softmax(theirs.div(t), 1), q = at::log_softmax(own.div(t), 1);
    const auto far = p.exp().mul(p.sub(q)).sum(1).mul(known.to(own.options()));
    const auto of_sample = [&](std::int64_t begin, std::int64_t count) {
      return far.narrow(0, begin, count).sum().view({1});
    };
    return by_segment(counts, far.new_empty({0}), of_sample).mul(student_.share * t * t);
  }

  const Student student_;
};

Status register_all() {
  if (auto added = register_family(teacher()); !added.ok()) return added;
  Family student = built_on(*find_family("llama"), "llama-student", &Student::llama, fields);
  end_with<Student, LearningHead>(student);
  return register_family(std::move(student));
}

}  // namespace

TROUPE_PLUGIN(register_all)
