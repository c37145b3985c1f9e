#include "scheduler/check/route_check.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace troupe::scheduler {

namespace {

using BoundaryKey = std::pair<ModuleId, ModuleGroupId>;

class RouteCheck {
 public:
  RouteCheck(const ParallelPlan& plan, const IterationPlan& iteration)
      : plan_(plan), iteration_(iteration) {}

  std::vector<Fault> faults() {
    list_boundaries();
    for (std::size_t m = 0; m < iteration_.messages.size(); ++m) check_message(m);
    for (const auto& [key, boundary] : boundaries_)
      if (!boundary.is_used)
        report(FaultKind::unknown, {}, text_of(key), "no rows of this iteration cross it");
    return std::move(faults_);
  }

 private:
  struct Listed {
    Route route = Route::direct;
    bool is_used = false;
  };

  void report(FaultKind kind, DeviceId device, std::string what, std::string why) {
    faults_.push_back({kind, device, std::move(what), std::move(why)});
  }
  void report(FaultKind kind, std::size_t message, std::string why) {
    const StageId source = iteration_.messages[message].source.stage;
    report(kind, plan_.at(source).devices.front(), "message " + std::to_string(message),
           std::move(why));
  }

  static std::string text_of(const BoundaryKey& key) {
    return "boundary of module " + std::to_string(key.first.value) + " to group " +
           std::to_string(key.second.value);
  }

  void list_boundaries() {
    for (const BoundaryRoute& boundary : iteration_.boundaries) {
      const BoundaryKey key{boundary.module, boundary.group};
      if (!boundaries_.emplace(key, Listed{boundary.route, false}).second)
        report(FaultKind::duplicate, {}, text_of(key), "the plan lists it twice");
    }
  }

  ModuleGroupId group_of(StageId stage) const { return plan_.at(plan_.at(stage).replica).group; }

  void check_message(std::size_t index) {
    const Message& message = iteration_.messages[index];
    const ModuleGroupId to = group_of(message.destination.stage);
    if (group_of(message.source.stage) == to) {
      if (message.route != Route::direct || message.relay.valid())
        report(FaultKind::unknown, index, "rows inside a module group take no route");
      return;
    }
    const auto boundary = boundaries_.find({message.module, to});
    if (boundary == boundaries_.end())
      return report(FaultKind::missing, index, "the plan lists no route of its boundary");
    boundary->second.is_used = true;
    const Route due = is_at_home(message) ? Route::direct : boundary->second.route;
    if (message.route != due)
      return report(FaultKind::dependency, index,
                    "it goes by " + std::string(to_string(message.route)) + " where " +
                        std::string(to_string(due)) + " is due");
    check_relay(index, due);
  }

  /// Whether every rank of the destination has its rows: it is the same rank of the source.
  bool is_at_home(const Message& message) const {
    const Stage& source = plan_.at(message.source.stage);
    const Stage& destination = plan_.at(message.destination.stage);
    return std::equal(source.devices.begin(), source.devices.end(), destination.devices.begin(),
                      destination.devices.end()) &&
           (source.grid.cp < 2 || destination.grid == source.grid);
  }

  void check_relay(std::size_t index, Route route) {
    const Message& message = iteration_.messages[index];
    DeviceId due;
    if (route == Route::gather_scatter) {
      due = gathers(message);
      for (const StageId end : {message.source.stage, message.destination.stage})
        for (const DeviceId device : plan_.at(end).devices)
          if (device == due) return check_relay(index, DeviceId{});
    }
    check_relay(index, due);
  }
  void check_relay(std::size_t index, DeviceId due) {
    const DeviceId relay = iteration_.messages[index].relay;
    if (relay == due) return;
    if (!due.valid())
      report(FaultKind::unknown, index, "its rows pass through a device for no reason");
    else
      report(relay.valid() ? FaultKind::dependency : FaultKind::missing, index,
             "its rows are to pass through device " + std::to_string(due.value) +
                 (relay.valid() ? ", not " + std::to_string(relay.value) : ""));
  }

  /// The first device of the last stage of the module, in the first replica of its pipeline.
  DeviceId gathers(const Message& message) const {
    const Replica& own = plan_.at(plan_.at(message.source.stage).replica);
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {  // By replica, the first ones first.
      const Replica& replica = plan_.at(plan_.stages[s].replica);
      if (replica.group != own.group || replica.pipeline != own.pipeline) continue;
      for (const LayerRun& run : plan_.stages[s].runs)
        if (run.module == message.module &&
            run.layers.end == std::ssize(plan_.model.at(message.module).layers))
          return plan_.stages[s].devices.front();
    }
    return {};
  }

  const ParallelPlan& plan_;
  const IterationPlan& iteration_;
  std::map<BoundaryKey, Listed> boundaries_;
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> route_faults(const ParallelPlan& plan, const IterationPlan& iteration) {
  return RouteCheck(plan, iteration).faults();
}

}  // namespace troupe::scheduler
