// A node process as the supervisor sees it: joins, starts its devices, passes messages on, ends in
// order.

#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "actors/executor_actor.hpp"
#include "actors/heartbeat.hpp"
#include "actors/protocol.hpp"
#include "actors/read_watch.hpp"

namespace troupe::actors {

/// How a node comes into a job and what becomes of it.
struct NodeStart {
  NodeHello hello;
  std::string joins;  ///< Where it joins, for messages: `HOST:PORT`.
  /// Fills the node's resources and introduces it. Called once, on a thread of its own: it may take
  /// long, and the node listens meanwhile. A process whose job ends does not wait for it.
  std::function<Result<NodeReady>(const NodeWelcome&)> open;
  /// Called once, from the actor, when the node has nothing more to do.
  std::function<void(JobEnd)> on_end;
};

struct NodeState {
  NodeResources* resources = nullptr;  ///< Not to be read before `is_open`, but for `node`.
  SupervisorActor supervisor;
  NodeStart start;
  std::optional<NodeWelcome> welcome;  ///< Once it has joined.
  bool is_open = false;
  SchedulerActor scheduler;  ///< Known from the first order on.
  LoaderActor loader;
  std::map<std::int32_t, ExecutorActor> executors;  ///< By the device's number on this node.
  std::map<NodeId, ByteString> connected;   ///< And where: a place may be taken by another process.
  std::set<std::int32_t> fetched, applied;  ///< Devices that have done their part of an apply.
  std::map<std::int64_t, std::size_t> finished_devices;  ///< Per step, until all have finished.
  Configuration configuration;
  Pace pace;                        ///< Of its own signs of life.
  Silence silence;                  ///< The supervisor's.
  ReadWatch reads;                  ///< Of the data, once they are open.
  std::optional<JobEnd> own_fault;  ///< It could not open its data; it ends with this.

  static inline const char* name = "node";
};

/// Joins the supervisor's job at once. `resources` outlive the actor; `start.open` fills them,
/// their `node` apart.
NodeActor::behavior_type node(NodeActor::stateful_pointer<NodeState> self, NodeResources* resources,
                              SupervisorActor supervisor, NodeStart start);

}  // namespace troupe::actors
