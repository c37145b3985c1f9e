// Families that are built on another one: what is not set anew is the other's. For plug-ins; the
// built-in families stand each by itself.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/built_in_layers.hpp"
#include "models/family/family.hpp"
#include "models/layer.hpp"

namespace troupe::models {

/// A family of this name whose modules are those of `base`, which stays as it is. `inner`: the
/// configuration of `base` in one of the new family; without it they are of the same type.
inline Family built_on(Family base, std::string name,
                       std::function<FamilyConfig(const FamilyConfig&)> inner = {}) {
  if (!inner) inner = [](const FamilyConfig& config) { return config; };
  const auto as_base = [inner, family = base.name](ModuleConfig module) {
    module.family = family;
    module.config = inner(module.config);
    return module;
  };
  Family made = base;
  made.name = std::move(name);
  made.sizes = [inner, of = base.sizes](const FamilyConfig& config) { return of(inner(config)); };
  if (base.problems)
    made.problems = [inner, of = base.problems](const FamilyConfig& config) {
      return of(inner(config));
    };
  if (base.media)
    made.media = [inner, of = base.media](const FamilyConfig& config) { return of(inner(config)); };
  made.describe = [as_base, of = base.describe](const ModuleConfig& module, const Widths& widths) {
    return of(as_base(module), widths);
  };
  made.works = [as_base, of = base.works](const ModuleConfig& module, const Widths& widths) {
    return of(as_base(module), widths);
  };
  if (base.update)
    made.update = [as_base, of = base.update](const ModuleConfig& module,
                                              const ParameterUpdate& update) {
      of(as_base(module), update);
    };
  // The built-in families' layers stand apart from them.
  made.make = [as_base, of = base.make](const ModuleConfig& module, int index,
                                        std::vector<Parameter> parameters) {
    const ModuleConfig own = as_base(module);
    return of ? of(own, index, std::move(parameters))
              : make_built_in(own, index, std::move(parameters));
  };
  return made;
}

/// The same with keys of its own beside those of `base`: `inner` is the member of `Config` that has
/// these, `fields` names the others.
template <class Config, class Inner>
Family built_on(const Family& base, std::string name, Inner Config::*inner,
                void (*fields)(ConfigFields&, Config&)) {
  Family made = built_on(base, std::move(name), [inner](const FamilyConfig& config) {
    return FamilyConfig(config.as<Config>().*inner);
  });
  Config defaults;
  defaults.*inner = base.defaults.as<Inner>();
  made.defaults = FamilyConfig(std::move(defaults));
  made.fields = [inner, fields, of = base.fields](ConfigFields& visitor, FamilyConfig& config) {
    Config values = config.as<Config>();
    FamilyConfig theirs(values.*inner);
    of(visitor, theirs);
    values.*inner = theirs.as<Inner>();
    fields(visitor, values);
    config = FamilyConfig(std::move(values));
  };
  return made;
}

/// Gives a family another last layer: `Last`, made from its configuration and the parameters that
/// the description has for it.
template <class Config, class Last>
void end_with(Family& family) {
  family.make = [sizes = family.sizes, others = family.make](
                    const ModuleConfig& module, int index,
                    std::vector<Parameter> parameters) -> std::unique_ptr<Layer> {
    if (index + 1 < sizes(module.config).layers)
      return others(module, index, std::move(parameters));
    return std::make_unique<Last>(module.config.as<Config>(), std::move(parameters));
  };
}

}  // namespace troupe::models
