// A node process as the supervisor sees it: starts its devices, passes messages on, ends in order.

#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "actors/executor_actor.hpp"
#include "actors/heartbeat.hpp"
#include "actors/protocol.hpp"

namespace troupe::actors {

struct NodeState {
  NodeResources* resources = nullptr;
  SupervisorActor supervisor;
  SchedulerActor scheduler;  ///< Known from the first order on.
  LoaderActor loader;
  std::map<DeviceId, ExecutorActor> executors;
  std::set<DeviceId> applied;
  std::map<std::int64_t, std::size_t> finished_devices;  ///< Per step, until all have finished.
  Configuration configuration;
  Pace pace;        ///< Of its own signs of life.
  Silence silence;  ///< The supervisor's.
  std::function<void(JobEnd)> on_end;

  static inline const char* name = "node";
};

/// `on_end` is called once, from the actor, when the node has nothing more to do.
NodeActor::behavior_type node(NodeActor::stateful_pointer<NodeState> self, NodeResources* resources,
                              SupervisorActor supervisor, std::function<void(JobEnd)> on_end);

}  // namespace troupe::actors
