// What a device keeps up to date without a stage for it: the trainable parameters of the groups
// that it is on standby for, with room for their sums. (Frozen parameters lie in its store and
// never change.)
//
// Owned by the device's actor, used in work of the device, and between steps.

#pragma once

#include <map>
#include <memory>
#include <vector>

#include "engine/execution/parameter_shard.hpp"
#include "engine/state/state_store.hpp"
#include "models/layer.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

class StandbyState {
 public:
  /// Binds the groups that `device` is on standby for to what `store` holds, whose memory is
  /// shared. Parameters of a group lie in the order of their layer, as at every other holder.
  /// `modules`: those that the plan's model was built from; their families move some parameters.
  ///
  /// Errors: internal: the store lacks one of them, or a group's size differs from theirs.
  static Result<StandbyState> create(const ParallelPlan& plan, DeviceId device,
                                     const StateStore& store,
                                     const std::vector<ModuleConfig>& modules);

  /// The groups, ascending.
  const std::map<GroupId, std::unique_ptr<ParameterShard>>& groups() const { return groups_; }
  ParameterShard& at(GroupId group) { return *groups_.at(group); }

 private:
  // Lifetime: the holders refer to the parameters.
  std::vector<std::unique_ptr<std::vector<models::Parameter>>> parameters_;
  std::map<GroupId, std::unique_ptr<ParameterShard>> groups_;
};

}  // namespace troupe::engine
