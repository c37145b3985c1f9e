// Notices work that a device of this node has been at for long: a stage may never return, and the
// thread that could say so is in it.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "actors/link/heartbeat.hpp"
#include "engine/execution/work_in_hand.hpp"
#include "engine/iteration/reports.hpp"

namespace troupe::actors {

/// What each device of a node is in the middle of, by its number there.
using WorkOfDevices = std::map<std::int32_t, std::shared_ptr<engine::WorkInHand>>;

/// Work that has taken so long is told, so often: 10 s, or a quarter of `train.stall_timeout_s` or
/// of `cluster.join_timeout_s`, so that whoever waits so long for a step, or for a layout to come
/// up, has heard before what it waits for.
Duration long_work_interval(double stall_timeout_s, double join_timeout_s);

/// Single owner, not thread-safe; time is handed in, but how long work has taken is the devices' to
/// say.
class WorkWatch {
 public:
  /// Time passes. What is to be told now: all that has taken `interval` or longer, at most every
  /// `interval`; once nothing does any more, that.
  std::optional<engine::LongWorks> pass(Time now, Duration interval, const WorkOfDevices& devices);

 private:
  Pace pace_;
  bool is_told_ = false;  ///< Of some work, which may have returned since.
};

}  // namespace troupe::actors
