#include "engine/state/state_memory.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "models/factory.hpp"
#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/layout/layout_request.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "scheduler/state/save_plan.hpp"
#include "scheduler/state/state_moves.hpp"

namespace troupe::engine {

namespace {

/// Devices that draw from one memory, and what they keep there.
struct Pool {
  std::string name;
  double room_bytes = 0;
  double state_bytes = 0;
  double copy_bytes = 0;  ///< For a checkpoint.
};

/// The pool of a device: its number, and how errors call it.
std::pair<DeviceSlot, std::string> pool_of(const job::Cluster& cluster, const DeviceSlot& slot) {
  const std::string node = "node " + std::to_string(slot.node.value);
  if (cluster.device_memory_gib > 0)
    return {slot, "device " + std::to_string(slot.local_index) + " of " + node};
  if (slot.node.value < cluster.local_nodes) return {{}, "the nodes of this machine"};
  return {{slot.node, 0}, node};
}

/// Whether stages hold something by their kinds.
bool holds_more(const ParallelPlan& plan) {
  return std::ranges::any_of(plan.model.modules, [](const ModuleSpec& module) {
    return std::ranges::any_of(module.layers,
                               [](const LayerSpec& layer) { return layer.held_bytes > 0; });
  });
}

Error too_large(const job::Job& job, const ParallelPlan& plan, const Pool& pool, double room) {
  const bool fits_alone = pool.state_bytes <= room;
  std::string message = std::string("parameters, gradients and optimizer") +
                        (holds_more(plan) ? ", and what kinds of stages hold besides," : "") +
                        " of " + pool.name + " take " + scheduler::byte_text(pool.state_bytes);
  if (pool.copy_bytes > 0)
    message += ", the copy while a checkpoint is saved " + scheduler::byte_text(pool.copy_bytes);
  return {Errc::infeasible, message + ", there are " + scheduler::byte_text(room),
          job.cluster.device_memory_gib > 0 ? "cluster.device_memory_gib" : "memory",
          std::string("use more nodes or a smaller model, or freeze modules") +
              (plan.standbys.empty() ? "" : ", or lower cluster.fault_tolerance") +
              (fits_alone ? ", or save no checkpoints" : "") +
              (job.cluster.device_memory_gib > 0
                   ? "; or raise cluster.device_memory_gib where a device has more"
                   : "; cluster.device_memory_gib says what a device has")};
}

}  // namespace

std::map<DeviceSlot, Bytes> checkpoint_copies(const job::Job& job, const ParallelPlan& plan) {
  std::map<DeviceSlot, Bytes> copies;
  if (!job.checkpoint.is_regular()) return copies;
  const Dtype dtype = job.train.dtype;
  const auto placed =
      scheduler::place_state(plan, models::list_parameters(job.modules, plan.model), dtype);
  for (const auto& [device, keys] : scheduler::plan_save(placed, dtype))
    for (const ShardKey& key : keys)
      copies[device] += Bytes{elements_of(key.box) * scheduler::bytes_per_element(key.kind, dtype)};
  return copies;
}

Status check_state_memory(const job::Job& job, const ParallelPlan& plan, Bytes memory,
                          const std::map<DeviceSlot, Bytes>& beside) {
  return check_state_memory(job, plan, DeviceRooms{memory}, beside);
}

Status check_state_memory(const job::Job& job, const ParallelPlan& plan, const DeviceRooms& rooms,
                          const std::map<DeviceSlot, Bytes>& beside) {
  scheduler::PredictionOptions options;
  options.dtype = job.train.dtype;
  // Also those that a layout does without: their share of a machine's memory is free.
  std::set<DeviceSlot> devices(plan.devices.begin(), plan.devices.end());
  for (std::int32_t node = 0; node < job.cluster.nodes; ++node)
    for (std::int32_t device = 0; device < job.cluster.devices_per_node; ++device)
      devices.insert({NodeId{node}, device});
  std::map<DeviceSlot, Pool> pools;
  for (const DeviceSlot& device : devices) {
    const auto [place, name] = pool_of(job.cluster, device);
    auto& pool = pools[place];
    pool.name = name;
    pool.room_bytes += static_cast<double>(rooms.of(device.node).count());
    if (const auto more = beside.find(device); more != beside.end())
      pool.state_bytes += static_cast<double>(more->second.count());
  }
  for (const auto& [device, copy] : checkpoint_copies(job, plan))
    pools[pool_of(job.cluster, device).first].copy_bytes += static_cast<double>(copy.count());
  const auto bytes = scheduler::stage_state_bytes(plan, options);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const DeviceId device : plan.stages[s].devices)
      pools[pool_of(job.cluster, plan.devices[device.index()]).first].state_bytes += bytes[s];
  const auto standby_bytes = scheduler::standby_state_bytes(plan, options);
  for (std::size_t d = 0; d < plan.devices.size(); ++d)
    pools[pool_of(job.cluster, plan.devices[d]).first].state_bytes += standby_bytes[d];
  // One group's moments at a time are on the device; a CPU's host memory is the device's own.
  const bool is_host = job.cluster.device == "cpu" && job.cluster.device_memory_gib <= 0;
  const auto host = scheduler::host_states(plan, options);
  for (std::size_t d = 0; d < plan.devices.size(); ++d)
    pools[pool_of(job.cluster, plan.devices[d]).first].state_bytes +=
        host[d].largest_bytes + (is_host ? host[d].bytes + host[d].parameters : 0);
  for (const auto& [place, pool] : pools)
    if (pool.state_bytes + pool.copy_bytes > pool.room_bytes)
      return too_large(job, plan, pool, pool.room_bytes);
  return Done{};
}

}  // namespace troupe::engine
