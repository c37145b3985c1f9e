// Stages of one's own: who runs layers in another way than `ModelStage` does registers a kind, as
// plug-ins do (runtime/plugins/entry_point.hpp).
//
// A kind decides how layers run, not what they compute: plans and `--reference` go by the layers,
// and so do costs, but for what it states of them; a job with it trains what it would have trained
// without. What is to be computed otherwise is a family's (models/family/family.hpp).

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/execution/stage_program.hpp"
#include "engine/iteration/kind_costs.hpp"
#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::models {
struct LayerOptions;
}

namespace troupe::engine {

class MaskStore;
class StateStore;

/// A stage that is to be made. What it refers to outlives the stage, but for `store`.
struct StageRequest {
  const ParallelPlan& plan;
  StageId id;
  const std::vector<ModuleConfig>& modules;  ///< Those that the plan's model was built from.
  const models::LayerOptions& options;
  const StateStore& store;  ///< Has the parameters; the stage shares its memory.
  /// Has masks of the llm's parts before they are needed; null: a stage makes its own.
  MaskStore* masks = nullptr;
};

/// A way to run stages.
struct StageKind {
  std::string name;  ///< For people: small letters, digits, `-` and `_`.
  /// Stages that have a layer of one of these families are made by it. Empty: all stages.
  std::vector<std::string> families;
  /// May build on `built_in_stage`, or on `StageLayers`. Errors end the job, with the kind's name.
  std::function<Result<std::unique_ptr<StageProgram>>(const StageRequest&)> make;
  /// Its stages have `offload` and `fetch`, as filters of the built-in one do (StageFilter). Where
  /// not, a job that puts encoders' activations away is refused before it begins.
  bool offloads = false;
  /// What its stages take for a layer of `families` where that is not what the layer takes: plans,
  /// the simulator and bounds of memory go by it. Layers of other families in its stages are
  /// planned as they are. Pure, and called from any thread.
  CostsOfKind costs = {};
  /// The same of bytes that its stages hold for a layer all the time.
  BytesOfKind holds = {};
};

/// Adds a kind for the rest of the process. Call it before a job is read. Thread-safe.
/// Errors: invalid_argument: a name that is taken or not spelled so, no function, or a family that
/// another kind has.
Status register_stage(StageKind kind);

/// In the order in which they came; none is built in.
std::vector<std::string> stage_kind_names();

/// The stage that the engine has by itself. Errors: as `ModelStage::create`.
Result<std::unique_ptr<StageProgram>> built_in_stage(const StageRequest& request);

/// The stage by the kind that has its families; without one the built-in stage.
/// Errors: what the kind says, under its name, and what it throws; infeasible: two kinds have
/// families of this stage.
Result<std::unique_ptr<StageProgram>> make_stage(const StageRequest& request);

/// The name of the kind that `make_stage` asks for a stage; empty: the engine's own makes it, or it
/// is refused.
std::string stage_kind_of(const ParallelPlan& plan, StageId id,
                          const std::vector<ModuleConfig>& modules);

/// Who runs stages that the engine does not, a line per kind: `stage kind 'frugal' runs 2 of 4
/// stages: vision, audio`, with the layers of all of them, and whether it states costs. Empty: the
/// engine runs all by itself.
std::vector<std::string> stage_kind_lines(const ParallelPlan& plan,
                                          const std::vector<ModuleConfig>& modules);

/// Whether what a stage keeps may go to host memory between forward and backward: the built-in
/// one's may, and of a kind what it says; never a stage's with layers of the llm, which no plan
/// asks.
bool offloads(const ParallelPlan& plan, StageId id, const std::vector<ModuleConfig>& modules);

/// A kind for a family that nobody has would run nothing, without a word.
/// Errors: invalid_argument: there is one; names the kind, the family and the nearest one.
Status check_stage_families();

/// Of the stages of a layout: those that `make_stage` would refuse for their families.
/// `puts_away`: encoders' activations go to host memory (`scheduler.offload_encoders`).
/// Errors: as `check_stage_families`; infeasible: as there, or a kind that cannot put them away;
/// the first one.
Status check_stage_kinds(const ParallelPlan& plan, const std::vector<ModuleConfig>& modules,
                         bool puts_away = false);

}  // namespace troupe::engine
