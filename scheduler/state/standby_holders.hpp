// Standby holders: devices that keep parameters up to date without a stage for them, so that no
// loss of a few nodes takes the last copy of anything.
//
// Pure; thread-safe; the same answer on every node.

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::scheduler {

/// How many nodes a layout may lose and still have a holder of everything.
struct Tolerance {
  std::int64_t lost_nodes = 0;  ///< >= 0; 0: stages alone hold state.
  Dtype dtype = Dtype::fp32;    ///< Of the model: what holders keep weighs by it.
  std::int32_t spares = 0;      ///< Nodes without a stage that stand by for everything.
  Bytes spare_room = {};        ///< What each of their devices may keep; 0: all of it.
  std::map<NodeId, Bytes> own_spare_rooms = {};  ///< In place of that, of nodes with other memory.
};

/// Of a device's memory, what a spare node may keep: gradients that come, and copies for
/// checkpoints, take some too.
inline constexpr double kSpareShare = 0.9;

/// What a holder keeps all of or nothing of: the own parameters of a layer, or a tied parameter.
struct StateUnit {
  LayerId layer;                 ///< Of a tied parameter its first user.
  std::string tied;              ///< Its name; empty: the layer's own parameters.
  std::int64_t trained = 0;      ///< Elements with a gradient and moments.
  std::int64_t constant = 0;     ///< Elements of which there is a value alone: frozen ones too.
  bool moments_in_host = false;  ///< These and the master, but for their update.

  /// All that a holder keeps of it, its gradients included.
  double bytes(Dtype dtype) const;
  /// Of these, what is in host memory.
  double host_bytes(Dtype dtype) const;
  /// What a device gets that takes it over: the same without gradients.
  std::int64_t moved_bytes(Dtype dtype) const;
};

/// The units of a model that have elements, in model order; a tied one behind its first layer.
std::vector<StateUnit> state_units(const ModelGraph& model);

/// The unit that a device is on standby for. REQUIRES: it has elements.
const StateUnit& unit_of(const std::vector<StateUnit>& units, const Standby& standby);

/// Per unit of `state_units` the devices that keep it, ascending: those whose stages use it and
/// those on standby for it.
std::vector<std::vector<DeviceId>> unit_holders(const ParallelPlan& plan);

/// The last `count` nodes of a plan that have no stage, or as many as there are.
std::set<NodeId> nodes_without_stage(const ParallelPlan& plan, std::int32_t count);

/// Lets these nodes stand by for everything, or as much as `spare_room` allows: each for what the
/// fewest devices keep first, of that the largest units, each on the device that keeps least; ties
/// go to the lower unit and device. REQUIRES: they have no stage and stand by for nothing.
/// Cost: O(nodes x units x (log units + devices of a node)).
void stand_by_on(ParallelPlan& plan, const std::set<NodeId>& nodes, const Tolerance& tolerance);

/// Adds standby holders until each unit has holders on `lost_nodes` + 1 nodes of the plan; units
/// that have them get none, so that 0 changes nothing. The largest units go first, each to the node
/// that keeps least so far, by bytes, and there to the device that does; ties go to the lower unit,
/// node and device. Standby holders that are there already stay and count. Cost: O(units x (log
/// units + nodes + devices)).
///
/// Errors:
/// - infeasible: the plan has fewer nodes than that.
Result<ParallelPlan> add_standbys(ParallelPlan plan, const Tolerance& tolerance);

/// Takes devices out of the plan that have no stage and stand by for nothing.
void leave_out_idle(ParallelPlan& plan);

/// What a device stands by for, as layers: runs in model order, and tied parameters by name.
struct StandbyRuns {
  std::vector<LayerRun> runs;
  std::vector<std::string> tied;
};
StandbyRuns standby_runs(const ParallelPlan& plan, DeviceId device);

}  // namespace troupe::scheduler
