#include "runtime/observe/plan_words.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runtime/observe/trace_names.hpp"
#include "tests/runtime/observe/example_plan.hpp"

namespace troupe::observe {
namespace {

TEST_CASE("a layout is told by its pipelines, or by the replicas of its groups", "[observe]") {
  auto plan = testing::example_plan();
  CHECK(layout_words(plan) == "2 pipelines of 3 and 2 stages");
  plan.pipelines.push_back(plan.pipelines[1]);
  plan.replicas.resize(6);
  CHECK(layout_words(plan) == "3 pipelines of 3, 2 and 2 stages");
  plan = testing::example_plan();
  // The second pipeline's replicas join the first one: all are planned together.
  plan.pipelines = {{{ReplicaId{0}, ReplicaId{1}, ReplicaId{2}, ReplicaId{3}}}};
  for (auto& replica : plan.replicas) replica.pipeline = PipelineId{0};
  CHECK(layout_words(plan) == "2 replicas of vision and 2 of llm in 5 stages");
  CHECK(stage_names(plan) ==
        std::vector<std::string>{"vision.0", "llm.0.stage0", "llm.0.stage1", "vision.1", "llm.1"});
}

TEST_CASE("a layout whose sums NCCL orders says so", "[observe]") {
  auto plan = testing::example_plan();
  CHECK(sum_words(plan).empty());
  for (auto& group : plan.groups) group.order = SumOrder::nccl_chain;
  CHECK(sum_words(plan).empty());
  plan.groups[0].order = SumOrder::nccl;
  CHECK(sum_words(plan).starts_with("NCCL adds up the gradients of 1 layer in its own order"));
}

TEST_CASE("a stage is told by the runs of its layers", "[observe]") {
  auto plan = testing::example_plan();
  CHECK(stage_words(plan, plan.stages[0]) == "vision, projector");  // Of one layer each.
  CHECK(stage_words(plan, plan.stages[1]) == "llm 0-1");
  plan.stages[1].runs[0].layers = {3, 4};
  CHECK(stage_words(plan, plan.stages[1]) == "llm 3");
}

TEST_CASE("layers are told by their runs", "[observe]") {
  const auto plan = testing::example_plan();
  const ModuleId vision{0}, llm = plan.model.llm();
  CHECK(layer_words(plan.model, {}).empty());
  CHECK(layer_words(plan.model, {{llm, 1}, {vision, 0}, {llm, 0}, {llm, 3}}) ==
        "vision, llm 0-1, llm 3");
}

}  // namespace
}  // namespace troupe::observe
