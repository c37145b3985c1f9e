#include "models/family.hpp"

#include <array>

#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::models {

namespace {

const std::array kFamilies = {&kQwen2Vl, &kWhisper, &kMlp, &kLlama};

std::string_view kind_name(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::encoder: return "encoder";
    case ModuleKind::projector: return "projector";
    case ModuleKind::llm: return "llm";
  }
  return "?";
}

std::string family_names() {
  std::string names;
  for (const auto* family : kFamilies)
    names += (names.empty() ? "" : ", ") + std::string(family->name);
  return names;
}

}  // namespace

Layer::~Layer() = default;

Error config_error(const ModuleConfig& module, std::string field, std::string message,
                   std::string fix) {
  return {Errc::invalid_argument, std::move(message), "modules." + module.name + "." + field,
          std::move(fix)};
}

Result<const Family*> find_family(const ModuleConfig& module) {
  for (const auto* family : kFamilies) {
    if (family->name != module.family) continue;
    if (family->kind != module.kind)
      return config_error(module, "kind",
                          "family '" + module.family + "' is of kind '" +
                              std::string(kind_name(family->kind)) + "', not '" +
                              std::string(kind_name(module.kind)) + "'",
                          "set kind = \"" + std::string(kind_name(family->kind)) + "\"");
    if (family->config_index != module.config.index())
      return config_error(module, "config",
                          "these are not the fields of family '" + module.family + "'",
                          "give the fields of that family, or another family");
    return family;
  }
  return config_error(module, "family", "there is no family '" + module.family + "'",
                      "choose one of " + family_names());
}

}  // namespace troupe::models
