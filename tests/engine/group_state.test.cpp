#include "tests/torch_catch.hpp"

#include "engine/execution/group_state.hpp"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/engine/hooked_stage.hpp"
#include "tests/engine/hooked_state.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

/// A state of a user's around the engine's, which counts the steps of its optimizer.
class OwnState final : public HookedState {
 public:
  OwnState(GroupState& inner, int& updates) : HookedState(inner), updates_(updates) {}

  void update(const state::AdamWOptions& options, std::int64_t step, double learning_rate,
              double clip) override {
    ++updates_;
    HookedState::update(options, step, learning_rate, clip);
  }

 private:
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
