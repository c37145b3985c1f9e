#include "tests/torch_catch.hpp"

#include "engine/learning/learned_state.hpp"

#include "scheduler/layout/place_by_hand.hpp"
#include "tests/scheduler/two_layers.hpp"

namespace troupe::engine {
namespace {

using Modules = std::vector<std::string>;

ParallelPlan place(const HandLayout& layout, std::int32_t nodes) {
  return scheduler::place_by_hand(scheduler::testing::two_layers(), layout, {nodes, 1}).value();
}

/// An encoder on one node, the llm on the other.
ParallelPlan apart() {
  HandLayout layout;
  layout.pipelines.push_back({{0, 0, {{"vision", {}}}}, {1, 0, {{"llm", {}}}}});
  return place(layout, 2);
}

/// The same twice.
ParallelPlan twice() {
  HandLayout layout;
  layout.pipelines.push_back({{0, 0, {{"vision", {}}}}, {1, 0, {{"llm", {}}}}});
  layout.pipelines.push_back({{2, 0, {{"vision", {}}}}, {3, 0, {{"llm", {}}}}});
  return place(layout, 4);
}

LearnedCosts learned_twice() {
  LearnedCosts learned;
  learned.profile = "then";
  learned.stages = learned_stages(twice());
  for (LearnedStage& stage : learned.stages) stage.speed = 2;
  learned.speed_steps = 5;
  learned.samples = {{0, "vision", 64, 2, 3}, {1, "llm", 128, 4, 1}, {2, "vision", 64, 4, 1}};
  learned.parts = {{0, "", 512, 1.5, 2}, {2, "", 1024, 3, 1}};
  learned.watches = false;
  learned.benefit = 9;
  learned.benefit_steps = 4;
  return learned;
}

TEST_CASE("a stage is known by its layers and its device", "[engine]") {
  const auto stages = learned_stages(apart());
  REQUIRE(stages.size() == 2);
  CHECK((stages[0].place == "vision 0-1 on 0.0"));
  CHECK((stages[0].modules == Modules{"vision"}));
  CHECK((stages[1].place == "llm 0-1 on 1.0"));
}

TEST_CASE("on the same layout everything is taken up as it is", "[engine]") {
  CHECK((carried_over(learned_twice(), twice()) == learned_twice()));
}

TEST_CASE("on another layout a module keeps what was learned of it, a stage begins anew",
          "[engine]") {
  const auto now = carried_over(learned_twice(), apart());
  CHECK((now.profile == "then"));
  CHECK((now.stages == learned_stages(apart())));  // Without speeds.
  CHECK((now.speed_steps == 0));
  // Three measurements of 2 and one of 4.
  CHECK((now.samples ==
         std::vector<LearnedFactor>{{0, "vision", 64, 2.5, 4}, {1, "llm", 128, 4, 1}}));
  CHECK((now.parts == std::vector<LearnedFactor>{{0, "", 512, 1.5, 2}, {0, "", 1024, 3, 1}}));
  CHECK(now.watches);
  CHECK((now.benefit == 0));
  CHECK((now.benefit_steps == 0));
}

TEST_CASE("what was learned goes to every stage that runs the module", "[engine]") {
  auto before = learned_twice();
  before.stages = learned_stages(apart());
  before.samples = {{0, "vision", 64, 2, 3}, {1, "llm", 128, 4, 1}, {1, "gone", 64, 7, 1}};
  before.parts = {{1, "", 512, 1.5, 2}};
  const auto now = carried_over(before, twice());
  CHECK((now.samples == std::vector<LearnedFactor>{{0, "vision", 64, 2, 3},
                                                   {1, "llm", 128, 4, 1},
                                                   {2, "vision", 64, 2, 3},
                                                   {3, "llm", 128, 4, 1}}));
  CHECK((now.parts == std::vector<LearnedFactor>{{1, "", 512, 1.5, 2}, {3, "", 512, 1.5, 2}}));
}

TEST_CASE("speeds and corrections come back from what was saved", "[engine]") {
  const ParallelPlan plan = twice();
  StageSpeeds speeds;
  CostCorrection correction(plan);
  CHECK((save_learned(plan, speeds, nullptr) == LearnedCosts{}));
  restore_learned(LearnedCosts{}, plan, speeds, &correction);
  CHECK_FALSE(speeds.known());
  auto before = learned_twice();
  restore_learned(before, plan, speeds, &correction);
  before.profile.clear();  // The planner does not know it.
  CHECK((save_learned(plan, speeds, &correction) == before));
  CHECK_FALSE(correction.tracking());

  const ParallelPlan other = apart();
  StageSpeeds anew;
  restore_learned(before, other, anew, nullptr);
  CHECK_FALSE(anew.known());
  CHECK(anew.factor(StageId{0}) == 1);
}

}  // namespace
}  // namespace troupe::engine
