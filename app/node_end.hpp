// How the process of a node waits for its end: for its actor, or for a signal and the time after.

#pragma once

#include <atomic>
#include <chrono>
#include <future>

#include "actors/link/protocol.hpp"

namespace troupe::app {

/// What the job gives a node to end in, as its actor comes to know it. Thread-safe.
struct TimeToEnd {
  std::atomic<double> stop_s = 2;  ///< While it opens its data nothing is there to save.
  std::atomic<double> drain_s = 0;
  std::atomic<bool> is_draining = false;     ///< The head lets it leave, after a signal.
  std::atomic<bool> waits_for_head = false;  ///< It may outlive the process that started it.

  std::chrono::milliseconds after_signal() const;
};

struct Waited {
  int signal = 0;        ///< The last one that came; 0: none.
  bool is_late = false;  ///< Of one signal: the actor was not done when the time after it was over.
};

/// Waits until the node's actor is done. A signal ends it by way of the supervisor, so that all
/// others hear why; a second one, or a supervisor that does not answer, ends the wait at once.
/// REQUIRES: the main thread, whose signals are blocked (`signals.hpp`).
Waited wait_for_end(std::future<actors::JobEnd>& ended, const actors::NodeActor& node,
                    const TimeToEnd& time);

/// Says that a node which was let go could not give its state away in time. A local one does, too:
/// the head sees a process that ends, and no reason.
void say_stayed_too_long(NodeId node, double drain_s);

}  // namespace troupe::app
