// Notices a step that takes far longer than those before it: a lost message between nodes that both
// live stops a job without an error. Pure; time is handed in.

#pragma once

#include "actors/link/heartbeat.hpp"

namespace troupe::actors {

class StallWatch {
 public:
  /// A step has ended after this time.
  void ended(Duration took);

  /// Steps begin in another layout: what was told last was of one that was given up.
  void begun() { told_ = {}; }

  /// True where a step has taken so long that it should be told: 30 s and ten times the longest
  /// step before it, then again at every doubling.
  bool overdue(Duration waited);

  /// True where nobody should wait any longer: after `limit` (`train.stall_timeout_s`) and ten
  /// times the longest step before it.
  bool hopeless(Duration waited, Duration limit) const;

  /// For how long a message between two nodes may be on its way: for `limit`, and for three times
  /// the longest step so far; while there is none, for 30 s.
  Duration message_bound(Duration limit) const;

 private:
  Duration bound() const;

  Duration longest_{};
  Duration told_{};  ///< How long the step had taken when it was last told; 0: not yet.
};

}  // namespace troupe::actors
