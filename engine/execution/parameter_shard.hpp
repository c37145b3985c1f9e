// Parameters, gradients and optimizer state of one parameter group at one of its holders.
//
// Owned by a stage, used in work of its device, and between steps. Gradients of all parameters of
// the group lie one behind the other in one flat tensor, which is what travels in a reduction.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/execution/group_state.hpp"
#include "models/layer.hpp"
#include "runtime/state/adamw.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// What a device holds of a layer that trains: gradients, and the optimizer's state.
class ParameterShard final : public GroupState {
 public:
  /// `parameters` outlive this object and keep their order. Gradients accumulate in fp64 for fp64
  /// parameters and in fp32 otherwise; bf16 parameters get an fp32 master copy.
  explicit ParameterShard(std::vector<models::Parameter*> parameters);
  /// The same with optimizer state that lies elsewhere, one per parameter; handles are copied.
  ParameterShard(std::vector<models::Parameter*> parameters,
                 std::vector<state::AdamWState> optimizers);

  at::Tensor& gradients() override { return gradients_; }
  std::int64_t elements() const { return gradients_.numel(); }  ///< Of all parameters.
  const std::vector<models::Parameter*>& parameters() const override { return parameters_; }
  const std::vector<IndexRange>& own_updates() const override { return own_updates_; }

  /// Of each parameter, in their order.
  std::vector<state::AdamWState>& optimizers() { return optimizers_; }
  Bytes optimizer_bytes() const override;

  /// What lies side by side in host memory comes, and goes back, in one copy: in a store a layer's
  /// moments, and its masters.
  Bytes fetch_state(Device& device) override;
  Bytes offload_state(Device& device) override;
  bool has_fetched_state() const override { return !in_host_.empty(); }
  void forget_fetched_state() override;

  /// Takes over parameters and optimizer state of another holder of the same group.
  void copy_from(const ParameterShard& other);

  /// Sets gradients to zero, where the last update has not, and lets autograd accumulate into them.
  void zero();

  /// Adds what the last backward left in bf16 to the fp32 gradients. Nothing to do for others.
  void harvest();

  /// The step of a parameter's own rule is `own_step`.
  void update(const state::AdamWOptions& options, std::int64_t step, double learning_rate,
              double clip) override;
  void copy_gradients(std::map<std::string, at::Tensor>& target) const override;
  std::uint64_t hash() const override;

 private:
  void take_own_steps(std::int64_t step, double learning_rate);

  std::vector<models::Parameter*> parameters_;
  std::vector<at::Tensor> slices_;  ///< Views of `gradients_`, one per parameter, in its shape.
  std::vector<IndexRange> own_updates_;
  at::Tensor gradients_;
  bool is_zero_ = true;  ///< `gradients_`, since the last update.
  std::vector<state::AdamWState> optimizers_;
  std::vector<state::AdamWState> in_host_;  ///< In whose place are copies; none: there are none.
  /// A run of what lies side by side in host memory, and the copy of it, both flat.
  struct Run {
    at::Tensor host, copy;
  };
  std::vector<Run> runs_;  ///< While there are copies.
};

/// The parameters of `layer` that belong to this group: the tied one of its name, or the layer's
/// own that train and are not tied.
std::vector<models::Parameter*> parameters_of(const ParallelPlan& plan, GroupId group,
                                              models::Layer& layer);

}  // namespace troupe::engine
