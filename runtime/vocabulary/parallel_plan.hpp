// Where every layer lives: replicas of module groups, stages, devices, who shares which parameters,
// and who keeps some of them without a stage.
//
// A plan is a value. It is made by `scheduler/`, executed by the engine and by the simulator.

#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/parallelism.hpp"
#include "runtime/vocabulary/sum_order.hpp"
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

/// Modules that are replicated together: encoders with their projectors, or the llm. All of them
/// see the same microbatches; each group has its own number of replicas.
struct ModuleGroup {
  std::string name;               ///< Its encoders, `vision+audio`, or `llm`.
  std::vector<ModuleId> modules;  ///< In model order; each module is in exactly one group.

  friend bool operator==(const ModuleGroup&, const ModuleGroup&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ModuleGroup& x) {
    return f(x.name, x.modules);
  }
};

/// Layers that run together on one grid of devices. A stage belongs to one replica, because
/// module groups use different microbatches. A job-file entry that names modules of two groups
/// becomes two stages on one grid.
struct Stage {
  ReplicaId replica;
  std::vector<LayerRun> runs;     ///< In execution order.
  std::vector<DeviceId> devices;  ///< Of one node, each once: rank r is on devices[r]; tp fastest.
  Parallelism grid = {};          ///< Has as many ranks as there are devices.

  /// Devices that together hold each parameter of the stage once: ranks of one place along cp.
  std::span<const DeviceId> row(std::int32_t cp) const {
    const auto tp = static_cast<std::size_t>(grid.tp);
    return std::span(devices).subspan(static_cast<std::size_t>(cp) * tp, tp);
  }

  friend bool operator==(const Stage&, const Stage&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Stage& x) {
    return f(x.replica, x.runs, x.devices, x.grid);
  }
};

/// One copy of a module group. Stages stand in topological order, and together have every layer of
/// the group once.
struct Replica {
  ModuleGroupId group;
  PipelineId pipeline;
  std::vector<StageId> stages;

  friend bool operator==(const Replica&, const Replica&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Replica& x) {
    return f(x.group, x.pipeline, x.stages);
  }
};

/// Replicas that are planned together: at least one of every group, in the order of groups. Samples
/// that are dealt to a pipeline are trained by its llm replicas; their media may be encoded in
/// another one (`balancer.exchange`).
struct Pipeline {
  std::vector<ReplicaId> replicas;

  friend bool operator==(const Pipeline&, const Pipeline&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Pipeline& x) {
    return f(x.replicas);
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
struct ParameterUse {
  StageId stage;
  LayerId layer;

  friend auto operator<=>(const ParameterUse&, const ParameterUse&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ParameterUse& x) {
    return f(x.stage, x.layer);
  }
};

/// Parameters that a device keeps up to date though no stage of it uses them: it is their standby
/// holder. It gets their sums and updates them as every holder does, and sees no sample for it.
struct Standby {
  DeviceId device;
  LayerId layer;     ///< Its own parameters, tied ones left out; of a tied one its first user.
  std::string tied;  ///< Not empty: the tied parameter of this name instead.

  friend auto operator<=>(const Standby&, const Standby&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Standby& x) {
    return f(x.device, x.layer, x.tied);
  }
};

/// Trainable parameters whose gradients are reduced together: those of one layer, or one tied
/// parameter. The sum adds up in `order` and the order of `holders`, each holder's own uses first,
/// whoever came first (gradient_sum.hpp): its bits follow from the plan. Standby holders add
/// nothing and stand last, so that they change no bit of it.
///
/// A holder keeps all elements once. In a stage of several devices it is a row of its grid
/// (`Stage::row`), named by the row's first device, whose ranks share the elements that tensor
/// parallelism splits; ranks of another place along cp are another holder with gradients of its
/// own.
struct ParameterGroup {
  std::string name;   ///< Layer name, or the tied parameter's name.
  bool tied = false;  ///< True: exactly the tied parameter of this name; false: the layer's own.
  std::int64_t elements = 0;
  std::vector<ParameterUse> uses;  ///< By (stage, layer).
  /// Who keeps the parameters up to date: rows of the uses' stages, in their order, then devices of
  /// `ParallelPlan::standbys`.
  std::vector<DeviceId> holders;
  std::int32_t standbys = 0;               ///< So many of the last holders have no use.
  std::vector<SplitElements> splits = {};  ///< Of `elements`: what tensor parallelism splits.
  SumOrder order = SumOrder::chain;        ///< Of the sum; `sum_order` picks it.

  /// Elements that one of a holder's `tp` ranks keeps.
  std::int64_t elements_at(std::int32_t tp) const { return split_over(elements, splits, tp); }

  /// Holders that have a use, and so gradients of their own: the first ones.
  std::int32_t users() const { return static_cast<std::int32_t>(holders.size()) - standbys; }

  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ParameterGroup& x) {
    return f(x.name, x.tied, x.elements, x.uses, x.holders, x.standbys, x.splits, x.order);
  }
};

/// The layout of a job for one epoch number.
struct ParallelPlan {
  ModelGraph model;
  std::vector<DeviceSlot> devices;
  std::vector<ModuleGroup> module_groups;  ///< In model order; the llm's is last.
  std::vector<Replica> replicas;           ///< Grouped by pipeline.
  std::vector<Stage> stages;               ///< Grouped by replica.
  std::vector<Pipeline> pipelines;
  std::vector<ParameterGroup> groups;  ///< In model order; only trainable parameters.
  std::vector<Standby> standbys;       ///< Ascending; also of parameters that do not train.
  /// Per device: the first one of those that run its list of actions with it, each as a rank of its
  /// own, because all their stages and standby parameters are the same. Empty: each device runs a
  /// list of its own.
  std::vector<DeviceId> leads = {};

  const Stage& at(StageId id) const { return stages[id.index()]; }  ///< REQUIRES: it is there.
  const Replica& at(ReplicaId id) const { return replicas[id.index()]; }     ///< As above.
  const Pipeline& at(PipelineId id) const { return pipelines[id.index()]; }  ///< As above.
  Pipeline& at(PipelineId id) { return pipelines[id.index()]; }              ///< As above.
  /// Whose list a device runs.
  DeviceId lead_of(DeviceId id) const { return leads.empty() ? id : leads[id.index()]; }
  bool is_lead(DeviceId id) const { return lead_of(id) == id; }  ///< It runs a list.
  /// Devices whose lists these run, each once, in their order.
  std::vector<DeviceId> leads_of(std::span<const DeviceId> ranks) const {
    std::vector<DeviceId> list;
    for (const DeviceId device : ranks)
      if (const DeviceId lead = lead_of(device);
          std::find(list.begin(), list.end(), lead) == list.end())
        list.push_back(lead);
    return list;
  }
  /// Those that a stage's actions stand in: with several of them one begins when all have come.
  std::vector<DeviceId> leads_of(StageId id) const { return leads_of(at(id).devices); }
  /// Per device: how many run its list; 0 where another device leads.
  std::vector<std::int32_t> team_sizes() const {
    std::vector<std::int32_t> sizes(devices.size());
    for (std::size_t d = 0; d < devices.size(); ++d) ++sizes[lead_of(DeviceId{d}).index()];
    return sizes;
  }
  NodeId node_of(StageId id) const { return devices[at(id).devices.front().index()].node; }
  /// Nodes that work in the layout.
  std::set<NodeId> nodes() const {
    std::set<NodeId> found;
    for (const DeviceSlot& device : devices) found.insert(device.node);
    return found;
  }
  PipelineId pipeline_of(StageId id) const { return at(at(id).replica).pipeline; }
  bool is_llm(ReplicaId id) const { return at(id).group.index() + 1 == module_groups.size(); }
  bool is_llm(StageId id) const { return is_llm(at(id).replica); }  ///< As above.
  /// Whether it is the first one of its group: where all are equal, its state is taken.
  bool is_first(ReplicaId id) const {
    for (std::size_t r = 0; r < id.index(); ++r)
      if (replicas[r].group == at(id).group) return false;
    return true;
  }
  /// Those of all its replicas.
  std::vector<StageId> stages_of(PipelineId id) const {
    std::vector<StageId> list;
    for (const ReplicaId replica : at(id).replicas)
      list.insert(list.end(), at(replica).stages.begin(), at(replica).stages.end());
    return list;
  }
  /// The group of a module. REQUIRES: it is in one.
  ModuleGroupId group_of(ModuleId module) const {
    for (std::size_t g = 0; g < module_groups.size(); ++g)
      for (const ModuleId own : module_groups[g].modules)
        if (own == module) return ModuleGroupId{g};
    return {};
  }

  friend bool operator==(const ParallelPlan&, const ParallelPlan&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ParallelPlan& x) {
    return f(x.model, x.devices, x.module_groups, x.replicas, x.stages, x.pipelines, x.groups,
             x.standbys, x.leads);
  }
};

}  // namespace troupe
