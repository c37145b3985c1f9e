// What one device keeps of the model, whoever computes with it: outlives stages and layouts.
//
// A layout changes in two phases. `stage` makes room for what the new one wants and leaves what is
// here alone; `settle` turns over to it and lets go of what it does not want; until then `abandon`
// leaves the store as it was. Used by one thread.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/layer.hpp"
#include "runtime/state/adamw.hpp"
#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

class StateStore {
 public:
  /// `parameters` outlive the store; `place`: where the device's tensors lie. Masters and moments
  /// that are in host memory but for their update (`ParameterInfo::moments_in_host`) lie there.
  StateStore(DeviceSlot device, const std::vector<ParameterInfo>& parameters, Dtype dtype,
             c10::Device place = c10::kCPU);

  DeviceSlot device() const { return device_; }
  const std::vector<ParameterInfo>& parameters() const { return parameters_; }

  /// Makes room for this device's shards of `want`; those that are here already stay as they are.
  /// New shards of one layer and kind lie one behind the other in one buffer. Their contents are
  /// unspecified until somebody writes them. Late ones that were not kept are not here.
  /// Errors: infeasible: no memory, of the device or of its host. Nothing has changed then, but for
  /// those. Throws what a device that fails does.
  Status stage(const StatePlacement& want);

  /// A view of a piece of what is here, or an undefined tensor. Moments: [2, shape of the box].
  at::Tensor held(const ShardKey& piece) const;
  /// The same in the room that `stage` made, and in what is late.
  at::Tensor incoming(const ShardKey& piece) const;

  /// The staged layout's shards are the store's, and no others. `is_late`: what was staged is being
  /// written yet, and goes with the next `stage` unless it is kept before.
  void settle(bool is_late = false);
  /// What was late is here like everything else.
  void keep_late() { late_.clear(); }
  /// Forgets what was staged.
  void abandon();

  /// Gives a layer the values that are kept here: as leaves that share the store's memory, each use
  /// with a gradient of its own. Errors: internal: one of them is not here.
  Status bind(models::Layer& layer) const;
  /// Master and moments of these, which train and are here: handles to the store's memory, which
  /// may be the host's.
  std::vector<state::AdamWState> optimizers(
      const std::vector<models::Parameter*>& parameters) const;

  /// Ascending.
  std::vector<ShardKey> keys() const;

 private:
  using Shards = std::map<ShardKey, at::Tensor>;

  const at::Tensor* whole(const std::string& name, StateKind kind) const;
  Result<Shards> allocate(const std::vector<ShardKey>& keys) const;
  Result<at::Tensor> buffer_of(std::int64_t numbers, const at::TensorOptions& type,
                               bool in_host) const;
  Error no_memory(const std::string& words, bool in_host) const;
  bool is_in_host(const ShardKey& key) const;
  static at::Tensor piece_of(const Shards& shards, const ShardKey& piece);

  DeviceSlot device_;
  const std::vector<ParameterInfo>& parameters_;
  Dtype dtype_;
  c10::Device place_;
  std::map<std::string, ParameterId> names_;
  Shards shards_;
  Shards staged_;
  Shards late_;                   ///< Of `shards_`.
  std::vector<ShardKey> wanted_;  ///< Of the staged layout: those of `staged_` and those that stay.
};

}  // namespace troupe::engine
