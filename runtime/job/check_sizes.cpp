#include <algorithm>
#include <utility>

#include "models/family/registry.hpp"
#include "models/family/size_problems.hpp"
#include "models/family/widths.hpp"
#include "runtime/job/check_job.hpp"

namespace troupe::job {

namespace {

using std::to_string;

/// Columns that each says itself; where one leaves them open they follow from the other.
void check_widths(const ModuleConfig& from, const ModuleConfig& to, Findings& findings) {
  const auto out = models::checked_family(from).sizes(from.config).output_width;
  const auto in = models::checked_family(to).sizes(to.config).input_width;
  // What the llm's last layer makes of a teacher's rows is its family's affair.
  if (reads_text(from.kind)) return;
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
    auto problems = models::problems_of(family, module.config);
    if (auto few = models::too_few_tokens(module, family.sizes(module.config)))
      problems.push_back(std::move(*few));
    for (const auto& problem : problems)
      findings.add_at(path + problem.key, path + problem.key + ": " + problem.message, problem.fix);
    for (const auto& next : modules)
      if (next.name == module.next) check_widths(module, next, findings);
  }
}

}  // namespace troupe::job
