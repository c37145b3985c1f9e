#include "tests/actors/test_system.hpp"

#include <caf/scheduler/test_coordinator.hpp>

namespace troupe::actors {
namespace {

caf::scheduler::test_coordinator& coordinator_of(caf::actor_system& system) {
  return dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
}

}  // namespace

TestSystem::Config::Config() {
  add_messages(*this);
  set("scheduler.policy", caf::atom("testing"));
}

TestSystem::TestSystem() : system_(config_) {}

TestSystem::~TestSystem() = default;

void TestSystem::run() {
  while (coordinator_of(system_).try_run_once()) continue;
}

void TestSystem::pass(std::chrono::milliseconds time) {
  constexpr std::chrono::milliseconds kStep{50};
  for (run(); time.count() > 0; time -= kStep) {
    coordinator_of(system_).advance_time(kStep);
    run();
  }
}

}  // namespace troupe::actors
