// Distillation: a frozen llama whose logits enter the last layer of the llm that learns from it,
// and that llm, whose loss is part the text's and part how far it is from the teacher.

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>

#include "kernels/cross_entropy.hpp"
#include "kernels/linear.hpp"
#include "kernels/norms.hpp"
#include "models/built_in_layers.hpp"
#include "models/llama/family.hpp"
#include "models/plugin.hpp"

namespace {

using namespace troupe;
using namespace troupe::models;

const Family& llama_family() { return *find_family("llama"); }

ModuleConfig as_llama(ModuleConfig module, const LlmConfig& config) {
  module.family = "llama", module.config = FamilyConfig(config);
  return module;
}

// ---- The teacher: layers of a llama, its last one with logits in place of a loss.

struct Logits : ParameterLayer {
  Logits(double eps, std::vector<Parameter> list) : ParameterLayer(std::move(list)), eps_(eps) {}
  at::Tensor forward(const at::Tensor& rows, const PackedBatch&) override {
    return kernels::linear(kernels::rms_norm(rows, (*this)[0], eps_), (*this)[1]);
  }
  const double eps_;
};

Family teacher() {
  Family family = llama_family();
  family.name = "llama-teacher", family.kind = ModuleKind::teacher, family.takes_masks = false;
  family.sizes = [](const FamilyConfig& config) {
    ModuleSizes sizes = llama_family().sizes(config);
    sizes.input_width = 0, sizes.output_width = sizes.vocabulary;  // It hands on logits.
    return sizes;
  };
  family.describe = [](const ModuleConfig& module, const Widths& widths) {
    ModuleDescription made = llama_family().describe(module, widths);
    made.output_width = module.config.as<LlmConfig>().vocab_size;
    return made;
  };
  family.make = [](const ModuleConfig& module, int index,
                   std::vector<Parameter> list) -> std::unique_ptr<Layer> {
    const auto& config = module.config.as<LlmConfig>();
    if (index <= config.num_hidden_layers)
      return make_built_in(as_llama(module, config), index, std::move(list));
    return std::make_unique<Logits>(config.rms_norm_eps, std::move(list));
  };
  return family;
}

// ---- The student: a llama with two more keys, and another last layer.

struct Student {
  LlmConfig llama;
  double share = 0.5, temperature = 2;  // Of the loss that is the teacher's; what softens both.
  friend bool operator==(const Student&, const Student&) = default;
};

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
    std::vector<at::Tensor> sums;
    for (std::int64_t begin = 0; const auto count : counts) {
      sums.push_back(far.narrow(0, begin, count).sum().view({1}));
      begin += count;
    }
    return at::cat(sums).mul(student_.share * t * t);
  }

  const Student student_;
};

Family student() {
  Family family{"llama-student", ModuleKind::llm, Student{}};
  family.fields = [](ConfigFields& v, FamilyConfig& config) {
    auto x = config.as<Student>();
    FamilyConfig llama(x.llama);
    llama_family().fields(v, llama);
    x.llama = llama.as<LlmConfig>();
    v.number("teacher_share", x.share, 0, 1), v.number("temperature", x.temperature, 0.01, 100);
    config = FamilyConfig(std::move(x));
  };
  const auto inner = [](const FamilyConfig& config) {
    return FamilyConfig(config.as<Student>().llama);
  };
  family.sizes = [inner](const FamilyConfig& c) { return llama_family().sizes(inner(c)); };
  family.problems = [inner](const FamilyConfig& c) { return llama_family().problems(inner(c)); };
  family.describe = [](const ModuleConfig& module, const Widths& widths) {
    return llama_family().describe(as_llama(module, module.config.as<Student>().llama), widths);
  };
  family.works = [](const ModuleConfig& module, const Widths& widths) {
    return llama_family().works(as_llama(module, module.config.as<Student>().llama), widths);
  };
  family.takes_masks = true;
  family.make = [](const ModuleConfig& module, int index, std::vector<Parameter> list) {
    const auto& config = module.config.as<Student>();
    if (index <= config.llama.num_hidden_layers)
      return make_built_in(as_llama(module, config.llama), index, std::move(list));
    return std::unique_ptr<Layer>(new LearningHead(config, std::move(list)));
  };
  return family;
}

Status register_all() {
  if (auto added = register_family(teacher()); !added.ok()) return added;
  return register_family(student());
}

}  // namespace

TROUPE_PLUGIN(register_all)
