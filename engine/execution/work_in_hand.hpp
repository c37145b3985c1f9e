// What a device is in the middle of, for whoever watches it from another thread: work that never
// returns stops a step without an error, and the thread that could say so is the one that hangs.
//
// Thread-safe. Costs the device four uncontended locks per action.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/execution/device.hpp"
#include "engine/iteration/reports.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"

namespace troupe::engine {

class WorkInHand {
 public:
  /// Says what an action is; none: work that is no action of the list. Called under the lock of
  /// this, so that nothing of it ends meanwhile; from the thread of whoever asks.
  using Describe = std::function<LongWork(const Action* action)>;

  /// Whose work it is from now on. Empty: nobody's; nothing is in hand then.
  void belong_to(Describe describe);

  /// A thread of the device turns to this work, and leaves it again.
  void entered(const Action* action);
  void left();

  /// Work is on the device, behind all before it, until it is taken off: the oldest first. What has
  /// completed meanwhile does not count. `action` stays valid so long.
  void launched(const Action* action, std::shared_ptr<const Launch> launch);
  void taken();
  /// None of it is any more.
  void dropped();

  /// What the device has been at for this long, in [0, inf), or longer: the work in which a thread
  /// of it is, else the oldest that has not completed. None: nothing has taken so long.
  std::optional<LongWork> longer_than(double seconds) const;

 private:
  struct Item {
    const Action* action = nullptr;
    std::int64_t since_ns = 0;
    std::shared_ptr<const Launch> launch;  ///< None: a thread is in it.
  };
  std::optional<Item> oldest() const;

  mutable std::mutex mutex_;
  Describe describe_;
  std::optional<Item> entered_;
  std::deque<Item> launched_;
};

}  // namespace troupe::engine
