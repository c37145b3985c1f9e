#include <algorithm>

#include "models/family/registry.hpp"
#include "runtime/job/check_job.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::job {

namespace {

using Modules = std::vector<ModuleConfig>;

const ModuleConfig* find(const Modules& modules, const std::string& name) {
  for (const auto& module : modules)
    if (module.name == name) return &module;
  return nullptr;
}

/// The only llm, or nullptr after a problem.
const ModuleConfig* only_llm(const Modules& modules, Findings& findings) {
  std::vector<const ModuleConfig*> found;
  for (const auto& module : modules)
    if (module.kind == ModuleKind::llm) found.push_back(&module);
  if (found.size() == 1) return found.front();
  if (found.empty())
    findings.add_at("modules", "modules: none of them is the llm",
                    "add [modules.llm] with kind = \"llm\"");
  else
    findings.add_at(
        "modules." + found[1]->name,
        "modules." + found[1]->name + ": both it and " + found[0]->name + " are the llm",
        "a model has one: remove the other");
  return nullptr;
}

/// Where output goes when the job file does not say: an encoder's to the projector named after it,
/// all else to the llm.
void fill_next(Modules& modules, const std::string& llm) {
  for (auto& module : modules) {
    if (!module.next.empty() || module.kind == ModuleKind::llm) continue;
    const auto* projector = find(modules, module.name + "_projector");
    const bool has_own = module.kind == ModuleKind::encoder && projector != nullptr;
    module.next = has_own ? projector->name : llm;
  }
}

/// One edge of the graph; false after a problem.
bool check_next(const Modules& modules, const ModuleConfig& module, Findings& findings) {
  const std::string path = "modules." + module.name + ".next";
  const auto fail = [&](std::string message, std::string fix) {
    findings.add_at(path, path + ": " + std::move(message), std::move(fix));
    return false;
  };
  if (module.kind == ModuleKind::llm)
    return module.next.empty() || fail("the llm is the last module", "remove next");
  const auto* target = find(modules, module.next);
  if (target == nullptr) {
    std::vector<std::string> names;
    for (const auto& other : modules) names.push_back(other.name);
    const auto near = nearest_word(module.next, names);
    return fail("no module is called '" + module.next + "'",
                near.empty() ? "name a module of [modules]" : "did you mean \"" + near + "\"?");
  }
  if (target->kind == ModuleKind::teacher)
    return fail("'" + module.next + "' is a teacher; teachers read text, not another module",
                "name a projector or the llm");
  if (module.kind == ModuleKind::teacher && target->kind != ModuleKind::llm)
    return fail("a teacher's rows go to the llm's last layer", "name the llm, or leave next out");
  if (target->kind == ModuleKind::encoder)
    return fail("'" + module.next + "' is an encoder; encoders read media, not another module",
                "name a projector or the llm");
  return true;
}

/// Projectors take the output of exactly one module: its width is theirs.
bool check_inputs(const Modules& modules, Findings& findings) {
  bool good = true;
  for (const auto& module : modules) {
    if (module.kind != ModuleKind::projector) continue;
    std::vector<std::string> feeders;
    for (const auto& other : modules)
      if (other.next == module.name) feeders.push_back(other.name);
    if (feeders.size() == 1) continue;
    good = false;
    const std::string path = "modules." + module.name;
    if (feeders.empty())
      findings.add_at(path, path + ": nothing feeds this projector",
                      "set next = \"" + module.name + "\" in an encoder, or remove it");
    else
      findings.add_at(path, path + ": " + feeders[0] + " and " + feeders[1] + " both feed it",
                      "give each encoder a projector of its own");
  }
  return good;
}

/// A cycle among `rest`, where something of `rest` feeds every module but the llm.
std::string cycle_of(const Modules& rest) {
  const auto feeder_of = [&](const ModuleConfig* module) {
    for (const auto& other : rest)
      if (other.next == module->name) return &other;
    return module;
  };
  // Going upstream never ends, so after as many steps as there are modules it runs in a cycle.
  const ModuleConfig* start = rest.front().kind == ModuleKind::llm ? &rest.back() : &rest.front();
  for (std::size_t i = 0; i < rest.size(); ++i) start = feeder_of(start);
  std::string text = start->name;
  for (const auto* at = find(rest, start->next); at != start; at = find(rest, at->next))
    text += " -> " + at->name;
  return text + " -> " + start->name;
}

/// Topological order, ties in the order given; false and a problem where there is a cycle.
bool sort(Modules& modules, Findings& findings) {
  Modules sorted;
  Modules rest = modules;
  while (!rest.empty()) {
    // The first module that nothing left feeds, the llm only when it is alone.
    const auto ready = std::find_if(rest.begin(), rest.end(), [&](const ModuleConfig& module) {
      if (module.kind == ModuleKind::llm) return rest.size() == 1;
      return std::none_of(rest.begin(), rest.end(),
                          [&](const auto& other) { return other.next == module.name; });
    });
    if (ready == rest.end()) {
      const auto cycle = cycle_of(rest);
      const auto path = "modules." + cycle.substr(0, cycle.find(' ')) + ".next";
      findings.add_at(path, path + ": a cycle: " + cycle, "every module must lead to the llm");
      return false;
    }
    sorted.push_back(std::move(*ready));
    rest.erase(ready);
  }
  modules = std::move(sorted);
  return true;
}

}  // namespace

bool check_modules(Modules& modules, Findings& findings) {
  const auto* llm = only_llm(modules, findings);
  if (llm == nullptr) return false;
  fill_next(modules, std::string(llm->name));
  bool good = true;
  for (const auto& module : modules) good = check_next(modules, module, findings) && good;
  good = good && sort(modules, findings);
  good = good && check_inputs(modules, findings);
  if (std::all_of(modules.begin(), modules.end(), [](const auto& m) { return m.freeze; }))
    findings.add_at("modules." + modules.back().name + ".freeze",
                    "modules: all are frozen, nothing would be trained",
                    "set freeze = false in one of them");
  return good;
}

}  // namespace troupe::job
