#include "scheduler/recovery/what_if.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

// Four layers of 2 ms on nodes of one GPU, templates of 1 to 4 nodes with Nb = 4 x nodes.
WhatIfRequest request(std::vector<RankList> pipelines) {
  TemplateRequest planned;
  planned.layers.assign(4, {1, 1, Bytes{1}, {}});
  planned.node_count = 4;
  planned.device_memory = Bytes{100};
  WhatIfRequest made;
  made.templates = make_templates(planned).value();
  made.layer_bytes.assign(4, 10);
  made.pipelines = std::move(pipelines);
  made.global_batch = 16;
  return made;
}

TEST_CASE("a lost node costs time and copies", "[scheduler]") {
  // Two pipelines of two nodes, 2 + 2 layers. Without node 1, node 0 holds all four alone: it
  // copies layers 2 and 3 from node 3.
  auto input = request({{0, 1}, {2, 3}});
  input.lost = {1};
  const auto result = what_if(input);
  REQUIRE(result.ok());
  const auto& change = result.value();
  CHECK(change.before.microbatches == std::vector<std::int64_t>{8, 8});
  CHECK(change.after.pipelines == std::vector<RankList>{{0}, {2, 3}});
  CHECK(change.copies.copies == std::vector<Copy>{{2, 3, 0}, {3, 3, 0}});
  CHECK(change.copies.max_sent_bytes == 20);
  // One node takes 8 ms per microbatch; two take (8 + 7 x 4) / 8 = 4.5. Of 16: 6 x 8 = 48 and
  // 10 x 4.5 = 45.
  CHECK(change.before.iteration_ms == Approx(36));
  CHECK(change.after.microbatches == std::vector<std::int64_t>{6, 10});
  CHECK(change.after.iteration_ms == Approx(48));
}

TEST_CASE("a joining node receives its layers", "[scheduler]") {
  auto input = request({{0, 1}});
  input.joined = {7};
  const auto result = what_if(input);
  REQUIRE(result.ok());
  CHECK(result.value().after.pipelines == std::vector<RankList>{{7}, {0, 1}});
  CHECK(result.value().copies.copies.size() == 4);
  CHECK(result.value().after.iteration_ms < result.value().before.iteration_ms);
}

TEST_CASE("pipelines may be given instead of derived", "[scheduler]") {
  // One pipeline of two nodes becomes two of one: each node lacks the other's two layers.
  const auto input = request({{0, 1}});
  const auto result = change_pipelines(input, {{0}, {1}});
  REQUIRE(result.ok());
  CHECK(result.value().copies.copies ==
        std::vector<Copy>{{0, 0, 1}, {1, 0, 1}, {2, 1, 0}, {3, 1, 0}});
  auto alone = input;
  alone.lost = {1};
  CHECK(change_pipelines(alone, {{0}}).error().where == "holders");
}

TEST_CASE("a change says where nodes come from", "[scheduler]") {
  using enum PipelineChange;
  // Pipeline 0 lost one of two nodes and goes on with the other; pipeline 1 stays.
  auto input = request({{0, 1}, {2, 3}});
  input.lost = {1};
  CHECK((what_if(input).value().origins ==
         std::vector<PipelineOrigin>{{reinstantiated, {0}}, {kept, {1}}}));
  input.joined = {9};  // Pipelines are sorted by length, then node.
  CHECK((what_if(input).value().origins ==
         std::vector<PipelineOrigin>{{reinstantiated, {0}}, {created, {}}, {kept, {1}}}));
  input.lost = {};
  CHECK((change_pipelines(input, {{0, 1, 9}, {2, 3}}).value().origins ==
         std::vector<PipelineOrigin>{{grown, {0}}, {kept, {1}}}));
  CHECK((change_pipelines(input, {{0, 1, 2}, {3}}).value().origins ==
         std::vector<PipelineOrigin>{{borrowed, {0, 1}}, {reinstantiated, {1}}}));
  input.lost = {1};
  CHECK((change_pipelines(input, {{0, 2, 3}}).value().origins ==
         std::vector<PipelineOrigin>{{merged, {0, 1}}}));
}

TEST_CASE("a pipeline that stays as it is keeps its own stages", "[scheduler]") {
  // Both pipelines hold 3 + 1 layers, not 2 + 2 as the template would. Without node 1, node 0 lacks
  // layer 3 alone, and pipeline 1 keeps its time of 6 ms: 16 = 7 x 8 ms + 9 x 6 ms.
  auto input = request({{0, 1}, {2, 3}});
  input.running = {{{{0}, {0}, {0}, {1}}, 6}, {{{2}, {2}, {2}, {3}}, 6}};
  CHECK(what_if(input).value().copies.copies.empty());
  input.lost = {1};
  const auto change = what_if(input).value();
  CHECK(change.copies.copies == std::vector<Copy>{{3, 3, 0}});
  CHECK(change.before.iteration_ms == Approx(48));
  CHECK(change.after.microbatches == std::vector<std::int64_t>{7, 9});
  CHECK(change.after.iteration_ms == Approx(56));
  input.running.pop_back();
  CHECK(what_if(input).error().where == "running");
}

TEST_CASE("what cannot be survived says why", "[scheduler][errors]") {
  auto input = request({{0, 1}});
  input.lost = {1};  // Layers 2 and 3 are gone.
  auto result = what_if(input);
  REQUIRE_FALSE(result.ok());
  CHECK_THAT(result.error().message, ContainsSubstring("'2', '3'"));
  input = request({{0, 1, 2, 3, 4}});
  result = what_if(input);
  REQUIRE_FALSE(result.ok());
  CHECK_THAT(result.error().fix, ContainsSubstring("4 nodes"));
  input = request({{0, 1}});
  input.layer_bytes.pop_back();
  CHECK(what_if(input).error().where == "layer_bytes");
  input = request({{0}, {1}});
  input.global_batch = 1;
  CHECK(what_if(input).error().where == "global_batch");
}

}  // namespace
}  // namespace troupe::scheduler
