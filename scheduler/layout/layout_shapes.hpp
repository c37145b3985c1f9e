// The forms that one pipeline may take on k devices, each with its layers cut so that the slowest
// device is as fast as possible: what `auto_layout` scores.
//
// Pure. Helper of auto_layout.cpp. A pipeline is made of tracks: layers that run one after the
// other, cut into segments on consecutive devices. Tracks may share devices.

#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/vocabulary/hand_layout.hpp"
#include "runtime/vocabulary/model_graph.hpp"
#include "scheduler/simulate/room_division.hpp"

namespace troupe::scheduler {

/// What each layer of the model weighs for one mean microbatch. Flattened in model order.
struct LayerWeights {
  std::vector<LayerId> layers;
  std::vector<double> work_ms;           ///< Forward, backward, moves to host memory and back.
  std::vector<double> state_bytes;       ///< Parameters, gradients, optimizer.
  std::vector<double> activation_bytes;  ///< Of one microbatch in flight, the largest drawn.
  /// Rows of its own side that come for it where its stage begins with it; the same.
  std::vector<double> arriving_bytes;
  /// Of the llm's layers rows that come from encoders; of others gradients that come back from it.
  std::vector<RowBytes> crossing_bytes;
  /// Where encoders offload what they keep: of outputs of their layers what stays of a microbatch
  /// with most where a run of a stage ends. Empty: they keep all of it on their devices.
  std::vector<double> staying_bytes = {};
  /// Of the state of layers, parameters that leave while the llm computes. Empty: none do.
  std::vector<double> leaving_bytes = {};

  /// Whether encoders have something in host memory while the llm computes.
  bool moves_to_host() const { return !staying_bytes.empty() || !leaving_bytes.empty(); }
};

/// Layers [cuts[i], cuts[i + 1]) of `layers` are on device `first_device` + i of the pipeline.
struct Track {
  std::vector<std::size_t> layers;  ///< Indices into `LayerWeights`, in execution order.
  std::int32_t first_device = 0;
  std::vector<std::int32_t> cuts;

  std::int32_t segments() const { return static_cast<std::int32_t>(cuts.size()) - 1; }
};

enum class PipelineForm : std::uint8_t {
  chain,           ///< All layers in one row; a cut may fall anywhere.
  encoders_first,  ///< Encoders one after another on devices before the llm's.
  side_by_side,    ///< Each encoder on devices of its own, all working at once.
  shared,          ///< Encoders on devices that also run a stage of the llm.
  replica,         ///< No pipeline: one copy of a module group, in one row.
};

/// `encoders before the llm`, as shown to users.
std::string describe(PipelineForm form);

/// One pipeline on devices 0..devices-1; where stages have several devices, on so many groups.
struct PipelineShape {
  PipelineForm form = PipelineForm::chain;
  std::int32_t devices = 1;
  std::vector<Track> tracks;
  /// Largest work of a device. In phases devices that have stages of both do the largest work in
  /// encoders and the llm's largest one after the other.
  double slowest_ms = 0;
  ModuleId phased_llm = {};  ///< The llm, where it and encoders take turns.
};

/// Devices of one stage on either side of the boundary.
struct StageWidths {
  std::int32_t encoder = 1;
  std::int32_t llm = 1;
};

/// What a caller looks for among shapes.
struct ShapeSearch {
  /// What a shape costs; nothing where it is of no use.
  std::function<std::optional<double>(const PipelineShape&)> cost;
  /// No shape of this form on so many devices whose slowest one works `slowest_ms` or more costs
  /// less. Never falls when `slowest_ms` grows.
  std::function<double(PipelineForm form, std::int32_t devices, double slowest_ms)> least_cost;
  std::size_t count = 1;  ///< How many are wanted, whatever their form.
  /// Left out is what cannot come below so many times (>= 1) the best `slowest_ms` of its form.
  double worth = std::numeric_limits<double>::infinity();
};

struct FoundShape {
  PipelineShape shape;
  double cost = 0;
};

/// The shapes of pipelines whose layers weigh so much; cuts that several shapes have in common are
/// made once. Single owner.
class PipelineShapes {
 public:
  /// `weights` outlives this. `phases`: encoders and llm take turns, so that neither is cut with
  /// regard to what the other does on a device.
  PipelineShapes(const ModelGraph& model, const LayerWeights& weights, StageWidths widths = {},
                 bool phases = false);
  ~PipelineShapes();
  PipelineShapes(const PipelineShapes&) = delete;
  PipelineShapes& operator=(const PipelineShapes&) = delete;

  /// Of all forms on exactly `devices` real devices the `count` that cost least, and the best of
  /// each form; cheapest first, ties by `slowest_ms`, then in order of forms. Shapes that cannot be
  /// among them by their `least_cost` are not cut. With unequal widths the two sides share no
  /// device. None if there are more devices than layers to share out.
  /// Cost: at most O(devices^2 x log layers) for each form.
  std::vector<FoundShape> best(std::int32_t devices, const ShapeSearch& search);

  /// One copy of these modules in a row, cut so that the slowest device is as fast as possible.
  /// REQUIRES: modules in model order; 1 <= devices <= their layers.
  PipelineShape replica(const std::vector<ModuleId>& modules, std::int32_t devices);

 private:
  struct Rows;
  class Drafts;

  const LayerWeights& weights_;
  const StageWidths widths_;
  const ModuleId phased_llm_;
  std::unique_ptr<Rows> rows_;
};

/// The same pipeline with a cut of a track moved; recomputes `slowest_ms`.
/// REQUIRES: the moved cut leaves every segment a layer.
PipelineShape with_cut(const PipelineShape& shape, const LayerWeights& weights, std::size_t track,
                       std::size_t cut, std::int32_t position);

/// The stages of a shape as a hand layout writes them; device d of the pipeline is device
/// `first_device` + d of a cluster of one-device nodes.
std::vector<HandStage> hand_stages(const ModelGraph& model, const LayerWeights& weights,
                                   const PipelineShape& shape, std::int32_t first_device);

/// Stages that hold layers of `module`; 0 in a replica of other modules.
std::int32_t stages_of(const PipelineShape& shape, const LayerWeights& weights, ModuleId module);

}  // namespace troupe::scheduler
