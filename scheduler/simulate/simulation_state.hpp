// What a simulation keeps of each device, and of what devices wait for.
//
// Plain values of simulate_plan.cpp, which alone changes them.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "scheduler/cost/nccl_call.hpp"
#include "scheduler/iteration/message_routes.hpp"
#include "scheduler/iteration/rank_links.hpp"
#include "scheduler/iteration/sum_traffic.hpp"
#include "scheduler/simulate/device_memory.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::scheduler {

inline constexpr double kNever = std::numeric_limits<double>::infinity();  ///< A time.

inline double bytes_ms(double bytes, double gigabytes_per_s) {
  return gigabytes_per_s > 0 ? bytes / (gigabytes_per_s * 1e6) : 0;
}  ///< Milliseconds; without a speed none.

/// What leaves a device: over each kind of link one transfer after the other.
struct DeviceLinks {
  std::array<double, 3> free_ms = {};  ///< Per link class: when the last transfer has left.

  /// When bytes that leave now are there.
  double send(LinkClass kind, const LinkSpeed& speed, double bytes, double now_ms) {
    double& free = free_ms[static_cast<std::size_t>(kind)];
    free = std::max(free, now_ms) + bytes_ms(bytes, speed.gigabytes_per_s);
    return free + speed.latency_ms;
  }
};

/// When rows of so many bytes that leave now have taken legs `begin` to `end`. The one that
/// crosses, or of a relay its first, keeps the sender's `links` busy, where it has any; the others
/// are those of other devices and take their time on free links.
inline double pass_legs(const RouteLegs& legs, std::size_t begin, std::size_t end, double bytes,
                        const SimulationCosts& costs, double now_ms, DeviceLinks* links) {
  const std::size_t own = std::max(begin, legs.crossing);
  double later_ms = 0, there_ms = now_ms;
  for (std::size_t i = begin; i < end; ++i) {
    const RouteLeg& leg = legs.legs[i];
    const LinkSpeed& speed = costs.link(leg.link);
    if (i == own && links != nullptr)
      there_ms = links->send(leg.link, speed, bytes * leg.share, now_ms);
    else
      later_ms += speed.latency_ms + bytes_ms(bytes * leg.share, speed.gigabytes_per_s);
  }
  return there_ms + later_ms;
}

/// When a device's part in a call to NCCL that begins now has moved: its links carry it side by
/// side, and its steps wait for one another.
inline double enter_call(const CallTraffic& traffic, const SimulationCosts& costs, double now_ms,
                         DeviceLinks& links) {
  double moved_ms = now_ms, waits_ms = 0;
  for (std::size_t l = 0; l < traffic.elements.size(); ++l) {
    const auto link = static_cast<LinkClass>(l);
    const LinkSpeed& speed = costs.link(link);
    if (traffic.elements[l] > 0)
      moved_ms = std::max(moved_ms,
                          links.send(link, {0, speed.gigabytes_per_s},
                                     traffic.elements[l] * costs.summed_bytes_per_element, now_ms));
    waits_ms += traffic.steps[l] * speed.latency_ms;
  }
  return moved_ms + waits_ms;
}

/// A device that runs a list.
struct SimulatedDevice {
  std::size_t next = 0;  ///< Index of the next action.
  double now_ms = 0;
  double stop_ms = kNever;  ///< Failure.
  double busy_ms = 0;
  DeviceLinks links;
  DeviceMemory memory;  ///< Empty where no sizes are known.
};

/// Something that one or several devices bring and several wait for.
struct Gathering {
  double ready_ms = 0;                ///< Latest arrival.
  std::int32_t left = 0;              ///< Devices that have not sent yet.
  std::vector<std::int32_t> waiting;  ///< Devices.
};

/// Rows, or a gradient, on their way: to the device that they pass, if there is one, and on.
struct Passage {
  Gathering arrived, at_relay;
  bool is_relayed = false;
  Gathering& sent() { return is_relayed ? at_relay : arrived; }  ///< Where senders bring them.
};

inline bool is_of_gradient(ActionKind kind) {
  return kind == ActionKind::send_gradient || kind == ActionKind::relay_gradient ||
         kind == ActionKind::receive_gradient;
}  ///< Of actions of messages: whether the gradient moves, not the rows.

/// Compute of a grid whose devices run several lists: begins when all of them have come.
struct Rendezvous {
  Gathering come;
  double ms = 0;  ///< What it takes the slowest of them.
  std::set<std::int32_t> devices;
};

/// The sum of a parameter group.
struct SimulatedSum {
  SumTraffic traffic;
  std::optional<CallTraffic> call;                     ///< Of one to NCCL.
  std::array<Gathering, kSumActions.size()> all_sent;  ///< By kind, what all lists send in it.

  SimulatedSum(const ParallelPlan& plan, GroupId group, const SimulationCosts& costs)
      : traffic(plan, group) {
    for (const ActionKind kind : kSumActions) sent(kind).left = traffic.lists(kind);
    const ParameterGroup& summed = plan.groups[group.index()];
    if (const CallShape shape = traffic.call(); shape.holders > 0)
      call =
          call_traffic(summed.order, shape, static_cast<double>(summed.elements),
                       costs.summed_bytes_per_element, {costs.device, costs.node, costs.network});
  }
  Gathering& sent(ActionKind kind) {
    return all_sent[static_cast<std::size_t>(kind) - static_cast<std::size_t>(kSumActions[0])];
  }  ///< Of one kind.
};

}  // namespace troupe::scheduler
