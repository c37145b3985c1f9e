// Where every layer lives: pipelines, stages, devices, and who shares which parameters.
//
// A plan is a value. It is made by `scheduler/`, executed by the engine and by the simulator.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe {

/// A run of consecutive layers of one module.
struct LayerRun {
  ModuleId module;
  LayerRange layers;

  friend auto operator<=>(const LayerRun&, const LayerRun&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, LayerRun& x) {
    return f(x.module, x.layers);
  }
};

/// Layers that run together on one group of devices. A stage belongs to one side of the boundary:
/// its runs are either of encoders and projectors or of the llm, because the two sides may use
/// different microbatches. A job-file entry that names both becomes two stages on one device.
struct Stage {
  PipelineId pipeline;
  std::vector<LayerRun> runs;     ///< In execution order.
  std::vector<DeviceId> devices;  ///< tp x cp; one device today.

  friend bool operator==(const Stage&, const Stage&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Stage& x) {
    return f(x.pipeline, x.runs, x.devices);
  }
};

/// One complete copy of the model. Stages stand in topological order.
struct Pipeline {
  std::vector<StageId> stages;

  friend bool operator==(const Pipeline&, const Pipeline&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Pipeline& x) {
    return f(x.stages);
  }
};

/// A device: which node it is on and which of that node's devices it is.
struct DeviceSlot {
  NodeId node;
  std::int32_t local_index = 0;

  friend auto operator<=>(const DeviceSlot&, const DeviceSlot&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, DeviceSlot& x) {
    return f(x.node, x.local_index);
  }
};

/// One use of a parameter group: this stage holds the layer that uses it.
struct Holder {
  StageId stage;
  LayerId layer;

  friend auto operator<=>(const Holder&, const Holder&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Holder& x) {
    return f(x.stage, x.layer);
  }
};

/// Trainable parameters whose gradients are reduced together: those of one layer, or one tied
/// parameter. `holders` are in (pipeline, stage, layer) order; the first one sums in that order,
/// measures the squared norm and returns the result, so that the sum does not depend on arrival.
struct ParameterGroup {
  std::string name;   ///< Layer name, or the tied parameter's name.
  bool tied = false;  ///< True: exactly the tied parameter of this name; false: the layer's own.
  std::int64_t elements = 0;
  std::vector<Holder> holders;

  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ParameterGroup& x) {
    return f(x.name, x.tied, x.elements, x.holders);
  }
};

/// The layout of a job for one epoch number.
struct ParallelPlan {
  ModelGraph model;
  std::vector<DeviceSlot> devices;
  std::vector<Stage> stages;  ///< Grouped by pipeline, each pipeline in topological order.
  std::vector<Pipeline> pipelines;
  std::vector<ParameterGroup> groups;  ///< In model order; only trainable parameters.

  const Stage& at(StageId id) const { return stages[id.index()]; }
  NodeId node_of(StageId id) const { return devices[at(id).devices.front().index()].node; }

  friend bool operator==(const ParallelPlan&, const ParallelPlan&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ParallelPlan& x) {
    return f(x.model, x.devices, x.stages, x.pipelines, x.groups);
  }
};

}  // namespace troupe
