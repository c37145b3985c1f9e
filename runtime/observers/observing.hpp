// The observers of one node process, each on a thread of its own behind a queue with a bound.
//
// Thread-safe. Nothing here waits for an observer but `end`, which waits for two seconds.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "runtime/observers/observer.hpp"
#include "runtime/observers/watch.hpp"

namespace troupe::observers {

/// What became of what was shown, since it was asked last.
struct Tally {
  std::int64_t shown = 0;
  std::int64_t dropped = 0;  ///< The queue was full, or the observer had ended.
  /// One sentence each: of observers that were ended, and of what nobody shows them.
  std::vector<std::string> troubles;

  /// Adds what happened later, or elsewhere. Of the same trouble twice one is told.
  void add(const Tally& other);

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Tally& x) {
    return f(x.shown, x.dropped, x.troubles);
  }
};
/// Those of a node.
class Observing {
 public:
  /// Makes an observer per watch. `run`: the run folder, in which each gets a folder of its own
  /// (`Place::folder`). One that cannot be made is a trouble of the first tally.
  Observing(const std::vector<Watch>& watches, const std::string& job, std::int32_t node,
            const std::filesystem::path& run);
  ~Observing();
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

  /// Whether somebody looks at this of a module in that step.
  bool wants(std::int64_t step, const std::string& module, Kind kind) const;

  /// To all who want it, as far as their queues have room.
  void show(std::shared_ptr<const Observed> observed);
  /// To all. Words on steps always find room.
  void show(const ObservedStep& step);
  /// Since it was asked last.
  Tally take_tally();

  /// Lets all see what waits and end; leaves behind who takes longer than this.
  void end(std::chrono::milliseconds patience = std::chrono::seconds(2));

 private:
  struct Seat;

  static bool wants(const Watch& watch, std::int64_t step, const std::string& module, Kind kind);
  static void serve(const std::shared_ptr<Seat>& seat);

  // Shared with the thread, which may outlive this object where an observer hangs.
  std::vector<std::shared_ptr<Seat>> seats_;
  std::mutex mutex_;
  Tally tally_;
  bool has_ended_ = false;
};

}  // namespace troupe::observers
