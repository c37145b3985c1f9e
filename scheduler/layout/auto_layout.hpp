// Chooses where every layer lives when the job leaves that open (`parallel.mode = "auto"`), and
// says why.
//
// Pure and seeded: every process that sees the same request makes the same plan. Candidates are
// numbers of pipelines, forms of a pipeline (encoders apart or on the llm's devices, side by side
// or one after another), module groups with numbers of replicas of their own (3 encoders beside 2
// llms; under schedules of phases also 4 encoders on the devices of 2 llms) and tensor and context
// degrees where the profile has them; layers are cut frozen-aware.
// What is compared is the step time of the *simulator* over seeded batches of the sampled shapes,
// cut into microbatches as the engine does, and the memory it finds on each device.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/vocabulary/hand_layout.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/route.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/cost/cost_model.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/encoder_placement.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::scheduler {

/// What the user has fixed for one module (`[parallel.NAME]`).
struct ModulePins {
  std::optional<std::int32_t> tp, cp;  ///< Devices per stage: tp x cp.
  std::optional<std::int32_t> pp;      ///< Stages per pipeline that hold layers of it.
  std::optional<std::int32_t> dp;      ///< Replicas; equal ones of all modules are pipelines.
};

struct PredictedStep;

/// Predicts steps of a layout in a way of its own.
using LayoutJudge = std::function<Result<PredictedStep>(const ParallelPlan& plan)>;

struct AutoLayoutRequest {
  const CostModel* model = nullptr;        ///< Outlives the call. Never null.
  std::vector<SampleShape> samples;        ///< Drawn from the data; at least one.
  ClusterShape cluster;                    ///< Real nodes and devices.
  Bytes device_memory;                     ///< Of one device; 0: not limited.
  std::map<std::string, ModulePins> pins;  ///< By module name.
  std::int64_t global_batch = 1;           ///< Samples per step.
  std::int64_t microbatches = 1;           ///< Mean per pipeline and step.
  Schedule schedule;
  std::optional<Route> boundary;  ///< Of rows between module groups; none: what takes least.
  /// Microbatches that a stage may have in flight, of a schedule of phases; 0: as memory allows.
  std::int32_t max_in_flight = 0;
  /// What encoders keep is in host memory meanwhile, of a schedule of phases; the model itself says
  /// which of their moments and parameters are (`ModuleSpec`).
  bool offload_encoders = false;
  /// Nodes that may be lost and leave a holder of everything: standby holders, on idle devices too,
  /// are part of every candidate, its memory and its time.
  std::int32_t fault_tolerance = 0;
  /// Nodes behind those of the cluster that only stand by: `first_layout` adds what they keep.
  std::int32_t spares = 0;
  /// Whether there is room for a plan with what they keep, besides in its step; empty: there is.
  std::function<Status(const ParallelPlan&)> fits_spares = {};
  /// Per module the kind of stages that runs it, as `cut_by_kinds` takes them; empty: no stage of a
  /// layout can have layers of two. A device then has a stage of each.
  std::vector<std::int32_t> stage_kinds = {};
  PredictionOptions prediction;
  /// True: stages of several devices (every tp, cp the profile has) and idle devices are allowed,
  /// as for a cluster that is only planned for. False: what the engine runs, one device per stage
  /// and no device without one.
  bool planned_only = false;
  bool one_number = false;  ///< True: no numbers of replicas of their own for module groups.
  std::uint64_t seed = 0;   ///< Of the batches.
  /// Has the last word among the best of each kind of layout, which the search has found with
  /// batches cut in order: how the job really cuts them, at the price of planning. May be empty. A
  /// layout that it calls infeasible does not fit.
  LayoutJudge judge;
};

/// What the simulator says of a layout: means over the batches, largest memory.
struct PredictedStep {
  double step_ms = 0;
  double bubble = 0;
  std::vector<double> stage_ms;           ///< Per stage.
  std::vector<double> stage_bubble;       ///< Per stage.
  std::vector<double> peak_memory_bytes;  ///< Per device of the plan.
  std::vector<double> peak_host_bytes;    ///< Per device: of it in host memory meanwhile.
};

/// Why something was chosen: `2 pipelines` | `time per step with 1: +19 %; 4: does not fit`.
struct LayoutReason {
  std::string choice;
  std::string why;
};

/// The best layout whose encoders stand otherwise beside the llm than the chosen one's.
struct OtherPlacement {
  EncoderPlacement placement = EncoderPlacement::apart;
  bool fits = true;    ///< Into the memory of every device.
  double step_ms = 0;  ///< Mean, compared in the same way as `AutoLayout::placed_ms`.
};

struct AutoLayout {
  HandLayout layout;  ///< As `[[parallel.pipelines]]` or `[[parallel.replicas]]` writes it.
  ParallelPlan plan;  ///< Placed by `place_by_hand`, without devices that idle.
  PredictedStep predicted;
  /// Where module groups have numbers of their own: the step of the best layout with one number for
  /// all, compared in the same way; none where pins exclude it or none fits.
  std::optional<double> one_number_ms;
  double placed_ms = 0;  ///< The mean step that the layout was chosen by.
  /// None where no other was found, and for a model of the llm alone.
  std::optional<OtherPlacement> other_placement;
  std::vector<LayoutReason> reasons;
  std::int64_t simulated = 0;  ///< Layouts that were scored by the simulator.
  std::int64_t judged = 0;  ///< Of these, by the request's judge, which `predicted` is then from.
};

/// Finds the layout with the least predicted step time that fits and keeps all pins.
///
/// Two searches, over layouts with one number of replicas for all modules and over those in which
/// module groups have numbers of their own (replica_candidates.hpp), as far as pins allow them;
/// under schedules of phases a third one over the latter with encoders on the llm's devices.
/// Numbers of their own are chosen where one number does not fit, or where they save
/// `kWorthNumbers` of the step (if they take more devices `kWorthDevices`): pipelines can be cut
/// anew when nodes are lost. So the choice never takes longer than the best layout with one number.
///
/// The forms are those of `layout_shapes.hpp`, each with balanced cuts; the most promising by their
/// slowest device and longest path are simulated, and the best are refined by moving cuts, all of
/// them where a pipeline has few. With a judge the best `kJudgedPerKind` of each number of
/// pipelines, form and degrees are compared by it, `kJudged` in all, and `kJudgedNumbers` with
/// numbers of their own. Where devices may stay idle,
/// the layout with the fewest of them is chosen among those that take at most `kWorthDevices`
/// longer than the fastest. Ties: the cuts that share out work more evenly, then the candidate
/// found first (fewer pipelines, order of forms). Cost: bounded by `kAutoLayoutActionsMax`
/// simulated actions besides a full step of each search, and four more that promise to be shorter;
/// a model of 20 layers on 4 devices takes milliseconds, 1,024 devices a third of a second, in
/// phases half of one.
///
/// Errors:
/// - invalid_argument: no samples, counts below one, an unknown schedule or a pin of an unknown
///   module (nearest name given), a degree below one.
/// - not_found: a pinned (tp, cp) has no profile; the message names those there are.
/// - as the judge, other than infeasible.
/// - infeasible: more than `kAutoLayoutLayersMax` layers; pins that contradict each other or the
///   cluster, as two numbers for an encoder and its projector, no more nodes than
///   `fault_tolerance`, more devices than the batch and the layers can use, a layer larger than a
///   device, or nothing fits into memory. The message names the rule that failed, the fix the
///   nearest choice that works.
Result<AutoLayout> auto_layout(const AutoLayoutRequest& request);

/// What the simulator says of one step of any plan: the costs of `prediction` over batches drawn
/// like those of `auto_layout`. Used to show layouts by hand beside chosen ones.
///
/// Errors: as `plan_iteration`, `predicted_costs` and `simulate`.
Result<PredictedStep> predict_step(const ParallelPlan& plan, const AutoLayoutRequest& request);

/// `count` samples drawn with a seed, without repetition while there are enough.
/// REQUIRES: samples not empty, count >= 0.
std::vector<SampleShape> draw_batch(const std::vector<SampleShape>& samples, std::int64_t count,
                                    std::uint64_t seed);

inline constexpr double kAutoLayoutActionsMax = 2.5e5;
inline constexpr std::size_t kJudged = 8;
inline constexpr std::size_t kJudgedPerKind = 2;
inline constexpr std::size_t kJudgedNumbers = 4;
/// Share of a step that numbers of their own must save.
inline constexpr double kWorthNumbers = 0.02;
inline constexpr double kWorthDevices = 0.05;  ///< Share of a step that more devices must save.
inline constexpr std::size_t kAutoLayoutLayersMax = 4096;  ///< Of the whole model.

}  // namespace troupe::scheduler
