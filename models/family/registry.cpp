#include "models/family/registry.hpp"

#include <algorithm>
#include <deque>
#include <mutex>

#include "models/family/built_in.hpp"
#include "models/family/widths.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::models {

namespace {

std::string kind_name(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::encoder: return "encoder";
    case ModuleKind::projector: return "projector";
    case ModuleKind::llm: return "llm";
  }
  return "?";
}

class Registry {
 public:
  Registry() {
    for (auto& family : built_in_families()) families_.push_back(std::move(family));
  }

  bool add(Family family) {
    const std::lock_guard lock(mutex_);
    for (const auto& other : families_)
      if (other.name == family.name) return false;
    families_.push_back(std::move(family));
    return true;
  }

  std::vector<const Family*> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<const Family*> list;
    for (const auto& family : families_) list.push_back(&family);
    return list;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<Family> families_;  // Its elements never move.
};

Registry& registry() {
  static Registry all;
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
  if (!family.fields) return "fields";
  if (!family.sizes) return "sizes";
  if (!family.describe) return "describe";
  if (!family.works) return "works";
  if (family.kind == ModuleKind::encoder && !family.media) return "media";
  if (!family.make) return "make";
  return nullptr;
}

/// Whether the answers for the defaults agree with each other.
Status check_answers(const Family& family) {
  ModuleConfig module;
  module.name = "module", module.kind = family.kind, module.family = family.name;
  module.config = family.defaults;
  if (const auto problems = problems_of(family, module.config); !problems.empty())
    return refused(family, "its defaults are refused: " + problems.front().message,
                   "correct `defaults` or `problems`");
  const Widths widths{64, 128};
  const auto layers = static_cast<std::size_t>(std::max(0, family.sizes(module.config).layers));
  const auto description = family.describe(module, widths);
  const auto works = family.works(module, widths);
  if (layers == 0 || description.layers.size() != layers || works.size() != layers)
    return refused(family,
                   "`sizes` says " + std::to_string(layers) + " layers, `describe` lists " +
                       std::to_string(description.layers.size()) + " and `works` " +
                       std::to_string(works.size()),
                   "let all three agree, and have one at least");
  for (const auto& layer : description.layers)
    for (const auto& parameter : layer.parameters)
      if (!parameter.name.starts_with(module.name + ".") || parameter.elements() < 1)
        return refused(family,
                       "a parameter is called '" + parameter.name + "' and has " +
                           std::to_string(parameter.elements()) + " elements",
                       "begin its name with the module's and a dot, and give it a size");
  if (family.kind == ModuleKind::encoder && family.media(module.config).medium == Medium::none)
    return refused(family, "`media` names no medium", "say image or audio");
  return Done{};
}

}  // namespace

Status register_family(Family family) {
  if (family.name.empty())
    return Error{Errc::invalid_argument, "a family has no name", {}, "name it"};
  if (const auto* member = missing_member(family))
    return refused(family, std::string("`") + member + "` is not set", "set it");
  if (auto checked = check_answers(family); !checked.ok()) return checked;
  const auto name = family.name;
  if (!registry().add(std::move(family)))
    return Error{Errc::invalid_argument,
                 "there is a family '" + name + "' already",
                 {},
                 "choose another name, or register it once"};
  return Done{};
}

std::vector<const Family*> families() { return registry().all(); }

const Family* find_family(const std::string& name) {
  for (const auto* family : families())
    if (family->name == name) return family;
  return nullptr;
}

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
  if (module.kind == ModuleKind::projector &&
      (input_width(module, all) < 1 || output_width(module, all) < 1))
    return config_error(module, "config",
                        "the projector takes rows of " + std::to_string(input_width(module, all)) +
                            " columns and hands on " + std::to_string(output_width(module, all)) +
                            "; both must be at least 1",
                        "set `next` of the encoder before it to this module, or give the widths");
  return family.value()->describe(module, widths);
}

}  // namespace troupe::models
