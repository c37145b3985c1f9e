// A device's store with the state that a plan gives to it, from the seed.

#pragma once

#include "tests/torch_catch.hpp"

#include <memory>

#include "engine/state/state_store.hpp"
#include "engine/state/state_transfer.hpp"
#include "scheduler/state/state_moves.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::engine {

/// `setup` outlives the store.
inline StateStore seeded_store(const JobSetup& setup, const ParallelPlan& plan, DeviceId device) {
  const Dtype dtype = setup.job.train.dtype;
  const auto want = scheduler::place_state(plan, setup.parameters, dtype);
  StateStore store(plan.devices[device.index()], setup.parameters, dtype);
  REQUIRE(store.stage(want).ok());
  const auto moves = scheduler::plan_state_moves(setup.parameters, dtype, {}, want).value().moves;
  transport::TransportOptions options;
  options.hub = std::make_shared<transport::InprocHub>();
  options.self = store.device().node.value;
  const auto alone = transport::create_transport("inproc", options).value();
  REQUIRE(StateTransfer(store, setup, moves, *alone, 1, {}, [] {}).advance().value());
  store.settle();
  return store;
}

}  // namespace troupe::engine
