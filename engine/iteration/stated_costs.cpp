#include "engine/iteration/stated_costs.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/named_list.hpp"

namespace troupe::engine {

namespace {

using scheduler::PartCost;

NamedList<StatedCosts>& all_stated() {
  static NamedList<StatedCosts> all;
  return all;
}

/// What is stated of a family's layers; nullptr: nothing.
const StatedCosts* stated_of(const std::string& family) {
  for (const StatedCosts* stated : all_stated().all())
    if (stated->families.empty() || std::ranges::count(stated->families, family) > 0) return stated;
  return nullptr;
}

/// nullptr: the model has another module of that name than the job, or none.
const ModuleConfig* config_of(const ModuleSpec& module, const std::vector<ModuleConfig>& modules) {
  const auto found = std::ranges::find(modules, module.name, &ModuleConfig::name);
  return found == modules.end() ? nullptr : &*found;
}

std::string called(const char* member, const StatedCosts& stated) {
  return std::string("`") + member + "` of stage kind '" + stated.name + "'";
}

void check_costs(const LayerCosts& costs, const CostedRows& rows, const std::string& function) {
  static constexpr std::pair<double LayerCosts::*, const char*> kFigures[] = {
      {&LayerCosts::forward_ms, "forward_ms"},
      {&LayerCosts::input_gradient_ms, "input_gradient_ms"},
      {&LayerCosts::weight_gradient_ms, "weight_gradient_ms"},
      {&LayerCosts::kept_bytes, "kept_bytes"}};
  for (const auto& [figure, name] : kFigures)
    if (const double value = costs.*figure; !std::isfinite(value) || value < 0)
      throw UserFault(function, "says " + std::string(name) + " = " + std::to_string(value) +
                                    " of " + rows.layer + " for " + std::to_string(rows.rows) +
                                    " rows; times and bytes are finite and not below zero");
}

PartCost restated(const StatedCosts& stated, const PartCost& own, const CostedRows& rows) {
  const std::string function = called("costs", stated);
  const LayerCosts costs = plugins::call_user(function, [&] {
    return stated.costs(
        {own.forward_ms, own.input_grad_ms, own.weight_grad_ms, own.activation_bytes}, rows);
  });
  check_costs(costs, rows, function);
  return {costs.forward_ms, costs.input_gradient_ms, costs.weight_gradient_ms, costs.kept_bytes};
}

void restate(const StatedCosts& stated, const ModuleConfig& module,
             scheduler::LayerProfile& profile) {
  const bool attends =
      std::ranges::any_of(profile.points, [](const auto& p) { return p.attention != PartCost{}; });
  for (scheduler::ProfilePoint& point : profile.points) {
    CostedRows rows{module, profile.kind, point.tokens, profile.parallelism};
    point.linear = restated(stated, point.linear, rows);
    rows.is_attention = true;
    if (attends) point.attention = restated(stated, point.attention, rows);
  }
}

}  // namespace

void state_costs(StatedCosts stated) { all_stated().add(std::move(stated)); }

scheduler::Profile with_stated_costs(const ModelGraph& graph,
                                     const std::vector<ModuleConfig>& modules,
                                     scheduler::Profile profile) {
  for (const ModuleSpec& module : graph.modules) {
    const ModuleConfig* config = config_of(module, modules);
    const StatedCosts* stated = config != nullptr ? stated_of(config->family) : nullptr;
    if (stated == nullptr || !stated->costs) continue;
    // A kind of layer begins with its module's name: no other module has layers of it.
    for (scheduler::LayerProfile& entry : profile.profiles)
      if (entry.kind.starts_with(module.name + ".")) restate(*stated, *config, entry);
  }
  return profile;
}

void note_held_bytes(const std::vector<ModuleConfig>& modules, ModelGraph& graph) {
  for (ModuleSpec& module : graph.modules) {
    const ModuleConfig* config = config_of(module, modules);
    const StatedCosts* stated = config != nullptr ? stated_of(config->family) : nullptr;
    if (stated == nullptr || !stated->holds) continue;
    const std::string function = called("holds", *stated);
    for (LayerSpec& layer : module.layers) {
      layer.held_bytes =
          plugins::call_user(function, [&] { return stated->holds(layer, *config); }).count();
      if (layer.held_bytes < 0)
        throw UserFault(function, "says " + std::to_string(layer.held_bytes) + " bytes of layer '" +
                                      layer.name + "'; bytes are not below zero");
    }
  }
}

std::vector<std::int32_t> kinds_by_module(const ModelGraph& graph,
                                          const std::vector<ModuleConfig>& modules) {
  const auto all = all_stated().all();
  std::vector<std::int32_t> kinds(graph.modules.size());
  std::set<std::int32_t> met;
  for (std::size_t m = 0; m < kinds.size(); ++m) {
    if (ModuleId{m} == graph.llm()) continue;
    const ModuleConfig* config = config_of(graph.modules[m], modules);
    const StatedCosts* stated = config != nullptr ? stated_of(config->family) : nullptr;
    if (stated == nullptr) continue;
    kinds[m] = static_cast<std::int32_t>(std::ranges::find(all, stated) - all.begin()) + 1;
    met.insert(kinds[m]);
  }
  if (met.size() < 2) kinds.clear();
  return kinds;
}

}  // namespace troupe::engine
