#include "scheduler/layout/layout_degrees.hpp"

#include <catch2/catch_test_macros.hpp>

#include "scheduler/layout/layout_request.hpp"
#include "tests/scheduler/layout_requests.hpp"

namespace troupe::scheduler {
namespace {

using testing::layers;
using testing::model_of;
using testing::sample;

using Degrees = std::vector<Parallelism>;

/// An encoder and an llm of one layer each, `encoder_ms` and `llm_ms` for a row, three devices.
struct OneLayerEach {
  ModelGraph graph;
  CostModel model;
  AutoLayoutRequest request;

  OneLayerEach(bool freeze, double encoder_ms, double llm_ms) {
    graph.modules = {{"vision", ModuleKind::encoder, freeze, {ModuleId{1}}, layers("v", 1), 8, 8},
                     {"llm", ModuleKind::llm, false, {}, layers("l", 1), 8, 8}};
    model = model_of(graph, {encoder_ms, llm_ms}, {{}, {2, 1}});
    auto shape = sample(0, 0, 1);
    shape.media = {{ModuleId{0}, {{1, 1, 1, 1, 1}}}};
    shape.llm_tokens = shape.trained_tokens = 1;
    request.model = &model;
    request.samples = {shape};
    request.cluster = {1, 3};
    request.global_batch = request.microbatches = 16;
    request.planned_only = true;
  }
  std::vector<Degrees> choices() const {
    LayoutScorer scorer(request);
    return degree_choices(request, scorer);
  }
};

TEST_CASE("frozen encoders count with all of their work", "[scheduler]") {
  // Forward alone, 12 ms; the llm, whose first layer needs no input gradient, 3 + 3 ms. Two devices
  // for the encoder make the slowest stage 6 ms; two for the llm leave it at 12. (A third of the
  // encoder's work would be 4 ms, and the llm would get them.)
  const OneLayerEach frozen(true, 12, 3);
  CHECK((frozen.choices().back() == Degrees{{2, 1}, {1, 1}}));
  // As dear in all, but trained: forward and weight gradient of 6 ms each.
  const OneLayerEach trained(false, 6, 2);
  CHECK((trained.choices().back() == Degrees{{2, 1}, {1, 1}}));
  const OneLayerEach light(true, 4, 4);  // 4 ms, and 8: the llm is slower now.
  CHECK((light.choices().back() == Degrees{{1, 1}, {2, 1}}));
}

TEST_CASE("rows count in the search for degrees on the same devices", "[scheduler]") {
  // A sample hands on a row of 8 numbers of 4 bytes.
  for (const bool freeze : {false, true}) {
    OneLayerEach two(freeze, 12, 3);
    two.request.microbatches = 8;  // Of two samples each.
    LayoutScorer scorer(two.request);
    const auto together = degree_problem(two.request, scorer, Placement::shared);
    REQUIRE(together.has_value());
    CHECK(together->counts_rows);
    CHECK(together->samples.front()[0].boundary_bytes == 32);
    CHECK(together->samples.front()[1].boundary_bytes == 0);
    const auto apart = degree_problem(two.request, scorer, Placement::disjoint);
    REQUIRE(apart.has_value());
    CHECK_FALSE(apart->counts_rows);
    CHECK(apart->samples.front()[0].boundary_bytes == 0);
  }
}

TEST_CASE("the search for degrees knows what encoders have in host memory", "[scheduler]") {
  // 64 bytes of a sample in vision, of which an output of 32 stays.
  for (const bool freeze : {false, true}) {
    OneLayerEach two(freeze, 12, 3);
    two.request.samples.front().media = {{ModuleId{0}, {{64, 64, 1, 1, 1}}}};
    {
      LayoutScorer scorer(two.request);
      const auto resident = degree_problem(two.request, scorer, Placement::shared);
      REQUIRE(resident.has_value());
      CHECK(resident->modules[0].offloaded_share == 0);
    }
    two.request.offload_encoders = true;
    LayoutScorer scorer(two.request);
    const auto away = degree_problem(two.request, scorer, Placement::shared);
    REQUIRE(away.has_value());
    CHECK(away->modules[0].offloaded_share == (freeze ? 0 : 0.5));
    CHECK(away->modules[1].offloaded_share == 0);
    CHECK(away->modules[0].leaving_bytes == 0);
  }
  const testing::OneOfEach leave(64, true);
  LayoutScorer scorer(leave.request);
  CHECK(degree_problem(leave.request, scorer, Placement::shared)->modules[0].leaving_bytes == 40);
}

TEST_CASE("degrees that a side may have fit its pins, its profiles and a node", "[scheduler]") {
  OneLayerEach two(false, 1, 1);
  CHECK((side_degrees(two.request, Side::encoder) == Degrees{{1, 1}, {2, 1}}));
  two.request.cluster = {3, 1};
  CHECK((side_degrees(two.request, Side::llm) == Degrees{{1, 1}}));
  two.request.cluster = {1, 3};
  two.request.pins["vision"].tp = 2;
  CHECK((side_degrees(two.request, Side::encoder) == Degrees{{2, 1}}));
  CHECK((side_degrees(two.request, Side::llm) == Degrees{{1, 1}, {2, 1}}));
  two.request.pins["vision"].cp = 2;
  CHECK(side_degrees(two.request, Side::encoder).empty());
}

TEST_CASE("where the search fits nothing the smallest degrees are the choice", "[scheduler]") {
  OneLayerEach two(false, 1, 1);
  two.request.cluster = {1, 2};
  two.request.pins["vision"].tp = 1;
  two.request.pins["llm"].tp = 2;  // Three devices.
  CHECK((two.choices() == std::vector<Degrees>{{{1, 1}, {2, 1}}}));
}

}  // namespace
}  // namespace troupe::scheduler
