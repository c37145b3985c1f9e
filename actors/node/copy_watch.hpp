// Notices nodes of which nothing comes any more while state is copied between them and this one:
// where the way between two nodes drops everything in silence, neither of them hears of an error.
//
// A copy may take long: who gives state may be in a stage of the layout before, and what it gives
// may be large. So both ends show each other on that way that they live, from a thread that
// computes nothing, and each message of state counts as well.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "actors/link/heartbeat.hpp"
#include "actors/link/messages.hpp"
#include "actors/node/work_watch.hpp"
#include "engine/iteration/reports.hpp"
#include "transport/transport.hpp"

namespace troupe::actors {

/// Single owner, not thread-safe; time is handed in.
class CopyWatch {
 public:
  /// A layout comes up: its moves say to which nodes `node`, which is this one, gives state, and
  /// from which it gets some. It is connected to them, and they begin as well. What was watched
  /// before is not any more. `transport` outlives the watch, or its `end`.
  void begin(transport::Transport& transport, const Configuration& layout, NodeId node);
  /// All of them have what they wanted: nobody is watched, and nothing is said.
  void end();

  /// Time passes: says thrice in each `interval` that this node lives. Returns those of which
  /// nothing has come for longer than `interval`, ascending; not one whose connection has ended,
  /// which its transport tells. `devices`: of this node, which count what state comes to them. Time
  /// counts as in `Silence`.
  std::vector<engine::SilentPeer> pass(Time now, Duration interval, const WorkOfDevices& devices);

 private:
  struct Peer {
    transport::Operation sign;  ///< The receive of its next one.
    std::int64_t came = 0;      ///< Messages of state from it, as counted last.
    Silence silence = {};
  };
  transport::Tag tag() const;
  transport::Operation receive_sign(NodeId peer);
  bool has_come(NodeId node, Peer& peer, const WorkOfDevices& devices);

  transport::Transport* transport_ = nullptr;
  EpochNumber epoch_number_ = 0;
  Pace pace_;
  std::map<NodeId, Peer> peers_;
};

}  // namespace troupe::actors
