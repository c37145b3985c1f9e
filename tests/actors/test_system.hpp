// An actor system for tests: messages run one at a time, in the order in which they were sent, on
// the test's own thread, and time passes only when the test says so. No network, no sleeping.

#pragma once

#include <caf/all.hpp>
#include <chrono>

#include "actors/link/protocol.hpp"

namespace troupe::actors {

class TestSystem {
 public:
  TestSystem();
  ~TestSystem();

  caf::actor_system& get() { return system_; }

  /// Delivers messages until none is left.
  void run();

  /// Lets time pass in steps of 50 ms and delivers what becomes due.
  void pass(std::chrono::milliseconds time);

 private:
  struct Config : caf::actor_system_config {
    Config();
  };

  Config config_;
  caf::actor_system system_;
};

}  // namespace troupe::actors
