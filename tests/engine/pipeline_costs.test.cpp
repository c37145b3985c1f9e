#include "tests/torch_catch.hpp"

#include "engine/iteration/pipeline_costs.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "tests/scheduler/two_layers.hpp"

namespace troupe::engine {
namespace {

using Catch::Approx;

/// An encoder stage and an llm stage, on one device each or on the same.
struct Fixture {
  ParallelPlan plan;
  std::vector<SampleShape> shapes;
  std::vector<std::int32_t> own;
  scheduler::SimulationCosts costs;
  std::vector<balancer::Workload> work;
  std::string schedule;

  Fixture(bool shared, std::string name) : schedule(std::move(name)) {
    const std::int32_t other = shared ? 0 : 1;
    HandLayout layout;
    layout.pipelines.push_back({{0, 0, {{"vision", {}}}}, {other, 0, {{"llm", {}}}}});
    plan =
        scheduler::place_by_hand(scheduler::testing::two_layers(), layout, {other + 1, 1}).value();
    for (std::int32_t i = 0; i < 8; ++i) {
      shapes.push_back(scheduler::testing::two_layer_sample(5 + 3 * i % 7, 10 + 11 * i % 13));
      own.push_back(i);
    }
    const auto cost_model = scheduler::testing::two_layer_costs(2, 0);
    costs = scheduler::predicted_costs(plan, cost_model, shapes).value();
    const auto weights = scheduler::sample_workloads(cost_model, shapes).value();
    for (const auto& one : weights) work.push_back({one.encoder_total_ms, one.llm_total_ms});
  }

  PipelineCosts make(std::int64_t microbatches) const {
    return {plan, {PipelineId{0}, schedule, microbatches, {}, false}, costs, own, shapes};
  }
};

TEST_CASE("an estimate from loads is the step of the plan with these loads", "[engine]") {
  const std::string schedule = GENERATE("1f1b", "gpipe");
  CAPTURE(schedule);
  const Fixture fixture(false, schedule);
  const auto pipeline = fixture.make(3);
  const auto estimator = pipeline.estimator(balancer::total(fixture.work));
  REQUIRE(estimator);
  for (const auto& groups : {balancer::SampleGroups{{0, 1, 2}, {3, 4, 5}, {6, 7}},
                             balancer::SampleGroups{{5}, {0, 2, 4, 6, 7}, {1, 3}}}) {
    const auto plan = balancer::without_deferral(groups);
    std::vector<scheduler::ModuleWork> loads;
    for (const auto& load : group_loads(fixture.work, groups))
      loads.push_back({load.encoder_ms, load.llm_ms});
    CHECK((*estimator)(loads) == Approx(pipeline.step_ms(plan)).epsilon(0.01));
  }
}

TEST_CASE(
    "there is no estimate where times decide an order, or for fewer samples than microbatches",
    "[engine]") {
  const Fixture searching(false, "zero-bubble"), shared(true, "1f1b"), few(false, "1f1b");
  CHECK_FALSE(searching.make(3).estimator(balancer::total(searching.work)));
  CHECK_FALSE(shared.make(3).estimator(balancer::total(shared.work)));
  CHECK_FALSE(few.make(9).estimator(balancer::total(few.work)));
}

TEST_CASE("a plan whose rows wait for two microbatches cannot run", "[engine]") {
  const Fixture fixture(false, "1f1b");
  const auto late =
      balancer::make_plan({{0, 1, 2}, {3, 4}, {5, 6, 7}}, {{1, 2}, {3, 4}, {0, 5, 6, 7}});
  CHECK(fixture.make(3).step_ms(late) == std::numeric_limits<double>::infinity());
}

TEST_CASE("a pipeline's plans take what its own stages take, whatever stands beside", "[engine]") {
  const std::string schedule = GENERATE("1f1b", "zero-bubble");
  const Fixture single(false, schedule);
  Fixture both(false, schedule);
  HandLayout layout;
  for (const std::int32_t node : {0, 2})
    layout.pipelines.push_back({{node, 0, {{"vision", {}}}}, {node + 1, 0, {{"llm", {}}}}});
  both.plan = scheduler::place_by_hand(scheduler::testing::two_layers(), layout, {4, 1}).value();
  // The first pipeline is ten times as slow, and has room for one microbatch.
  both.costs.task_ms = [&](StageId stage, const std::vector<std::int32_t>& samples,
                           scheduler::TaskKind kind) {
    const bool is_other = stage.index() < 2;
    return (is_other ? 10 : 1) * single.costs.task_ms(StageId{stage.index() % 2}, samples, kind);
  };
  const auto cost = [](const Fixture& fixture, PipelineId pipeline,
                       std::vector<std::int32_t> in_flight) {
    const PipelineRules rules{pipeline, fixture.schedule, 4, std::move(in_flight), false};
    return PipelineCosts(fixture.plan, rules, fixture.costs, fixture.own, fixture.shapes)
        .step_ms(balancer::without_deferral({{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  };
  const double wide = cost(single, PipelineId{0}, {2, 1});
  CHECK(cost(both, PipelineId{1}, {1, 1, 2, 1}) == wide);
  CHECK(cost(both, PipelineId{1}, {2, 1, 1, 1}) == cost(single, PipelineId{0}, {1, 1}));
  CHECK(cost(single, PipelineId{0}, {1, 1}) > wide);
  CHECK(cost(both, PipelineId{0}, {2, 1, 1, 1}) > 5 * wide);
}

TEST_CASE("a pipeline's rows take the links between its own devices", "[engine]") {
  const Fixture single(false, "1f1b");
  Fixture many(false, "1f1b");
  // Inside a node one way and the other, then between nodes the other and one way.
  HandLayout layout;
  layout.pipelines = {{{0, 0, {{"vision", {}}}}, {0, 1, {{"llm", {}}}}},
                      {{1, 1, {{"vision", {}}}}, {1, 0, {{"llm", {}}}}},
                      {{3, 0, {{"vision", {}}}}, {2, 1, {{"llm", {}}}}},
                      {{2, 0, {{"vision", {}}}}, {3, 1, {{"llm", {}}}}}};
  many.plan = scheduler::place_by_hand(scheduler::testing::two_layers(), layout, {4, 2}).value();
  many.costs.task_ms = [&](StageId stage, const std::vector<std::int32_t>& samples,
                           scheduler::TaskKind kind) {
    return single.costs.task_ms(StageId{stage.index() % 2}, samples, kind);
  };
  const auto cost = [&](const Fixture& fixture, std::size_t pipeline) {
    auto costs = many.costs;
    costs.node = {1, 0};
    costs.network = {100, 0};
    const PipelineRules rules{PipelineId{pipeline}, "1f1b", 4, {}, false};
    return PipelineCosts(fixture.plan, rules, costs, fixture.own, fixture.shapes)
        .step_ms(balancer::without_deferral({{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  };
  CHECK(cost(many, 0) == cost(many, 1));
  CHECK(cost(many, 2) == cost(single, 0));
  CHECK(cost(many, 3) == cost(single, 0));
  CHECK(cost(many, 2) > cost(many, 0) + 100);  // Rows, and their gradient.
}

}  // namespace
}  // namespace troupe::engine
