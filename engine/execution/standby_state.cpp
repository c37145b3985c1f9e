#include "engine/execution/standby_state.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "models/factory.hpp"

namespace troupe::engine {

namespace {

/// The parameters of a group, in the order of the model: that of their layer.
std::vector<ParameterId> parameters_of(const ParameterGroup& group,
                                       const std::vector<ParameterInfo>& all) {
  std::vector<ParameterId> own;
  for (std::size_t p = 0; p < all.size(); ++p) {
    const ParameterInfo& info = all[p];
    if (!info.trains) continue;
    const bool belongs =
        group.tied ? info.name == group.name
                   : info.uses.size() == 1 && info.uses.front() == group.uses.front().layer;
    if (belongs) own.push_back(ParameterId{p});
  }
  return own;
}

/// As a stage's layer has it from `make_layer`.
models::UpdateRule rule_for(const ParameterInfo& info, const ParallelPlan& plan,
                            const std::vector<ModuleConfig>& modules) {
  if (!info.own_update) return {};
  const std::string& name = plan.model.at(info.uses.front().module).name;
  return models::update_rule(*std::ranges::find(modules, name, &ModuleConfig::name));
}

}  // namespace

Result<StandbyState> StandbyState::create(const ParallelPlan& plan, DeviceId device,
                                          const StateStore& store,
                                          const std::vector<ModuleConfig>& modules) {
  StandbyState made;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const ParameterGroup& group = plan.groups[g];
    if (std::find(group.holders.begin() + group.users(), group.holders.end(), device) ==
        group.holders.end())
      continue;
    auto& parameters =
        *made.parameters_.emplace_back(std::make_unique<std::vector<models::Parameter>>());
    for (const ParameterId id : parameters_of(group, store.parameters())) {
      const ParameterInfo& info = store.parameters()[id.index()];
      const at::Tensor value = store.held({id, StateKind::value, whole_box(info.shape)});
      if (!value.defined())
        return Error{
            Errc::internal, "a standby holder without its parameter '" + info.name + "'", {}, {}};
      parameters.push_back({info.name, value.detach(), false, rule_for(info, plan, modules)});
    }
    std::vector<models::Parameter*> handles;
    for (models::Parameter& parameter : parameters) handles.push_back(&parameter);
    auto optimizers = store.optimizers(handles);
    auto state = std::make_unique<ParameterShard>(std::move(handles), std::move(optimizers));
    if (state->elements() != group.elements)
      return Error{Errc::internal,
                   "group '" + group.name + "' has " + std::to_string(state->elements()) +
                       " elements in the store, " + std::to_string(group.elements) + " in the plan",
                   {},
                   {}};
    made.groups_[GroupId{g}] = std::move(state);
  }
  return made;
}

}  // namespace troupe::engine
