// How a head takes over from one that was lost, and how far it has come.

#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "actors/link/heartbeat.hpp"
#include "actors/link/protocol.hpp"

namespace troupe::actors {

/// How a head takes over a run whose head was lost, while nodes may wait for it with their state.
struct GatherWish {
  double window_s = 0;          ///< So long nodes are waited for.
  bool ends = false;            ///< It only saves what they hold.
  std::int64_t saved_step = 0;  ///< Of the checkpoint that it would go on from without them.
  bool goes_back = false;       ///< To that, though nodes hold a part of a newer step.
  Status without = Done{};      ///< Why it cannot go on without them.
  /// Opens the run folder, and puts it, its logger and where the job goes on into the resources:
  /// after the nodes' progress; or, without, from a checkpoint or from the beginning.
  std::function<Status(const JobProgress* live)> open;
  /// Starts the head's own node processes, but for these.
  std::function<void(const std::set<NodeId>& there)> start_nodes;
};

/// A node that begins, while those of a lost head are gathered.
struct Latecomer {
  caf::typed_response_promise<NodeWelcome> promise;
  NodeHello hello;
  caf::strong_actor_ptr sender;
};

/// Nodes of a lost head, on their way to this one.
struct Gathering {
  Time begun;
  Time until;
  Time last_join;
  std::map<NodeId, NodeHolding> holdings;
  std::vector<Latecomer> later;
  std::set<NodeId> finishing;             ///< Have said that they come behind a step.
  bool is_decided = false;                ///< No more nodes are waited for.
  bool is_connected = false;              ///< Ways for tensors to them were tried.
  std::map<NodeId, Error> unreached;      ///< To whom none leads, and why.
  std::map<DeviceId, NodeId> unfinished;  ///< Devices in the last step of the head before.
  JobProgress finished;                   ///< After that step.
};

}  // namespace troupe::actors
