#include <algorithm>
#include <map>

#include "models/factory.hpp"
#include "models/family/registry.hpp"
#include "models/graph_problems.hpp"

namespace troupe::models {

namespace {

using Modules = std::vector<ModuleConfig>;

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

// Adds what tensor-parallel ranks share of a parameter, `times` times.
void add_split(std::vector<SplitElements>& splits, const ParameterSpec& parameter, int times = 1) {
  if (parameter.split.by == TensorSplit::By::none) return;
  auto place = std::lower_bound(splits.begin(), splits.end(), parameter.split.parts,
                                [](const auto& split, auto parts) { return split.parts < parts; });
  if (place == splits.end() || place->parts != parameter.split.parts)
    place = splits.insert(place, {0, parameter.split.parts});
  place->elements += times * parameter.elements();
  if (place->elements == 0) splits.erase(place);
}

ParameterSplit split_of(const ParameterSpec& parameter) {
  switch (parameter.split.by) {
    case TensorSplit::By::output: return {0, parameter.split.parts};
    case TensorSplit::By::input: return {1, parameter.split.parts};
    case TensorSplit::By::none: break;
  }
  return {};
}

// A parameter that two layers name is counted once, for both.
void add_layers(ModelGraph& graph, const ModuleDescription& description, ModuleId id) {
  auto& layers = graph.modules[id.index()].layers;
  for (const auto& layer : description.layers) {
    LayerSpec spec{layer.name, 0, 0};
    for (const auto& parameter : layer.parameters) {
      if (!parameter.tied_use) {
        const bool is_constant = parameter.initial == Initial::sinusoid;
        (is_constant ? spec.constant_elements : spec.parameter_elements) += parameter.elements();
        if (!is_constant) add_split(spec.splits, parameter);
        continue;
      }
      TiedParameter tied{parameter.name, {}, parameter.elements()};
      add_split(tied.splits, parameter);
      for (std::size_t first = 0; first < layers.size(); ++first)
        for (const auto& candidate : description.layers[first].parameters)
          if (candidate.name == parameter.name) {
            tied.layers.push_back({id, static_cast<std::int32_t>(first)});
            layers[first].parameter_elements -= parameter.elements();
            add_split(layers[first].splits, candidate, -1);
          }
      tied.layers.push_back({id, static_cast<std::int32_t>(layers.size())});
      graph.tied.push_back(std::move(tied));
    }
    layers.push_back(std::move(spec));
  }
}

}  // namespace

Result<ModelGraph> build_graph(const std::vector<ModuleConfig>& modules) {
  if (auto problems = graph_problems(modules); !problems.empty()) return problems.front();
  const auto ordered = order(modules);
  ModelGraph graph;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    const auto& module = *ordered[i];
    auto description = describe_module(module, modules);
    if (!description) return description.error();
    const auto& value = description.value();
    graph.modules.push_back({module.name,
                             module.kind,
                             module.freeze,
                             {},
                             {},
                             value.hidden_width,
                             value.output_width,
                             module.attention});
    for (std::size_t next = 0; next < ordered.size(); ++next)
      if (ordered[next]->name == module.next) graph.modules[i].next.push_back(ModuleId{next});
    add_layers(graph, value, ModuleId{i});
  }
  return graph;
}

std::vector<ParameterInfo> list_parameters(const Modules& modules, const ModelGraph& graph) {
  std::vector<ParameterInfo> list;
  std::map<std::string, std::size_t> places;
  for (std::size_t m = 0; m < graph.modules.size(); ++m) {
    const auto& spec = graph.modules[m];
    const auto config = std::find_if(modules.begin(), modules.end(),
                                     [&](const auto& module) { return module.name == spec.name; });
    const auto description = describe_module(*config, modules);
    std::int32_t index = 0;
    for (const auto& layer : description.value().layers) {
      const LayerId user{ModuleId{m}, index++};
      for (const auto& parameter : layer.parameters) {
        const auto [place, is_new] = places.emplace(parameter.name, list.size());
        if (is_new)
          list.push_back({parameter.name,
                          parameter.shape,
                          {},
                          !spec.freeze && parameter.initial != Initial::sinusoid,
                          split_of(parameter),
                          false,
                          parameter.own_update});
        ParameterInfo& info = list[place->second];
        info.uses.push_back(user);
        // Of several users all must say so: the first one begins it.
        info.moments_in_host =
            info.trains && spec.moments_in_host && (is_new || info.moments_in_host);
      }
    }
  }
  return list;
}

}  // namespace troupe::models
