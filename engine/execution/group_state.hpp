// What a stage keeps of the parameters of one group, as executors, sums and updates see it.
//
// Who writes a stage has one from `StageLayers` and hands it on, as it is or in one of his own; all
// that executors do with a parameter goes through it. Owned by its stage, used in work of the
// stage's device, and between steps.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/layer.hpp"
#include "runtime/state/adamw.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

class Device;

/// Parameters of a group that train, their gradients, and the optimizer's state. Values, masters
/// and moments lie in the store of the stage's device, which moves and saves them by itself: one of
/// a user's own stands around the engine's, to which `update`, the calls about moments and `hash`
/// go on.
class GroupState {
 public:
  virtual ~GroupState() = default;

  virtual const std::vector<models::Parameter*>& parameters() const = 0;  ///< In order.
  /// Flat gradients of all parameters, one behind the other, [elements]; the reduced ones after a
  /// reduction has written them here. fp64 where the parameters are, else fp32, also for bf16;
  /// contiguous, on the parameters' device, and the same memory from a step's first backward until
  /// `update` has read it.
  virtual at::Tensor& gradients() = 0;
  /// Which of the flat gradients are of parameters that their family moves (`Parameter::update`),
  /// ascending: sums of contributions, which count in no norm.
  virtual const std::vector<IndexRange>& own_updates() const = 0;
  /// Puts a copy of each parameter's gradient into `target` by its name: of the parameter's shape,
  /// the type of `gradients`.
  virtual void copy_gradients(std::map<std::string, at::Tensor>& target) const = 0;

  virtual Bytes optimizer_bytes() const = 0;  ///< Of masters and moments.
  /// In work, of masters and moments that lie in host memory: copies of them come to the device,
  /// and stand in their place. Returns their bytes. Throws c10::Error where they have come already.
  virtual Bytes fetch_state(Device& device) = 0;
  /// In work: the copies go to where they came from, and are let go of. Returns their bytes. Throws
  /// c10::Error where there are none.
  virtual Bytes offload_state(Device& device) = 0;
  virtual bool has_fetched_state() const = 0;  ///< Copies are on the device.
  virtual void forget_fetched_state() = 0;     ///< Lets go of copies, if any; they go nowhere.

  /// One AdamW step with the reduced gradients times `clip` (`state::adamw_step`), or the step of
  /// the parameter's own rule, which is not clipped. Gradients are zero afterwards; `step` from 1.
  virtual void update(const state::AdamWOptions& options, std::int64_t step, double learning_rate,
                      double clip) = 0;
  /// Hash of the bytes of each parameter, its master and both moments, in order, each going on from
  /// the one before (`state::hash_tensor`, from `state::kHashSeed`): equal at every holder of a
  /// group after every step, also at one on standby, which has the engine's own state.
  virtual std::uint64_t hash() const = 0;
};

}  // namespace troupe::engine
