// A state of a group that does wrong what a word says, for stages that do (faulty_stage.hpp).

#pragma once

#include "tests/torch_catch.hpp"

#include <ATen/ops/ones.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/execution/device.hpp"
#include "engine/execution/parameter_shard.hpp"
#include "runtime/state/tensor_hash.hpp"
#include "tests/engine/hooked_state.hpp"

namespace troupe::engine {

class FaultyState final : public HookedState {
 public:
  /// `inner`: the engine's own.
  FaultyState(GroupState& inner, std::string fault)
      : HookedState(inner), fault_(std::move(fault)) {}

  void copy_gradients(std::map<std::string, at::Tensor>& target) const override {
    throw_in("copy_gradients");
    if (fault_ == "clears") target.clear();
    HookedState::copy_gradients(target);
    std::int64_t begin = 0;
    for (const models::Parameter* parameter : parameters()) {
      at::Tensor& copy = target.at(parameter->name);
      if (fault_ == "copies zeros") copy.zero_();
      if (fault_ == "copies views")
        copy = inner().gradients().narrow(0, begin, copy.numel()).view(copy.sizes());
      begin += copy.numel();
    }
    if (fault_ == "copies some") target.erase(parameters().back()->name);
    if (fault_ == "copies more") target["another"] = at::ones({1}, at::kDouble);
  }

  Bytes optimizer_bytes() const override {
    throw_in("optimizer_bytes");
    return HookedState::optimizer_bytes() - Bytes{fault_ == "counts less" ? 8 : 0};
  }
  Bytes fetch_state(Device& device) override {
    throw_in("fetch_state");
    device_ = &device;
    is_said_ = fault_ == "fetches nothing";
    if (is_said_) return HookedState::optimizer_bytes();
    const Bytes came = HookedState::fetch_state(device);
    if (fault_ == "fetches half")
      dynamic_cast<ParameterShard&>(inner()).optimizers().back().exp_avg_sq.zero_();
    return came - Bytes{fault_ == "fetches less" ? 8 : 0};
  }
  Bytes offload_state(Device& device) override {
    throw_in("offload_state");
    if (std::exchange(is_said_, false)) return HookedState::optimizer_bytes();
    if (fault_ != "offloads nothing") return HookedState::offload_state(device);
    HookedState::forget_fetched_state();
    return HookedState::optimizer_bytes();
  }
  bool has_fetched_state() const override { return is_said_ || HookedState::has_fetched_state(); }
  void forget_fetched_state() override {
    throw_in("forget_fetched_state");
    if (fault_ == "forgets nothing") return;
    if (fault_ == "forgets into host memory" && HookedState::has_fetched_state())
      HookedState::offload_state(*device_);
    is_said_ = false;
    HookedState::forget_fetched_state();
  }

  std::uint64_t hash() const override {
    throw_in("hash");
    const std::uint64_t own = HookedState::hash();
    if (fault_ == "one hash") return 1;
    if (fault_ == "hashes gradients") return state::hash_tensor(inner().gradients(), own);
    if (fault_ == "hashes its place") return own ^ reinterpret_cast<std::uintptr_t>(this);
    if (fault_ != "hashes values") return own;
    std::uint64_t of_values = state::kHashSeed;
    for (const models::Parameter* parameter : parameters())
      of_values = state::hash_tensor(parameter->value, of_values);
    return of_values;
  }

 private:
  /// Where the fault is `throws in CALL`.
  void throw_in(const std::string& call) const {
    if (fault_ == "throws in " + call) throw std::runtime_error("too tired");
  }

  const std::string fault_;
  Device* device_ = nullptr;  ///< Of the last fetch.
  bool is_said_ = false;      ///< That moments have come, which have not.
};

}  // namespace troupe::engine
