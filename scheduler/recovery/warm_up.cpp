#include "scheduler/recovery/warm_up.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/state/standby_holders.hpp"

namespace troupe::scheduler {

namespace {

/// Of what the network carries during a step, so much is left for state: steps use it too.
constexpr double kShare = 0.5;

/// The devices that keep a unit, whatever number a layout gives them.
std::vector<std::set<DeviceSlot>> holders_of(const ParallelPlan& plan) {
  std::vector<std::set<DeviceSlot>> holders;
  for (const auto& devices : unit_holders(plan)) {
    auto& own = holders.emplace_back();
    for (const DeviceId device : devices) own.insert(plan.devices[device.index()]);
  }
  return holders;
}

DeviceId device_in(ParallelPlan& plan, const DeviceSlot& slot) {
  const auto found = std::find(plan.devices.begin(), plan.devices.end(), slot);
  const DeviceId id{found - plan.devices.begin()};
  if (found == plan.devices.end()) plan.devices.push_back(slot);
  return id;
}

}  // namespace

WarmUp next_warm_up(const WarmUpRequest& request) {
  const std::vector<StateUnit> units = state_units(request.base.model);
  const auto trained = holders_of(request.base);
  const auto held = holders_of(request.present);
  const auto wanted = holders_of(request.wanted);
  WarmUp next{request.base, {}, 0};
  std::vector<DeviceSlot> devices = request.wanted.devices;
  std::sort(devices.begin(), devices.end());
  for (const DeviceSlot& device : devices) {
    std::int64_t layouts = 0;
    std::int64_t bytes = 0;  // Of the layout that is being filled.
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (!wanted[u].contains(device) || trained[u].contains(device)) continue;
      const bool is_warm = held[u].contains(device);
      const std::int64_t own = units[u].moved_bytes(request.dtype);
      if (!is_warm && (layouts == 0 || bytes + own > request.at_a_time.count())) {
        ++layouts;
        bytes = 0;
      }
      if (!is_warm) bytes += own;
      if (!is_warm && layouts > 1) continue;
      const Standby standby{device_in(next.plan, device), units[u].layer, units[u].tied};
      next.plan.standbys.push_back(standby);
      if (!is_warm) next.arriving.push_back(standby);
    }
    next.layouts_left = std::max(next.layouts_left, layouts - 1);
  }
  std::sort(next.plan.standbys.begin(), next.plan.standbys.end());
  std::sort(next.arriving.begin(), next.arriving.end());
  complete(next.plan);
  return next;
}

std::optional<Bytes> warm_up_at_a_time(double network_bytes_per_ms, double step_ms) {
  const double bytes = network_bytes_per_ms * step_ms * kShare;
  if (bytes < 1 || step_ms <= kTurnoverMs) return std::nullopt;
  return Bytes{static_cast<std::int64_t>(bytes)};
}

bool warm_up_pays(const WarmUp& next, double copy_ms) {
  return static_cast<double>(next.layouts_left + 1) * kTurnoverMs < copy_ms;
}

}  // namespace troupe::scheduler
