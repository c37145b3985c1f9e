#include <algorithm>
#include <map>

#include "models/family/registry.hpp"
#include "runtime/job/bind_job.hpp"
#include "runtime/job/section_reader.hpp"
#include "runtime/vocabulary/joined.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::job {

namespace {

std::vector<std::string> families_of(ModuleKind kind) {
  std::vector<std::string> names;
  for (const auto* family : models::families())
    if (family->kind == kind) names.push_back(family->name);
  return names;
}

/// The family that needs not be named: the only built-in one of its kind. One that is added later
/// does not change what a job file means.
std::string default_family(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::encoder:
    case ModuleKind::teacher: break;
    case ModuleKind::projector: return "mlp";
    case ModuleKind::llm: return "llama";
  }
  return {};
}

/// Fills family and config; nullptr: unknown, reported.
const models::Family* choose_family(ModuleConfig& module, const std::string& path,
                                    bool has_all_plugins, Findings& findings) {
  if (module.family.empty()) module.family = default_family(module.kind);
  const auto* family = models::find_family(module.family);
  if (family != nullptr && family->kind == module.kind) {
    module.config = family->defaults;
    return family;
  }
  if (!has_all_plugins) return nullptr;
  const auto names = families_of(module.kind);
  const auto near = nearest_word(module.family, names);
  const std::string fix =
      near.empty() ? "choose one of " + joined(names) : "did you mean \"" + near + "\"?";
  if (module.family.empty())
    findings.add_at(path, path + ": family is missing", fix);
  else
    findings.add_at(path + ".family",
                    path + ".family: '" + module.family +
                        "' is no family of this kind of module; there are " + joined(names),
                    fix);
  return nullptr;
}

bool is_name(const std::string& name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.front() >= 'a' && name.front() <= 'z' &&
         std::all_of(name.begin(), name.end(), good);
}

/// Names that mean something else in `[parallel]` or in a stage.
bool is_reserved(const std::string& name) {
  static const std::vector<std::string> taken{"mode",    "pipelines", "replicas", "node", "device",
                                              "devices", "tp",        "cp",       "all"};
  return std::find(taken.begin(), taken.end(), name) != taken.end();
}

/// What is wrong with a module without a kind: most likely its name, where another one is near.
std::string kind_fix(const std::string& name, const std::vector<std::string>& others) {
  const auto near = nearest_word(name, others);
  return near.empty() ? "write kind = \"encoder\", \"projector\", \"llm\" or \"teacher\""
                      : "did you mean modules." + near + "? (a module of its own needs a kind)";
}

/// One `[modules.NAME]`; nothing where its kind or family is unknown. `others`: modules with a
/// kind.
std::optional<ModuleConfig> bind_module(const Member& member,
                                        const std::vector<std::string>& others,
                                        bool has_all_plugins, Findings& findings) {
  ModuleConfig module;
  module.name = member.key;
  const std::string path = "modules." + member.key;
  SectionReader reader{&member.value, path, findings};
  if (!is_name(module.name) || is_reserved(module.name))
    findings.add_at(path, path + ": this cannot be the name of a module",
                    "use small letters, digits and _, but not mode, pipelines, replicas, node, "
                    "device, devices, tp, cp, all");
  if (!reader.is_given()) return std::nullopt;
  const auto problems_before = findings.problems.size();
  describe_module(reader, module);
  if (module.kind != ModuleKind::llm && reader.take("attention") != nullptr)
    findings.add_at(path + ".attention",
                    path +
                        ".attention: only the llm's attention can be chosen; encoders see all of "
                        "a picture or sound, projectors each row alone",
                    "remove it, or move it to the module with kind = \"llm\"");
  if (module.kind == ModuleKind::teacher) {
    if (member.value.find("freeze") != nullptr && !module.freeze)
      findings.add_at(path + ".freeze", path + ".freeze: a teacher does not train",
                      "leave freeze out: a teacher is frozen");
    module.freeze = true;
  }
  const Value* init = member.value.find("init");
  const auto* word = init == nullptr ? nullptr : std::get_if<std::string>(&init->data);
  if (word != nullptr && *word == "hf") {
    findings.add_at(path + ".init",
                    path + ".init: starting from Hugging Face weights is not there yet",
                    "name a run or a checkpoint, or leave it out", Errc::unavailable);
  } else if (word == nullptr || *word != "seed") {
    std::filesystem::path from;
    reader.input_path("init", from);
    module.init = from.string();
  }
  reader.take("init");
  bool usable = findings.problems.size() == problems_before;
  if (member.value.find("kind") == nullptr) {
    findings.add_at(path, path + ": kind is missing", kind_fix(member.key, others));
    usable = false;
  }
  if (reader.take("hf") != nullptr)
    findings.add_at(path + ".hf", path + ".hf: starting from Hugging Face weights is not there yet",
                    "remove it and describe the module by family and config", Errc::unavailable);
  const auto* family = usable ? choose_family(module, path, has_all_plugins, findings) : nullptr;
  const Value* config = reader.take("config");
  if (family != nullptr && module.attention != AttentionRule::causal && !family->takes_masks)
    findings.add_at(path + ".attention",
                    path + ".attention: family '" + module.family + "' attends causally only",
                    "write attention = \"causal\" or leave it out, or choose another family");
  if (family != nullptr) {
    SectionReader config_reader{config, path + ".config", findings};
    describe_config(config_reader, *family, module.config);
    config_reader.finish();
  }
  reader.finish();
  return family != nullptr ? std::optional(module) : std::nullopt;
}

}  // namespace

std::vector<ModuleConfig> bind_modules(const Value* modules, bool has_all_plugins,
                                       Findings& findings) {
  std::vector<ModuleConfig> bound;
  SectionReader reader{modules, "modules", findings};
  const auto members = reader.rest();
  std::vector<std::string> complete;
  for (const auto* member : members)
    if (member->value.find("kind") != nullptr) complete.push_back(member->key);
  for (const auto* member : members)
    if (auto module = bind_module(*member, complete, has_all_plugins, findings))
      bound.push_back(std::move(*module));
  return bound;
}

}  // namespace troupe::job
