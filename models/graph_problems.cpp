#include "models/graph_problems.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "models/family/registry.hpp"
#include "models/family/widths.hpp"

namespace troupe::models {

namespace {

using Modules = std::vector<ModuleConfig>;
using Problems = std::vector<Error>;

const ModuleConfig* find_module(const Modules& modules, const std::string& name) {
  for (const auto& module : modules)
    if (module.name == name) return &module;
  return nullptr;
}

void add_name_problems(const Modules& modules, Problems& problems) {
  std::set<std::string> names;
  for (const auto& module : modules) {
    if (module.name.empty())
      problems.push_back({Errc::invalid_argument, "a module has no name", "modules", "name it"});
    else if (!names.insert(module.name).second)
      problems.push_back(config_error(
          module, "name", "two modules have the name '" + module.name + "'", "rename one of them"));
  }
  const auto llms = std::count_if(modules.begin(), modules.end(), [](const ModuleConfig& module) {
    return module.kind == ModuleKind::llm;
  });
  if (llms != 1)
    problems.push_back(
        {Errc::invalid_argument,
         "a model has exactly one module of kind 'llm', this one has " + std::to_string(llms),
         "modules", "give exactly one module kind = \"llm\""});
}

std::optional<Error> check_next(const Modules& modules, const ModuleConfig& module) {
  if (module.kind == ModuleKind::llm) {
    if (module.next.empty()) return {};
    return config_error(module, "next", "the llm is the last module and goes nowhere",
                        "remove `next`");
  }
  const auto* next = find_module(modules, module.next);
  if (!next)
    return config_error(module, "next",
                        module.next.empty() ? "module '" + module.name + "' goes nowhere"
                                            : "there is no module '" + module.next + "'",
                        "name the projector or the llm that takes its rows");
  if (next->kind == ModuleKind::teacher)
    return config_error(module, "next", "'" + next->name + "' is a teacher and takes text alone",
                        "name a projector or the llm");
  if (module.kind == ModuleKind::teacher && next->kind != ModuleKind::llm)
    return config_error(module, "next", "a teacher's rows go to the llm's last layer",
                        "name the llm, or leave `next` out");
  if (next->kind == ModuleKind::encoder)
    return config_error(module, "next",
                        "'" + next->name + "' is an encoder and takes media, not rows",
                        "name a projector or the llm");
  // Any module leads to the llm within as many steps as there are modules, or never.
  const auto* end = next;
  for (std::size_t step = 0; end && end->kind != ModuleKind::llm; ++step) {
    if (step > modules.size())
      return config_error(module, "next", "module '" + module.name + "' never reaches the llm",
                          "let the last projector's `next` name the llm");
    end = find_module(modules, end->next);
  }
  return {};
}

std::optional<Error> check_teacher(const ModuleConfig& module) {
  if (module.kind != ModuleKind::teacher || module.freeze) return {};
  return config_error(module, "freeze", "a teacher does not train", "set freeze = true");
}

std::optional<Error> check_attention(const ModuleConfig& module) {
  if (module.attention == AttentionRule::causal || checked_family(module).takes_masks) return {};
  return config_error(module, "attention",
                      "family '" + module.family + "' does not attend by modality",
                      "leave `attention` out, or choose a family of llms that takes masks");
}

// Rows must arrive with the columns that the next module takes.
std::optional<Error> check_widths(const Modules& modules, const ModuleConfig& module) {
  // What the llm's last layer makes of a teacher's rows is its family's affair.
  if (reads_text(module.kind)) return {};
  const auto& next = *find_module(modules, module.next);
  const auto given = output_width(module, modules);
  const auto taken = input_width(next, modules);
  if (given == taken) return {};
  return config_error(module, "next",
                      "'" + module.name + "' hands on rows of " + std::to_string(given) +
                          " columns, but '" + next.name + "' takes " + std::to_string(taken),
                      "put a projector of kind 'projector' between them, or change one width");
}

/// What is wrong with the sizes of modules whose names, families and ways are sound.
Problems size_problems(const Modules& modules) {
  std::set<std::string> unsound;
  for (const auto& module : modules)
    if (!describe_module(module, modules)) unsound.insert(module.name);
  Problems problems;
  for (const auto& module : modules) {
    if (unsound.contains(module.name))
      problems.push_back(describe_module(module, modules).error());
    else if (!unsound.contains(module.next))
      if (auto problem = check_widths(modules, module)) problems.push_back(std::move(*problem));
  }
  return problems;
}

}  // namespace

std::vector<Error> graph_problems(const std::vector<ModuleConfig>& modules) {
  Problems problems;
  add_name_problems(modules, problems);
  for (const auto& module : modules)
    if (auto family = family_of(module); !family) problems.push_back(family.error());
  for (const auto& module : modules)
    if (auto problem = check_next(modules, module)) problems.push_back(std::move(*problem));
  for (const auto& module : modules)
    if (auto problem = check_teacher(module)) problems.push_back(std::move(*problem));
  for (const auto& module : modules)
    if (find_family(module.family) != nullptr)
      if (auto problem = check_attention(module)) problems.push_back(std::move(*problem));
  return problems.empty() ? size_problems(modules) : problems;
}

}  // namespace troupe::models
