// An encoder's family from plain functions of its configuration, for families whose rows do not
// depend on their neighbours.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/family/family.hpp"
#include "models/layer.hpp"

namespace troupe::models {

/// The members of `Family` as functions of a typed configuration; `module`: the module's name.
template <class Config>
struct EncoderParts {
  void (*fields)(ConfigFields&, Config&);  ///< As `Family::fields`.
  ModuleSizes (*sizes)(const Config&);     ///< As `Family::sizes`.
  MediaInput (*media)(const Config&);      ///< As `Family::media`.
  /// As `Family::describe`.
  ModuleDescription (*describe)(const std::string& module, const Config&);
  /// As `Family::works`.
  std::vector<LayerWork> (*works)(const std::string& module, const Config&);
  /// As `Family::make`.
  std::unique_ptr<Layer> (*make)(const Config&, int index, std::vector<Parameter>);
  /// As `Family::problems`; may be left out.
  std::vector<ConfigProblem> (*problems)(const Config&) = nullptr;
  /// As `Family::update`; may be left out where no parameter has one.
  void (*update)(const Config&, const ParameterUpdate&) = nullptr;
};

/// An encoder's family of this name. REQUIRES: all functions but `problems` and `update`
/// are set.
template <class Config>
Family encoder_family(std::string name, const EncoderParts<Config>& parts) {
  Family family{std::move(name), ModuleKind::encoder, Config{}};
  family.fields = fields_of(parts.fields);
  family.sizes = asked(parts.sizes);
  family.media = asked(parts.media);
  if (parts.problems != nullptr) family.problems = asked(parts.problems);
  family.describe = [of = parts.describe](const ModuleConfig& module, const Widths&) {
    return of(module.name, module.config.as<Config>());
  };
  family.works = [of = parts.works](const ModuleConfig& module, const Widths&) {
    return of(module.name, module.config.as<Config>());
  };
  family.make = [of = parts.make](const ModuleConfig& module, int index,
                                  std::vector<Parameter> parameters) {
    return of(module.config.as<Config>(), index, std::move(parameters));
  };
  if (parts.update != nullptr)
    family.update = [of = parts.update](const ModuleConfig& module, const ParameterUpdate& update) {
      of(module.config.as<Config>(), update);
    };
  return family;
}

}  // namespace troupe::models
