#include "engine/plan_summary.hpp"

#include <catch2/catch_test_macros.hpp>

#include "scheduler/place_by_hand.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::engine {
namespace {

using scheduler::place_by_hand;

TEST_CASE("a layout is told by pipelines, with nodes and layers", "[engine]") {
  const auto plan = place_by_hand(scheduler::testing::text_llm(4), {}, {2, 1}).value();
  const auto lines = layout_lines(plan);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "pipeline 0: node 0: llm 0-1 | node 1: llm 2-3");
}

TEST_CASE("devices that share the cores of a machine are told", "[engine]") {
  const auto plan = place_by_hand(scheduler::testing::text_llm(4), {}, {4, 1}).value();
  job::Cluster cluster;
  cluster.nodes = cluster.local_nodes = 4;
  CHECK(crowded_cores(plan, cluster, 4).empty());
  CHECK(crowded_cores(plan, cluster, 2).starts_with("4 operator threads share the 2 cores"));
  CHECK(crowded_cores(plan, cluster, 1).starts_with("4 operator threads share the 1 core of"));
  cluster.threads_per_device = 2;
  CHECK(crowded_cores(plan, cluster, 7).starts_with("8 operator threads share the 7 cores"));
  // The rest are on machines that this one knows nothing about.
  cluster.local_nodes = 1;
  CHECK(crowded_cores(plan, cluster, 2).empty());
  CHECK_FALSE(crowded_cores(plan, cluster, 1).empty());
  cluster.device = "cuda";
  CHECK(crowded_cores(plan, cluster, 1).empty());
}

TEST_CASE("devices without a stage need no core", "[engine]") {
  const auto plan = place_by_hand(scheduler::testing::text_llm(1), {}, {1, 1}).value();
  job::Cluster cluster;
  cluster.nodes = cluster.local_nodes = 3;
  CHECK(crowded_cores(plan, cluster, 1).empty());
}

}  // namespace
}  // namespace troupe::engine
