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

#include "models/layer.hpp"
#include "runtime/state/adamw.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

class Device;

/// What a device holds of a layer that trains: gradients, and the optimizer's state.
class ParameterShard {
 public:
  /// `parameters` outlive this object and keep their order. Gradients accumulate in fp64 for fp64
  /// parameters and in fp32 otherwise; bf16 parameters get an fp32 master copy.
  explicit ParameterShard(std::vector<models::Parameter*> parameters);
  /// The same with optimizer state that lies elsewhere, one per parameter; handles are copied.
  ParameterShard(std::vector<models::Parameter*> parameters,
                 std::vector<state::AdamWState> optimizers);

  /// Flat gradients, [elements]; the reduced ones after a reduction has written them here.
  at::Tensor& gradients() { return gradients_; }
  std::int64_t elements() const { return gradients_.numel(); }  ///< Of all parameters.
  const std::vector<models::Parameter*>& parameters() const { return parameters_; }  ///< In order.
  /// Which of the flat gradients are of parameters that their family moves (`Parameter::update`),
  /// ascending: sums of contributions, which count in no norm.
  const std::vector<IndexRange>& own_updates() const { return own_updates_; }

  /// Of each parameter, in their order.
  std::vector<state::AdamWState>& optimizers() { return optimizers_; }
  Bytes optimizer_bytes() const;  ///< Of masters and moments.

  /// In work, of masters and moments that lie in host memory: copies of them come to the device,
  /// and stand in their place. What lies side by side there comes, and goes back, in one copy: in a
  /// store a layer's moments, and its masters. Returns their bytes. Throws c10::Error where they
  /// have come already.
  Bytes fetch_state(Device& device);
  /// In work: the copies go to where they came from, and are let go of. Returns their bytes. Throws
  /// c10::Error where there are none.
  Bytes offload_state(Device& device);
  bool has_fetched_state() const { return !in_host_.empty(); }  ///< Copies are on the device.
  void forget_fetched_state();  ///< Lets go of copies, if there are any; they go nowhere.

  /// Takes over parameters and optimizer state of another holder of the same group.
  void copy_from(const ParameterShard& other);

  /// Sets gradients to zero, where the last update has not, and lets autograd accumulate into them.
  void zero();

  /// Adds what the last backward left in bf16 to the fp32 gradients. Nothing to do for others.
  void harvest();

  /// One AdamW step with the reduced gradients times `clip` (`state::adamw_step`), or the step of
  /// the parameter's own rule (`own_step`), which is not clipped. Gradients are zero afterwards;
  /// `step` from 1.
  void update(const state::AdamWOptions& options, std::int64_t step, double learning_rate,
              double clip);

  /// Puts a copy of each parameter's gradient into `target` by its name.
  void copy_gradients(std::map<std::string, at::Tensor>& target) const;

  /// Hash of the parameters' bytes: equal at every holder of a group after every step.
  std::uint64_t hash() const;

 private:
  void update_on_device(const state::AdamWOptions& options, std::int64_t step, double learning_rate,
                        double clip);
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
