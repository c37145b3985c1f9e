// A state of a user's around another one: what is not overridden goes on to it.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/execution/group_state.hpp"

namespace troupe::engine {

class HookedState : public GroupState {
 public:
  /// `inner` outlives this.
  explicit HookedState(GroupState& inner) : inner_(inner) {}

  const std::vector<models::Parameter*>& parameters() const override { return inner_.parameters(); }
  at::Tensor& gradients() override { return inner_.gradients(); }
  const std::vector<IndexRange>& own_updates() const override { return inner_.own_updates(); }
  void copy_gradients(std::map<std::string, at::Tensor>& target) const override {
    inner_.copy_gradients(target);
  }
  Bytes optimizer_bytes() const override { return inner_.optimizer_bytes(); }
  Bytes fetch_state(Device& device) override { return inner_.fetch_state(device); }
  Bytes offload_state(Device& device) override { return inner_.offload_state(device); }
  bool has_fetched_state() const override { return inner_.has_fetched_state(); }
  void forget_fetched_state() override { inner_.forget_fetched_state(); }
  void update(const state::AdamWOptions& options, std::int64_t step, double learning_rate,
              double clip) override {
    inner_.update(options, step, learning_rate, clip);
  }
  std::uint64_t hash() const override { return inner_.hash(); }

 protected:
  GroupState& inner() const { return inner_; }

 private:
  GroupState& inner_;
};

}  // namespace troupe::engine
