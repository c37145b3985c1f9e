// Notices how long the devices of this node have waited for others: where the way between two nodes
// drops everything in silence, neither of them hears of an error, and the head has to see it.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "actors/link/heartbeat.hpp"
#include "actors/node/work_watch.hpp"
#include "engine/iteration/reports.hpp"

namespace troupe::actors {

/// Waits that have lasted so long are told, so often: half of `cluster.heartbeat_timeout_s`.
Duration long_wait_interval(double heartbeat_timeout_s);

/// Single owner, not thread-safe; time is handed in.
class WaitWatch {
 public:
  /// Time passes. What is to be told now: all waits that have lasted for `interval` or longer, at
  /// most every `interval`; once there is none any more, that. Time counts as in `Silence`: who was
  /// held up itself has not taken yet what came meanwhile. `silent`: told with them, as they are.
  std::optional<engine::LongWaits> pass(Time now, Duration interval, const WorkOfDevices& devices,
                                        std::vector<engine::SilentPeer> silent = {});

 private:
  struct Lasting {
    std::int64_t number = 0;  ///< As `engine::PresentWait`.
    Duration waited{};
  };

  Pace pace_;
  Time last_look_;
  std::map<std::int32_t, Lasting> lasting_;  ///< By the device's number on the node.
  bool is_told_ = false;                     ///< Of some waits, which may be over since.
};

}  // namespace troupe::actors
