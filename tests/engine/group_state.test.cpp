#include "tests/torch_catch.hpp"

#include "engine/execution/group_state.hpp"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/hooked_stage.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

/// A state of a user's around the engine's, which counts the steps of its optimizer.
class OwnState final : public GroupState {
 public:
  OwnState(GroupState& inner, int& updates) : inner_(inner), updates_(updates) {}

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
    ++updates_;
    inner_.update(options, step, learning_rate, clip);
  }
  std::uint64_t hash() const override { return inner_.hash(); }

 private:
  GroupState& inner_;
  int& updates_;
};

/// A stage that hands out such states.
class OwnStateStage final : public HookedStage {
 public:
  OwnStateStage(StageProgram& inner, int& updates) : HookedStage(inner, [] {}), updates_(updates) {}

  GroupState& state(GroupId group, LayerId layer) override {
    auto& own = states_[{group, layer}];
    if (!own) own = std::make_unique<OwnState>(HookedStage::state(group, layer), updates_);
    return *own;
  }

 private:
  int& updates_;
  std::map<std::pair<GroupId, LayerId>, std::unique_ptr<OwnState>> states_;
};

TEST_CASE("executors take a state of the user's own as they take the engine's", "[engine]") {
  for (const auto* offloads : {"off", "moments"}) {
    CAPTURE(offloads);
    auto job = tiny_job();
    job.scheduler.offload_encoders = offloads;
    int updates = 0;
    std::vector<std::unique_ptr<OwnStateStage>> stages;  // The cluster tells them when it ends.
    const auto own_stage = [&](StageId, ModelStage& inner) -> StageProgram* {
      return stages.emplace_back(std::make_unique<OwnStateStage>(inner, updates)).get();
    };
    Cluster plain(job), own(job, {}, {}, {}, {}, own_stage);
    for (Cluster* cluster : {&plain, &own})
      for (const std::int64_t batch : {0, 1}) cluster->train(batch);
    CHECK(std::ranges::equal(
        plain.parameters(), own.parameters(),
        [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); }));
    CHECK(updates > 0);
  }
}

}  // namespace
}  // namespace troupe::engine
