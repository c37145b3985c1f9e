#include "scheduler/cost/recomputed_profile.hpp"

#include <catch2/catch_test_macros.hpp>

#include "scheduler/cost/cost_model.hpp"

namespace troupe::scheduler {
namespace {

/// Two blocks between an embedding and a head, 32 wide.
ModelGraph four_layers() {
  ModelGraph graph;
  graph.modules = {{"llm",
                    ModuleKind::llm,
                    false,
                    {},
                    {{"llm.0", 5}, {"llm.1", 5}, {"llm.2", 5}, {"llm.3", 5}},
                    32,
                    32}};
  return graph;
}

LayerProfile kind(const std::string& name, Parallelism parallelism) {
  return {name,
          parallelism,
          CostOrigin::measured,
          Bytes{20},
          {{16, {1, 2, 3, 6400}, {4, 5, 0, 1600}}, {64, {4, 8, 12, 25600}, {64, 80, 0, 6400}}}};
}

TEST_CASE("what runs again takes a forward longer and keeps a row of each token", "[scheduler]") {
  const Profile plain{
      "test",
      {{"llm.0", "embedding"}, {"llm.1", "block"}, {"llm.2", "block"}, {"llm.3", "head"}},
      {kind("embedding", {}), kind("block", {}), kind("block", {1, 4}), kind("head", {})}};
  const Profile again = with_recomputation(four_layers(), plain, 2);
  CHECK(again.profiles[0] == plain.profiles[0]);
  CHECK(again.profiles[3] == plain.profiles[3]);
  // 16 tokens x 32 columns x 2 bytes; a quarter of the tokens where four ranks share them.
  CHECK(again.profiles[1].points[0] == ProfilePoint{16, {1, 3, 3, 1024}, {4, 9, 0, 0}});
  CHECK(again.profiles[1].points[1] == ProfilePoint{64, {4, 12, 12, 4096}, {64, 144, 0, 0}});
  CHECK(again.profiles[2].points[0].linear == PartCost{1, 3, 3, 256});
  const auto model = CostModel::create(four_layers(), again);
  REQUIRE(model.ok());
  const auto cost = model.value().cost({ModuleId{0}, 1}, 64).value();
  CHECK(cost.activations == Bytes{4096});
}

}  // namespace
}  // namespace troupe::scheduler
