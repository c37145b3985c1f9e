#include "engine/state/seeded_store.hpp"

#include <memory>
#include <utility>

#include "engine/state/state_transfer.hpp"
#include "scheduler/state/state_moves.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::engine {

Result<StateStore> seeded_store(const JobSetup& setup, const ParallelPlan& plan, DeviceId device) {
  const Dtype dtype = setup.job.train.dtype;
  const auto want = scheduler::place_state(plan, setup.parameters, dtype);
  StateStore store(plan.devices[device.index()], setup.parameters, dtype);
  if (auto staged = store.stage(want); !staged.ok()) return staged.error();
  const auto moves = scheduler::plan_state_moves(setup.parameters, dtype, {}, want);
  if (!moves.ok()) return moves.error();
  transport::TransportOptions options;
  options.hub = std::make_shared<transport::InprocHub>();
  options.self = store.device().node.value;
  const auto alone = transport::create_transport("inproc", options);
  if (!alone.ok()) return alone.error();
  // From the seed: nothing is waited for.
  StateTransfer transfer(store, setup, moves.value().moves, *alone.value(), 1, {}, [] {});
  if (auto filled = transfer.advance(); !filled.ok()) return filled.error();
  store.settle();
  return store;
}

}  // namespace troupe::engine
