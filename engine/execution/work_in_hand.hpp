// What a device is in the middle of, or waits for, for whoever watches it from another thread: work
// that never returns stops a step without an error, and the thread that could say so is the one
// that hangs. A message that is lost on its way stops it likewise.
//
// Thread-safe. Costs the device four uncontended locks per action, and one where it must wait or
// the copy under way is another one; one per function that is called beside the list.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "engine/execution/device.hpp"
#include "engine/iteration/reports.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// What a device waits for now. Each wait has a number of its own, and so has the rest of one after
/// something of it has come.
struct PresentWait {
  std::int64_t number = 0;  ///< From 1.
  LongWait wait;            ///< Without its time, which is for whoever watches it to measure.
};

/// A function of a stage's that is called in work of no action, or beside all work.
struct StageCall {
  StageId stage = {};  ///< Invalid: no stage's, or nobody said.
  std::string function = {};
};

class WorkInHand {
 public:
  /// Says what an action is; none: work that is no action of the list, with the function that it
  /// calls. Called under the lock of this, so that nothing of it ends meanwhile; from the thread of
  /// whoever asks.
  using Describe = std::function<LongWork(const Action* action, const StageCall& call)>;

  /// Whose work it is from now on. Empty: nobody's; nothing is in hand then.
  void belong_to(Describe describe);

  /// A thread of the device turns to this work, or function, and leaves it again.
  void entered(const Action* action, StageCall call = {});
  void left();
  /// In work of no action, if a thread is in any: it calls this function since now.
  void calls(StageCall call);

  /// Work is on the device, behind all before it, until it is taken off: the oldest first. What has
  /// completed meanwhile does not count. `action` stays valid so long.
  void launched(const Action* action, std::shared_ptr<const Launch> launch);
  void taken();
  /// None of it is any more, no copy either, nor is anything waited for.
  void dropped();

  /// Since now this copy out of the device is under way, beside the work: until it has completed,
  /// or another one is. None: none is. While one is the device waits for nobody, and has not sent
  /// yet what it copies.
  void copies(std::shared_ptr<const Launch> copy);

  /// The device goes no further before this has come, until it launches something.
  void waits(LongWait present);
  /// None: it is at work, or copies, or has no list to go through.
  std::optional<PresentWait> wait() const;

  /// What the device has been at for this long, in [0, inf), or longer: the work in which a thread
  /// of it is, else the oldest that has not completed, or a copy that is older. None: nothing has
  /// taken so long.
  std::optional<LongWork> longer_than(double seconds) const;

  /// A message of state has come from this node, for whatever layout. From any thread.
  void came(NodeId from);
  /// So many have so far.
  std::int64_t came_from(NodeId node) const;

 private:
  struct Item {
    const Action* action = nullptr;
    std::int64_t since_ns = 0;
    std::shared_ptr<const Launch> launch;  ///< None: a thread is in it.
    StageCall call = {};
  };
  std::optional<Item> oldest() const;
  std::optional<Item> oldest_work() const;
  bool is_copying() const;

  mutable std::mutex mutex_;
  Describe describe_;
  std::optional<Item> entered_;
  std::deque<Item> launched_;
  std::optional<Item> copying_;
  std::int64_t waits_ = 0;  ///< So many so far.
  std::optional<LongWait> wait_;
  std::map<NodeId, std::int64_t> came_;
};

/// As long as it lives a thread is in work, or in a function. `in_hand`: null where nobody watches.
class Presence {
 public:
  Presence(WorkInHand* in_hand, const Action* action, StageCall call = {}) : in_hand_(in_hand) {
    if (in_hand_ != nullptr) in_hand_->entered(action, std::move(call));
  }
  ~Presence() {
    if (in_hand_ != nullptr) in_hand_->left();
  }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

 private:
  WorkInHand* const in_hand_;
};

}  // namespace troupe::engine
