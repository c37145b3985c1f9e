#include "engine/execution/stage_kinds.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/execution/model_stage.hpp"
#include "engine/iteration/stated_costs.hpp"
#include "models/family/registry.hpp"
#include "runtime/observe/plan_words.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/named_list.hpp"
#include "runtime/vocabulary/nearest_word.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::engine {

namespace {

NamedList<StageKind>& kinds() {
  static NamedList<StageKind> all;
  return all;
}

Error blamed(const std::string& name, const std::string& what, const std::string& fix) {
  return {Errc::invalid_argument, "stage kind '" + name + "' " + what, "plugins", fix};
}

/// The first family that both take; empty: there is none. No families: all.
std::string shared_family(const StageKind& a, const StageKind& b) {
  if (a.families.empty()) return b.families.empty() ? "every family" : b.families.front();
  if (b.families.empty()) return a.families.front();
  const auto both = std::ranges::find_first_of(a.families, b.families);
  return both == a.families.end() ? "" : *both;
}

std::set<std::string> families_of(const Stage& stage, const ModelGraph& model,
                                  const std::vector<ModuleConfig>& modules) {
  std::set<std::string> families;
  for (const LayerRun& run : stage.runs) {
    const auto module = std::ranges::find(modules, model.at(run.module).name, &ModuleConfig::name);
    if (module != modules.end()) families.insert(module->family);
  }
  return families;
}

/// nullptr: the stage is the engine's own.
Result<const StageKind*> kind_of(const Stage& stage, const ModelGraph& model,
                                 const std::vector<ModuleConfig>& modules) {
  const auto families = families_of(stage, model, modules);
  const StageKind* found = nullptr;
  for (const StageKind* kind : kinds().all()) {
    const bool takes = kind->families.empty() ||
                       std::ranges::any_of(kind->families, [&](const std::string& family) {
                         return families.contains(family);
                       });
    if (!takes) continue;
    if (found != nullptr)
      return Error{
          Errc::infeasible,
          "a stage has layers of two stage kinds, '" + found->name + "' and '" + kind->name + "'",
          "parallel", "cut the layout between their modules"};
    found = kind;
  }
  return found;
}

}  // namespace

Status register_stage(StageKind kind) {
  const std::string name = kind.name;
  if (!is_list_name(name))
    return blamed(name, "has no proper name", "use small letters, digits, `-` and `_`");
  if (!kind.make) return blamed(name, "has no `make`", "set it");
  for (const StageKind* other : kinds().all())
    if (const auto family = shared_family(*other, kind); !family.empty() && other->name != name)
      return blamed(name, "wants " + family + ", which '" + other->name + "' has already",
                    "give them families of their own, or load one of them");
  StatedCosts stated{name, kind.families, kind.costs, kind.holds};
  if (!kinds().add(std::move(kind)))
    return blamed(name, "is there already", "choose another name, or register it once");
  state_costs(std::move(stated));
  return Done{};
}

std::vector<std::string> stage_kind_names() {
  std::vector<std::string> names;
  for (const StageKind* kind : kinds().all()) names.push_back(kind->name);
  return names;
}

Result<std::unique_ptr<StageProgram>> built_in_stage(const StageRequest& request) {
  auto stage = ModelStage::create(request.plan, request.id, request.modules, request.options,
                                  request.store, request.masks);
  if (!stage.ok()) return std::move(stage).error();
  return std::unique_ptr<StageProgram>(std::move(stage).value());
}

Result<std::unique_ptr<StageProgram>> make_stage(const StageRequest& request) {
  const auto kind = kind_of(request.plan.at(request.id), request.plan.model, request.modules);
  if (!kind.ok()) return kind.error();
  if (kind.value() == nullptr) return built_in_stage(request);
  const auto named = [&](Error error) {
    error.message = "stage kind '" + kind.value()->name + "' " + error.message;
    return error;
  };
  auto made = call_guarded(Errc::internal, [&] {
    const plugins::CallingUser calling("`make` of stage kind '" + kind.value()->name + "'");
    return kind.value()->make(request);
  });
  if (!made.ok()) return named(std::move(made).error());
  if (made.value() == nullptr) return named({Errc::internal, "makes no stage", {}, {}});
  return made;
}

std::string stage_kind_of(const ParallelPlan& plan, StageId id,
                          const std::vector<ModuleConfig>& modules) {
  const auto kind = kind_of(plan.at(id), plan.model, modules);
  return kind.ok() && kind.value() != nullptr ? kind.value()->name : "";
}

std::vector<std::string> stage_kind_lines(const ParallelPlan& plan,
                                          const std::vector<ModuleConfig>& modules) {
  std::vector<std::string> lines;
  for (const StageKind* kind : kinds().all()) {
    std::size_t count = 0;
    std::set<LayerId> layers;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      if (stage_kind_of(plan, StageId{s}, modules) != kind->name) continue;
      ++count;
      for (const LayerRun& run : plan.stages[s].runs)
        for (auto layer = run.layers.begin; layer < run.layers.end; ++layer)
          layers.insert({run.module, layer});
    }
    if (count == 0) continue;
    lines.push_back("stage kind '" + kind->name + "' runs " + std::to_string(count) + " of " +
                    std::to_string(plan.stages.size()) +
                    " stages: " + observe::layer_words(plan.model, layers) +
                    (kind->costs || kind->holds ? ", planned by costs that it states" : ""));
  }
  return lines;
}

bool offloads(const ParallelPlan& plan, StageId id, const std::vector<ModuleConfig>& modules) {
  if (plan.is_llm(id)) return false;
  const auto kind = kind_of(plan.at(id), plan.model, modules);
  return kind.ok() && (kind.value() == nullptr || kind.value()->offloads);
}

Status check_stage_families() {
  std::vector<std::string> known;
  for (const auto* family : models::families()) known.push_back(family->name);
  for (const StageKind* kind : kinds().all())
    for (const std::string& family : kind->families)
      if (models::find_family(family) == nullptr)
        return blamed(kind->name, "is for family '" + family + "', which is not there",
                      name_fix(family, known));
  return Done{};
}

Status check_stage_kinds(const ParallelPlan& plan, const std::vector<ModuleConfig>& modules,
                         bool puts_away) {
  if (auto known = check_stage_families(); !known.ok()) return known;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const auto kind = kind_of(plan.stages[s], plan.model, modules);
    if (!kind.ok()) return kind.error();
    if (puts_away && kind.value() != nullptr && !kind.value()->offloads && !plan.is_llm(StageId{s}))
      return Error{Errc::infeasible,
                   "stage kind '" + kind.value()->name +
                       "' keeps what a forward leaves on the device, and that of encoders is to go "
                       "to host memory",
                   "scheduler.offload_encoders",
                   "write \"moments\" or \"off\"; or have its stages override `offload` and "
                   "`fetch` (a StageFilter has them), and set `offloads` of the kind"};
  }
  return Done{};
}

}  // namespace troupe::engine
