#include "scheduler/state/standby_holders.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "runtime/vocabulary/host_state.hpp"
#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/iteration/stage_graph.hpp"

namespace troupe::scheduler {

namespace {

/// A unit and who keeps it.
struct Held {
  StateUnit unit;
  double bytes = 0;
  std::set<DeviceId> holders;
};

std::vector<Held> held_units(const ParallelPlan& plan, Dtype dtype) {
  std::map<LayerId, std::set<DeviceId>> users;
  for (const Stage& stage : plan.stages)
    for (const LayerRun& run : stage.runs)
      for (auto layer = run.layers.begin; layer < run.layers.end; ++layer)
        users[{run.module, layer}].insert(stage.devices.begin(), stage.devices.end());
  std::map<std::pair<LayerId, std::string>, std::vector<DeviceId>> standbys;
  for (const Standby& standby : plan.standbys)
    standbys[{standby.layer, standby.tied}].push_back(standby.device);
  std::vector<Held> list;
  for (StateUnit& unit : state_units(plan.model)) {
    Held held{std::move(unit), 0, {}};
    held.bytes = held.unit.bytes(dtype);
    if (held.unit.tied.empty()) {
      held.holders = users[held.unit.layer];
    } else {
      for (const TiedParameter& tied : plan.model.tied)
        if (tied.name == held.unit.tied)
          for (const LayerId user : tied.layers)
            held.holders.insert(users[user].begin(), users[user].end());
    }
    const auto& more = standbys[{held.unit.layer, held.unit.tied}];
    held.holders.insert(more.begin(), more.end());
    list.push_back(std::move(held));
  }
  return list;
}

/// What devices and nodes keep so far.
class Loads {
 public:
  explicit Loads(const ParallelPlan& plan) : plan_(plan), of_device_(plan.devices.size()) {
    for (std::size_t d = 0; d < plan.devices.size(); ++d)
      devices_[plan.devices[d].node].push_back(DeviceId{d});
  }

  std::size_t node_count() const { return devices_.size(); }
  NodeId node_of(DeviceId device) const { return plan_.devices[device.index()].node; }

  void add(DeviceId device, double bytes) {
    of_device_[device.index()] += bytes;
    of_node_[node_of(device)] += bytes;
  }

  /// The emptiest device of the emptiest node that is none of `taken`. REQUIRES: there is one.
  DeviceId emptiest(const std::set<NodeId>& taken) {
    const std::vector<DeviceId>* best = nullptr;
    double least = 0;
    for (const auto& [node, devices] : devices_) {
      if (taken.contains(node) || (best && of_node_[node] >= least)) continue;
      best = &devices;
      least = of_node_[node];
    }
    return *std::min_element(best->begin(), best->end(), [&](DeviceId a, DeviceId b) {
      const auto key = [&](DeviceId device) {
        return std::pair{of_device_[device.index()], plan_.devices[device.index()]};
      };
      return key(a) < key(b);
    });
  }

 private:
  const ParallelPlan& plan_;
  std::map<NodeId, std::vector<DeviceId>> devices_;
  std::vector<double> of_device_;
  std::map<NodeId, double> of_node_;
};

}  // namespace

double StateUnit::bytes(Dtype dtype) const {
  return static_cast<double>(trained) * state_bytes_per_trained_element(dtype) +
         static_cast<double>(constant) * bytes_per_element(dtype);
}

double StateUnit::host_bytes(Dtype dtype) const {
  return moments_in_host ? static_cast<double>(trained) * moment_bytes_per_element(dtype) : 0;
}

std::int64_t StateUnit::moved_bytes(Dtype dtype) const {
  std::int64_t each = 0;
  for (const StateKind kind : {StateKind::value, StateKind::master, StateKind::moments})
    each += bytes_per_element(kind, dtype);
  return trained * each + constant * bytes_per_element(StateKind::value, dtype);
}

std::vector<StateUnit> state_units(const ModelGraph& model) {
  std::vector<StateUnit> units;
  const auto add = [&](LayerId layer, std::string tied, std::int64_t elements,
                       std::int64_t constant, bool in_host) {
    const bool frozen = model.at(layer.module).freeze;
    StateUnit unit{layer, std::move(tied), frozen ? 0 : elements,
                   constant + (frozen ? elements : 0), in_host && !frozen};
    if (unit.trained + unit.constant > 0) units.push_back(std::move(unit));
  };
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    for (std::size_t l = 0; l < model.modules[m].layers.size(); ++l) {
      const LayerId id{ModuleId{m}, static_cast<std::int32_t>(l)};
      const LayerSpec& layer = model.modules[m].layers[l];
      add(id, {}, layer.parameter_elements, layer.constant_elements,
          model.modules[m].moments_in_host);
      for (const TiedParameter& tied : model.tied)
        if (tied.layers.front() == id)
          add(id, tied.name, tied.parameter_elements, 0, moments_in_host(model, tied));
    }
  return units;
}

const StateUnit& unit_of(const std::vector<StateUnit>& units, const Standby& standby) {
  const auto first = std::lower_bound(
      units.begin(), units.end(), standby.layer,
      [](const StateUnit& unit, const LayerId& layer) { return unit.layer < layer; });
  return *std::find_if(first, units.end(),
                       [&](const StateUnit& unit) { return unit.tied == standby.tied; });
}

std::vector<std::vector<DeviceId>> unit_holders(const ParallelPlan& plan) {
  std::vector<std::vector<DeviceId>> holders;
  for (const Held& held : held_units(plan, Dtype::fp32))
    holders.emplace_back(held.holders.begin(), held.holders.end());
  return holders;
}

std::set<NodeId> nodes_without_stage(const ParallelPlan& plan, std::int32_t count) {
  std::set<NodeId> working, others;
  for (const Stage& stage : plan.stages)
    for (const DeviceId device : stage.devices) working.insert(plan.devices[device.index()].node);
  for (const DeviceSlot& device : plan.devices)
    if (!working.contains(device.node)) others.insert(device.node);
  while (std::ssize(others) > count) others.erase(others.begin());
  return others;
}

void stand_by_on(ParallelPlan& plan, const std::set<NodeId>& nodes, const Tolerance& tolerance) {
  std::vector<Held> units = held_units(plan, tolerance.dtype);
  for (const NodeId node : nodes) {
    const auto own = tolerance.own_spare_rooms.find(node);
    const auto room = static_cast<double>(
        (own == tolerance.own_spare_rooms.end() ? tolerance.spare_room : own->second).count());
    std::map<DeviceId, double> kept;
    for (std::size_t d = 0; d < plan.devices.size(); ++d)
      if (plan.devices[d].node == node) kept[DeviceId{d}] = 0;
    if (kept.empty()) continue;
    std::vector<Held*> order;
    for (Held& held : units) order.push_back(&held);
    std::stable_sort(order.begin(), order.end(), [](const Held* a, const Held* b) {
      const auto a_count = a->holders.size(), b_count = b->holders.size();
      return a_count != b_count ? a_count < b_count : a->bytes > b->bytes;
    });
    for (Held* held : order) {
      const auto least =
          std::min_element(kept.begin(), kept.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      if (room > 0 && least->second + held->bytes > room) continue;
      least->second += held->bytes;
      held->holders.insert(least->first);
      plan.standbys.push_back({least->first, held->unit.layer, held->unit.tied});
    }
  }
  std::sort(plan.standbys.begin(), plan.standbys.end());
  complete(plan);
}

Result<ParallelPlan> add_standbys(ParallelPlan plan, const Tolerance& tolerance) {
  if (tolerance.lost_nodes <= 0) return plan;
  const auto wanted = static_cast<std::size_t>(tolerance.lost_nodes) + 1;
  Loads loads(plan);
  if (loads.node_count() < wanted) {
    const auto count = loads.node_count();
    return Error{Errc::infeasible,
                 "to keep everything through the loss of " + std::to_string(tolerance.lost_nodes) +
                     (tolerance.lost_nodes == 1 ? " node" : " nodes") + " takes holders on " +
                     std::to_string(wanted) + " nodes; there " +
                     (count == 1 ? "is 1" : "are " + std::to_string(count)),
                 "cluster.fault_tolerance",
                 "nearest choice: cluster.fault_tolerance = " + std::to_string(count - 1)};
  }
  std::vector<Held> units = held_units(plan, tolerance.dtype);
  for (const Held& held : units)
    for (const DeviceId device : held.holders) loads.add(device, held.bytes);
  // Large ones first, so that small ones even out what they leave uneven.
  std::stable_sort(units.begin(), units.end(),
                   [](const Held& a, const Held& b) { return a.bytes > b.bytes; });
  for (const Held& held : units) {
    std::set<NodeId> nodes;
    for (const DeviceId device : held.holders) nodes.insert(loads.node_of(device));
    while (nodes.size() < wanted) {
      const DeviceId device = loads.emptiest(nodes);
      loads.add(device, held.bytes);
      nodes.insert(loads.node_of(device));
      plan.standbys.push_back({device, held.unit.layer, held.unit.tied});
    }
  }
  std::sort(plan.standbys.begin(), plan.standbys.end());
  complete(plan);
  return plan;
}

void leave_out_idle(ParallelPlan& plan) {
  std::vector<DeviceId> places(plan.devices.size());
  const auto keep = [&](DeviceId device) { places[device.index()] = device; };
  for (const Stage& stage : plan.stages)
    std::for_each(stage.devices.begin(), stage.devices.end(), keep);
  for (const Standby& standby : plan.standbys) keep(standby.device);
  std::vector<DeviceSlot> used;
  for (std::size_t d = 0; d < places.size(); ++d) {
    if (!places[d].valid()) continue;
    places[d] = DeviceId{used.size()};
    used.push_back(plan.devices[d]);
  }
  plan.devices = std::move(used);
  for (Stage& stage : plan.stages)
    for (DeviceId& device : stage.devices) device = places[device.index()];
  for (Standby& standby : plan.standbys) standby.device = places[standby.device.index()];
  complete(plan);
}

StandbyRuns standby_runs(const ParallelPlan& plan, DeviceId device) {
  StandbyRuns kept;
  for (const Standby& standby : plan.standbys) {
    if (standby.device != device) continue;
    const LayerId layer = standby.layer;
    if (!standby.tied.empty())
      kept.tied.push_back(standby.tied);
    else if (!kept.runs.empty() && kept.runs.back().module == layer.module &&
             kept.runs.back().layers.end == layer.layer)
      ++kept.runs.back().layers.end;
    else
      kept.runs.push_back({layer.module, {layer.layer, layer.layer + 1}});
  }
  return kept;
}

}  // namespace troupe::scheduler
