// Who looks from outside a node process: what waits for each of them, within bounds.
//
// Thread-safe; nothing here waits. Who brings it to them (actors/observing) takes it out.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/observers/observer.hpp"
#include "runtime/observers/observing.hpp"
#include "runtime/observers/watch.hpp"

namespace troupe::observers {

/// Of the parts that wait for one listener; one part may always wait.
inline constexpr std::size_t kWaitingBytesMax = std::size_t{64} << 20;

/// Bytes of the values of a part.
std::size_t bytes_of(const Observed& part);

class Listeners {
 public:
  using Id = std::uint64_t;
  /// One of both; none: the node has no part in the layout any more.
  struct Item {
    std::shared_ptr<const Observed> part;
    std::shared_ptr<const ObservedStep> step;
  };
  struct Count {
    std::int64_t shown = 0;
    std::int64_t dropped = 0;  ///< Its queue was full.
  };

  /// Called when something waits for somebody, with no lock held, by the thread that showed it.
  /// Empty: nobody is told.
  void on_waiting(std::function<void()> tell);

  /// From the next step on that no device has begun, which is returned.
  std::int64_t add(Id id, const Watch& watch);
  /// Nothing waits for it any more. Unknown ids are fine.
  void remove(Id id);
  void remove_all();

  bool is_empty() const { return !is_anybody_; }
  /// A device begins this step. Whether anybody looks at any of it.
  bool begins(std::int64_t step);
  bool wants(std::int64_t step, const std::string& module, Kind kind) const;
  void show(const std::shared_ptr<const Observed>& part);
  /// To all who look since a step before it. The oldest words make room for the newest.
  void show(const ObservedStep& step);
  /// The node computes nothing from here on, until it says a word on a step again.
  void rest();
  /// The next step that no device has begun.
  std::int64_t next_step() const;

  /// What waits longest; none: nothing, or no such listener.
  std::optional<Item> take(Id id);
  Count count(Id id) const;

  /// Of all listeners, since it was asked last.
  Tally take_tally();

 private:
  struct Listener {
    Watch watch;
    std::int64_t first_step = 0;
    std::deque<Item> waiting;
    std::int64_t parts = 0;  ///< Of those that wait.
    std::size_t bytes = 0;   ///< The same.
    Count count;
  };
  static bool wants(const Listener& listener, std::int64_t step, const std::string& module,
                    Kind kind);
  void tell() const;

  std::atomic<bool> is_anybody_ = false;  ///< So that nobody costs nothing.
  mutable std::mutex mutex_;              ///< Of what follows.
  std::map<Id, Listener> listeners_;
  std::int64_t newest_step_ = 0;  ///< That a device has begun.
  Tally tally_;
  std::shared_ptr<const std::function<void()>> tell_;
};

}  // namespace troupe::observers
