#include <algorithm>
#include <optional>
#include <set>

#include "models/description.hpp"
#include "models/factory.hpp"
#include "models/family.hpp"
#include "models/widths.hpp"

namespace troupe::models {

namespace {

using Modules = std::vector<ModuleConfig>;

const ModuleConfig* find_module(const Modules& modules, const std::string& name) {
  for (const auto& module : modules)
    if (module.name == name) return &module;
  return nullptr;
}

std::optional<Error> check_names(const Modules& modules) {
  std::set<std::string> names;
  for (const auto& module : modules) {
    if (module.name.empty())
      return Error{Errc::invalid_argument, "a module has no name", "modules", "name it"};
    if (!names.insert(module.name).second)
      return config_error(module, "name", "two modules have the name '" + module.name + "'",
                          "rename one of them");
  }
  const auto llms = std::count_if(modules.begin(), modules.end(), [](const ModuleConfig& module) {
    return module.kind == ModuleKind::llm;
  });
  if (llms != 1)
    return Error{
        Errc::invalid_argument,
        "a model has exactly one module of kind 'llm', this one has " + std::to_string(llms),
        "modules", "give exactly one module kind = \"llm\""};
  return {};
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

// Rows must arrive with the columns that the next module takes.
std::optional<Error> check_widths(const Modules& modules, const ModuleConfig& module) {
  if (module.kind == ModuleKind::llm) return {};
  const auto& next = *find_module(modules, module.next);
  const auto given = output_width(module, modules);
  const auto taken = next.kind == ModuleKind::projector
                         ? resolve_projector(next, modules).input_size
                         : output_width(next, modules);
  if (given == taken) return {};
  return config_error(module, "next",
                      "'" + module.name + "' hands on rows of " + std::to_string(given) +
                          " columns, but '" + next.name + "' takes " + std::to_string(taken),
                      "put a projector of kind 'projector' between them, or change one width");
}

// Upstream first; among free ones the given order; the llm last.
std::vector<const ModuleConfig*> order(const Modules& modules) {
  std::vector<const ModuleConfig*> result;
  const auto is_placed = [&](const ModuleConfig& module) {
    return std::find(result.begin(), result.end(), &module) != result.end();
  };
  while (result.size() < modules.size()) {
    for (const auto& module : modules) {
      if (is_placed(module)) continue;
      const bool ready = std::all_of(modules.begin(), modules.end(), [&](const auto& other) {
        return other.next != module.name || is_placed(other);
      });
      const bool last = result.size() + 1 == modules.size();
      if (!ready || (module.kind == ModuleKind::llm && !last)) continue;
      result.push_back(&module);
      break;
    }
  }
  return result;
}

// A parameter that two layers name is counted once, for both.
void add_layers(ModelGraph& graph, const ModuleDescription& description, ModuleId id) {
  auto& layers = graph.modules[id.index()].layers;
  for (const auto& layer : description.layers) {
    LayerSpec spec{layer.name, 0, 0};
    for (const auto& parameter : layer.parameters) {
      if (!parameter.tied_use) {
        (parameter.initial == Initial::sinusoid ? spec.constant_elements
                                                : spec.parameter_elements) += parameter.elements();
        continue;
      }
      TiedParameter tied{parameter.name, {}, parameter.elements()};
      for (std::size_t first = 0; first < layers.size(); ++first)
        for (const auto& candidate : description.layers[first].parameters)
          if (candidate.name == parameter.name) {
            tied.layers.push_back({id, static_cast<std::int32_t>(first)});
            layers[first].parameter_elements -= parameter.elements();
          }
      tied.layers.push_back({id, static_cast<std::int32_t>(layers.size())});
      graph.tied.push_back(std::move(tied));
    }
    layers.push_back(std::move(spec));
  }
}

}  // namespace

Result<ModelGraph> build_graph(const std::vector<ModuleConfig>& modules) {
  if (auto error = check_names(modules)) return *error;
  for (const auto& module : modules)
    if (auto family = find_family(module); !family) return family.error();
  for (const auto& module : modules)
    if (auto error = check_next(modules, module)) return *error;
  const auto ordered = order(modules);
  ModelGraph graph;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    const auto& module = *ordered[i];
    auto description = describe_module(module, modules);
    if (!description) return description.error();
    if (auto error = check_widths(modules, module)) return *error;
    const auto& value = description.value();
    graph.modules.push_back(
        {module.name, module.kind, module.freeze, {}, {}, value.hidden_width, value.output_width});
    for (std::size_t next = 0; next < ordered.size(); ++next)
      if (ordered[next]->name == module.next) graph.modules[i].next.push_back(ModuleId{next});
    add_layers(graph, value, ModuleId{i});
  }
  return graph;
}

}  // namespace troupe::models
