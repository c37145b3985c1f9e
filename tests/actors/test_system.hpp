// An actor system for tests: messages run one at a time, in the order in which they were sent, on
// the test's own thread, and time passes only when the test says so. No network, no sleeping.

#pragma once

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <chrono>

#include "actors/link/protocol.hpp"

namespace troupe::actors {

class TestSystem {
 public:
  caf::actor_system& get() { return system_; }

  /// Delivers messages until none is left.
  void run() {
    while (coordinator().try_run_once()) continue;
  }

  /// Lets time pass in steps of 50 ms and delivers what becomes due.
  void pass(std::chrono::milliseconds time) {
    constexpr std::chrono::milliseconds kStep{50};
    for (run(); time.count() > 0; time -= kStep) {
      coordinator().advance_time(kStep);
      run();
    }
  }

 private:
  struct Config : caf::actor_system_config {
    Config() {
      add_messages(*this);
      set("scheduler.policy", caf::atom("testing"));
    }
  };

  caf::scheduler::test_coordinator& coordinator() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }

  Config config_;
  caf::actor_system system_{config_};
};

}  // namespace troupe::actors
