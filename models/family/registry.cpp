#include "models/family/registry.hpp"

#include "models/family/answer_faults.hpp"
#include "models/family/built_in.hpp"
#include "models/family/guarded_family.hpp"
#include "models/family/widths.hpp"
#include "runtime/vocabulary/named_list.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::models {

namespace {

std::string kind_name(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::encoder: return "encoder";
    case ModuleKind::projector: return "projector";
    case ModuleKind::llm: return "llm";
    case ModuleKind::teacher: return "teacher";
  }
  return "?";
}

NamedList<Family>& registry() {
  static NamedList<Family> all(built_in_families());
  return all;
}

std::string family_names() {
  std::string names;
  for (const auto* family : families()) names += (names.empty() ? "" : ", ") + family->name;
  return names;
}

Error refused(const Family& family, const std::string& message, const std::string& fix) {
  return {Errc::invalid_argument, "family '" + family.name + "': " + message, {}, fix};
}

/// A member that is not there, or nullptr.
const char* missing_member(const Family& family) {
  if (family.defaults == FamilyConfig{}) return "defaults";
  if (!family.fields) return "fields";
  if (!family.sizes) return "sizes";
  if (!family.describe) return "describe";
  if (!family.works) return "works";
  if (family.kind == ModuleKind::encoder && !family.media) return "media";
  if (!family.make) return "make";
  return nullptr;
}

/// The family's description of a module, where its other answers agree with it; else what they say
/// against each other, or the words of one that throws. The message names the family.
Result<ModuleDescription> agreed_description(const Family& family, const ModuleConfig& module,
                                             const Widths& widths) {
  const auto refuse = [&](const std::string& fault) { return refused(family, fault, {}); };
  try {
    if (auto fault = media_fault(family, module.config); !fault.empty()) return refuse(fault);
    auto description = family.describe(module, widths);
    if (auto fault = answers_fault(family, module, widths, description); !fault.empty())
      return refuse(fault);
    return description;
  } catch (const UserFault& fault) {
    return fault.error();
  }
}

/// Whether the answers for the defaults agree with each other.
Status check_answers(const Family& family) {
  ModuleConfig module;
  module.name = "module", module.kind = family.kind, module.family = family.name;
  module.config = family.defaults;
  if (const auto problems = problems_of(family, module.config); !problems.empty())
    return refused(family, "its defaults are refused: " + problems.front().message,
                   "correct `defaults` or `problems`");
  if (const auto agreed = agreed_description(family, module, {64, 128}); !agreed.ok())
    return Error{agreed.error().code, agreed.error().message, {}, "let its answers agree"};
  return Done{};
}

}  // namespace

Status register_family(Family family) {
  if (!is_list_name(family.name))
    return refused(family, "no name for a job file", "use small letters, digits, `-` and `_`");
  if (const auto* member = missing_member(family))
    return refused(family, std::string("`") + member + "` is not set", "set it");
  family = guarded(std::move(family));
  try {
    if (auto checked = check_answers(family); !checked.ok()) return checked;
  } catch (const UserFault& fault) {
    return fault.error();
  }
  const auto name = family.name;
  if (!registry().add(std::move(family)))
    return Error{Errc::invalid_argument,
                 "there is a family '" + name + "' already",
                 {},
                 "choose another name, or register it once"};
  return Done{};
}

std::vector<const Family*> families() { return registry().all(); }

const Family* find_family(const std::string& name) { return registry().find(name); }

Error config_error(const ModuleConfig& module, std::string field, std::string message,
                   std::string fix) {
  return {Errc::invalid_argument, std::move(message), "modules." + module.name + "." + field,
          std::move(fix)};
}

Result<const Family*> family_of(const ModuleConfig& module) {
  const auto* family = find_family(module.family);
  if (family == nullptr)
    return config_error(module, "family", "there is no family '" + module.family + "'",
                        "choose one of " + family_names());
  if (family->kind != module.kind)
    return config_error(module, "kind",
                        "family '" + module.family + "' is of kind '" + kind_name(family->kind) +
                            "', not '" + kind_name(module.kind) + "'",
                        "set kind = \"" + kind_name(family->kind) + "\"");
  if (!module.config.is_like(family->defaults))
    return config_error(module, "config",
                        "these are not the fields of family '" + module.family + "'",
                        "give the fields of that family, or another family");
  return family;
}

const Family& checked_family(const ModuleConfig& module) { return *find_family(module.family); }

MediaInput media_input(const ModuleConfig& module) {
  if (module.kind != ModuleKind::encoder) return {};
  const auto family = family_of(module);
  return family ? family.value()->media(module.config) : MediaInput{};
}

Result<ModuleDescription> describe_module(const ModuleConfig& module,
                                          const std::vector<ModuleConfig>& all) {
  const auto family = family_of(module);
  if (!family) return family.error();
  for (const auto& problem : problems_of(*family.value(), module.config))
    if (!problem.only_with_data)
      return config_error(module, "config." + problem.key, problem.message, problem.fix);
  const auto widths = widths_around(module, all);
  const auto input = input_width(module, all), output = output_width(module, all);
  if (module.kind == ModuleKind::projector && (input < 1 || output < 1))
    return config_error(module, "config",
                        "the projector takes rows of " + std::to_string(input) +
                            " columns and hands on " + std::to_string(output) +
                            "; both must be at least 1",
                        "set `next` of the encoder before it to this module, or give the widths");
  auto agreed = agreed_description(*family.value(), module, widths);
  if (agreed.ok()) return agreed;
  return config_error(module, "family", agreed.error().message,
                      "correct the family for this configuration");
}

std::vector<LayerWork> module_works(const ModuleConfig& module,
                                    const std::vector<ModuleConfig>& all) {
  return checked_family(module).works(module, widths_around(module, all));
}

}  // namespace troupe::models
