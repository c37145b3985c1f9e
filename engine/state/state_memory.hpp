// Whether what a layout keeps all the time fits into its devices, before anything is measured.
//
// Pure.

#pragma once

#include <map>

#include "runtime/job/job.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// What devices hold beside their state while a checkpoint is made: a copy of what each of them
/// writes of it. Nothing where the job saves none by itself. Cost: as `scheduler::plan_save`.
std::map<DeviceSlot, Bytes> checkpoint_copies(const job::Job& job, const ParallelPlan& plan);

/// Devices that share memory are looked at together: those of this machine's nodes, and those of
/// each other node. `memory`: of one device. Where the job says it, each device for itself.
/// `beside`: what a change of layout brings to devices while `plan` is still there.
/// Errors: infeasible: parameters, gradients and optimizer, and what kinds of stages hold besides,
/// alone take more, or with the copy for a checkpoint (`checkpoint_copies`); names the devices.
Status check_state_memory(const job::Job& job, const ParallelPlan& plan, Bytes memory,
                          const std::map<DeviceSlot, Bytes>& beside = {});

/// Memory of one device, which nodes of one job need not have alike.
struct DeviceRooms {
  Bytes usual;                       ///< Where a node has not said what it has.
  std::map<NodeId, Bytes> own = {};  ///< Of each device of a node that has.

  Bytes of(NodeId node) const {
    const auto found = own.find(node);
    return found == own.end() ? usual : found->second;
  }
};

/// The same where nodes have said what they have.
Status check_state_memory(const job::Job& job, const ParallelPlan& plan, const DeviceRooms& rooms,
                          const std::map<DeviceSlot, Bytes>& beside = {});

}  // namespace troupe::engine
