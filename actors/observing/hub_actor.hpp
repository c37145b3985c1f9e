// In the head process: which listeners there are, and what nodes show them.
//
// It keeps nothing of what passes. A listener that takes nothing for long is let go; one that dies
// is forgotten, and the nodes are told.

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "actors/link/observing.hpp"

namespace troupe::actors {

/// At a time, of one job.
inline constexpr std::size_t kListenersMax = 8;

/// For a listener to which something was sent to take any of it.
inline constexpr std::chrono::seconds kListenerPatience{30};

/// For listeners to leave a job that has ended.
inline constexpr std::chrono::seconds kLeaveTimeOfListeners{1};

/// For nodes to say what a listener that leaves has missed.
inline constexpr std::chrono::milliseconds kCountTime{500};

struct ObservingHubState {
  using Clock = std::chrono::steady_clock;
  struct Listener {
    caf::strong_actor_ptr handle;
    ListenRequest request;
    std::map<std::int32_t, std::uint64_t> untaken;  ///< By node.
    Clock::time_point took;                         ///< Last; or when there was nothing to take.
    std::map<std::int32_t, ShownCount> counts;      ///< By node.
  };

  std::string job;
  std::vector<std::string> modules;              ///< That it has.
  std::function<void(const std::string&)> tell;  ///< Takes lines for the log.
  std::map<std::uint64_t, Listener> listeners;
  std::map<std::int32_t, caf::strong_actor_ptr> nodes;  ///< Their presenters.
  std::size_t leaving = 0;  ///< Listeners of whom nodes are asked what they missed.
  std::uint64_t last_id = 0;
  bool ticks = false;  ///< A look at the time is on its way.
  bool is_over = false;
  caf::typed_response_promise<over_atom> all_left;  ///< Waits until they have.

  static inline const char* name = "observing-hub";
};

/// `modules`: of the job. `tell`: called by whoever runs the actor; must not block.
ObservingHubActor::behavior_type observing_hub(
    ObservingHubActor::stateful_pointer<ObservingHubState> self, std::string job,
    std::vector<std::string> modules, std::function<void(const std::string&)> tell);

}  // namespace troupe::actors
