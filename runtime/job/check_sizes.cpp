#include <algorithm>

#include "models/family/registry.hpp"
#include "models/family/widths.hpp"
#include "runtime/job/check_job.hpp"

namespace troupe::job {

namespace {

using std::to_string;

constexpr std::int64_t kTokenizerSize = 320;  // data::ByteTokenizer, the embedded tokenizer.

void check_vocabulary(const ModuleConfig& module, const models::ModuleSizes& sizes,
                      Findings& findings) {
  const bool reads_text = module.kind == ModuleKind::llm || module.kind == ModuleKind::teacher;
  if (!reads_text || sizes.vocabulary >= kTokenizerSize) return;
  const auto path = "modules." + module.name + ".config.vocab_size";
  findings.add_at(path,
                  path + ": " + to_string(sizes.vocabulary) + " is less than the tokenizer's " +
                      to_string(kTokenizerSize),
                  "write vocab_size = " + to_string(kTokenizerSize) + " or leave it out");
}

/// Columns that each says itself; where one leaves them open they follow from the other.
void check_widths(const ModuleConfig& from, const ModuleConfig& to, Findings& findings) {
  const auto out = models::checked_family(from).sizes(from.config).output_width;
  const auto in = models::checked_family(to).sizes(to.config).input_width;
  // What the llm's last layer makes of a teacher's rows is its family's affair.
  if (from.kind == ModuleKind::llm || from.kind == ModuleKind::teacher) return;
  if (out == 0 || in == 0 || out == in) return;
  const bool both_fixed = from.kind == ModuleKind::encoder && to.kind == ModuleKind::llm;
  findings.add_at("modules." + from.name + ".config",
                  "modules." + from.name + " hands on " + to_string(out) + " columns, but " +
                      to.name + " takes " + to_string(in),
                  both_fixed ? "put a projector (kind = \"projector\") between them"
                             : "leave input_size and output_size out; they follow from the others");
}

}  // namespace

std::int32_t layer_count(const ModuleConfig& module) {
  return models::checked_family(module).sizes(module.config).layers;
}

void check_sizes(const std::vector<ModuleConfig>& modules, Findings& findings) {
  for (const auto& module : modules) {
    const auto& family = models::checked_family(module);
    const auto path = "modules." + module.name + ".config.";
    for (const auto& problem : models::problems_of(family, module.config))
      findings.add_at(path + problem.key, path + problem.key + ": " + problem.message, problem.fix);
    check_vocabulary(module, family.sizes(module.config), findings);
    for (const auto& next : modules)
      if (next.name == module.next) check_widths(module, next, findings);
  }
}

}  // namespace troupe::job
